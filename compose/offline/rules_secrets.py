"""Where a text holds what must never be remembered: keys, passwords, tokens, card numbers.

A doubtful span counts as a secret: a lost memory is said again, a leaked key is not unsaid.
"""

import re
from collections.abc import Iterator

Span = tuple[int, int]

_NAMED = re.compile(
    r"""(?ix)
    (?: pass(?:word|wort|phrase|code|wd|key)? | kennwort | contrase\S{1,2}a | senha | \bclave\b
      | \bpin\b (?:[ ]?(?:code|number))? | \bcvv2?\b | \bcvc\b | \botp\b | \b2fa\b
      | (?:api|access|secret|private|license|licence|encryption|ssh|recovery|seed|auth)
        [ _-]?(?:key|token|code|phrase|secret)s?
      | (?:access|auth|bearer|refresh|session|bot|security|verification|one[ -]time)
        [ _-]?(?:token|code)
      | \b(?:secret|token|credentials?|login|key)\b
      | social[ ]security[ ]number | \bssn\b | card[ ]number | account[ ]number | \biban\b
      | passport[ ]number
      | 密[码碼] | 口令 | 密[钥鑰匙] | 令牌 | 验证码 | 驗證碼 | 卡[号號] | 身份证[号號]?
    )
    [^\n.:=，。；;,]{0,30}?
    (?: \s*[:=：]\s* | \s+(?:is|are|was|ist|es|[ée]|to|→)\s*:?\s+ | (?:是|为|為|改成|设为|叫)\s* )
    (?P<value> [^\n,，。;；]{1,200}? )
    (?= \s+(?:and|but|y|und|e)\s+(?:i|my|yo|mi|me|ich|mein|eu|meu|we)\b
      | [.!?](?:\s|$) | [\n,，。;；！？] | $ )
    """
)
_SHAPED = (
    re.compile(
        r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:[^-]|-(?!----END))*+(?:-----END[^\n]*)?"
    ),
    re.compile(r"(?i)\b[a-z][a-z0-9+.-]{0,20}://[^\s/:@]{1,200}:[^\s/@]{1,400}@\S{1,400}"),
    re.compile(r"(?i)\bbearer[ \t]{1,4}[A-Za-z0-9._~+/=-]{12,}"),
    re.compile(r"[sprSPR][kK][-_](?=[A-Za-z_-]{0,200}[0-9])[A-Za-z0-9_-]{12,}"),
    re.compile(r"(?:gh[opsur]_|github_pat_|glpat-|xox[abeprs]-|hf_|npm_|pypi-|dop_v1_)\w[\w-]{8,}"),
    re.compile(r"(?:AKIA|ASIA|AIza)[0-9A-Za-z_-]{12,}"),
    re.compile(r"eyJ[\w-]{5,}\.[\w-]{5,}(?:\.[\w-]*)?"),
    re.compile(r"(?<!\d)\d{3}-\d{2}-\d{4}(?!\d)"),
    re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,4})?\b"),
)
_DIGITS = re.compile(r"\d(?:[ -]?\d){12,22}")
_CARD_DIGITS = range(13, 20)
_TOKEN = re.compile(r"[A-Za-z0-9+/_=-]{20,}")
_HEX = re.compile(r"[0-9a-f]+|[0-9A-F]+")


def secret_spans(text: str) -> list[Span]:
    """Return where secrets are, in order; spans may overlap.

    A bare hexadecimal number, such as a commit's, is no secret unless something names it one.
    """
    return sorted({*_shaped(text), *_named(text)})


def _named(text: str) -> Iterator[Span]:
    for match in _NAMED.finditer(text):
        yield match.span()


def _shaped(text: str) -> Iterator[Span]:
    for pattern in _SHAPED:
        for match in pattern.finditer(text):
            yield match.span()
    for match in _DIGITS.finditer(text):
        if _holds_card_number(match.group()):
            yield match.span()
    for match in _TOKEN.finditer(text):
        token = match.group()
        if not _HEX.fullmatch(token) and _is_mixed(token):
            yield match.span()


def _is_mixed(token: str) -> bool:
    kinds = (str.isupper, str.islower, str.isdigit)
    return all(any(kind(char) for char in token) for kind in kinds)


def _holds_card_number(digits: str) -> bool:
    number = re.sub(r"\D", "", digits)
    return any(
        _passes_luhn(number[start : start + length])
        for length in _CARD_DIGITS
        for start in range(len(number) - length + 1)
    )


def _passes_luhn(number: str) -> bool:
    """Source: ISO/IEC 7812-1, annex B."""
    total = 0
    for place, digit in enumerate(reversed(number)):
        value = int(digit) * (2 if place % 2 else 1)
        total += value - 9 if value > 9 else value  # noqa: PLR2004 - the digits of a two-digit sum
    return total % 10 == 0
