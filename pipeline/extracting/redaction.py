"""Secrets, found in any text and taken out before anything is stored.

Found by shape (a vendor's prefix, a key block, a card number) or by what they are called (a
password, whatever it looks like; a token, if it looks like one). Rules of our own rather than
`detect-secrets`: that is made for source code, wants quotes around values, keeps its settings in
global state, and was last released in May 2024.

Linear in the length of the text: every repetition is bounded or possessive, no two starts of
one rule look at the same long run, and known secrets are looked up, all in one pass. No single call
into the regular expressions looks at much text, so that a thread that redacts lets others run.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

MARK: Final = "[secret removed]"
"""What stands in a secret's place."""

Span = tuple[int, int]
_SECRET: Final = "secret"  # noqa: S105 (the name of a group)


class KnownSecrets:
    """Secrets found elsewhere, to be taken out wherever they stand alone. Immutable."""

    __slots__ = ("_beginning", "_lengths", "_secrets")

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """Index the secrets; empty ones are none."""
        self._secrets = frozenset(filter(None, secrets))
        self._beginning = min(map(len, self._secrets), default=0)
        lengths: dict[str, set[int]] = {}
        for secret in self._secrets:
            lengths.setdefault(secret[: self._beginning], set()).add(len(secret))
        self._lengths = {
            beginning: sorted(found, reverse=True) for beginning, found in lengths.items()
        }

    def and_those_in(self, texts: Iterable[str]) -> "KnownSecrets":
        """Return these secrets and those that texts hold."""
        found = frozenset(secret for text in texts for secret in secrets_in(text))
        return self if found <= self._secrets else KnownSecrets(self._secrets | found)

    def spans(self, text: str) -> Iterator[Span]:
        """Yield where they stand in a text: at each place the longest one."""
        if not self._secrets:
            return
        for place in range(len(text) - self._beginning + 1):
            lengths = self._lengths.get(text[place : place + self._beginning])
            if lengths is not None and not _is_joint(text, place):
                for stop in (place + length for length in lengths):
                    if text[place:stop] in self._secrets and not _is_joint(text, stop):
                        yield place, stop
                        break


NO_SECRETS: Final = KnownSecrets()


def redact(text: str, *, known: KnownSecrets = NO_SECRETS) -> tuple[str, int]:
    """Return a text without its secrets, and how many there were. Idempotent.

    Args:
        text: Anything.
        known: Secrets found elsewhere, which are taken out here wherever they stand alone.
    """
    clean, count = _without(text, [*_spans(text), *known.spans(text)])
    if count == 0:
        return text, 0
    # What stood against a secret may be one by itself, now that it is gone.
    clean, more = redact(clean, known=known)
    return clean, count + more


def redact_json(value: JsonValue, *, known: KnownSecrets = NO_SECRETS) -> tuple[JsonValue, int]:
    """Return a JSON value without secrets in its strings and keys, and how many there were.

    What is a secret in one string is one in every other: a model says a password in a sentence,
    where it is recognised, and again by itself, where it is not.
    """
    return _redacted(value, known.and_those_in(_strings(value)))


def holds_secret(text: str) -> bool:
    """Return whether there is a secret in a text, or was one."""
    return MARK in text or any(True for _ in _spans(text))


def secrets_in(text: str) -> frozenset[str]:
    """Return the secrets of a text that can be told from ordinary words elsewhere."""
    found = (text[start:stop] for start, stop in _spans(text))
    return frozenset(secret for secret in found if _is_distinct(secret))


def _is_distinct(secret: str) -> bool:
    return len(secret) >= _LONG or (len(secret) >= _SHORT and not secret.isalpha())


_LONG: Final = 8
_SHORT: Final = 4


# --- JSON ----------------------------------------------------------------------------------------


def _strings(value: JsonValue) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield f"{key}: {inner}" if isinstance(inner, str) else key
            yield from _strings(inner)


def _redacted(value: JsonValue, known: KnownSecrets) -> tuple[JsonValue, int]:
    if isinstance(value, str):
        return redact(value, known=known)
    if isinstance(value, list):
        pairs = [_redacted(inner, known) for inner in value]
        return [inner for inner, _ in pairs], sum(count for _, count in pairs)
    if isinstance(value, dict):
        clean: dict[str, JsonValue] = {}
        total = 0
        for key, inner in value.items():
            name, in_key = redact(key, known=known)
            clean[_unused(name, clean)], in_value = _redacted_under(key, inner, known)
            total += in_key + in_value
        return clean, total
    return value, 0


def _redacted_under(key: str, value: JsonValue, known: KnownSecrets) -> tuple[JsonValue, int]:
    """Return the value of a key: `{"password": "…"}` says together what neither says alone."""
    if not isinstance(value, str):
        return _redacted(value, known)
    prefix = f"{key}: "
    together = _spans(prefix + value)
    inside = [(start - len(prefix), stop - len(prefix)) for start, stop in together]
    clean, count = _without(value, [span for span in inside if span[0] >= 0])
    clean, more = redact(clean, known=known)
    return clean, count + more


def _unused(name: str, taken: dict[str, JsonValue]) -> str:
    unused, number = name, 2
    while unused in taken:
        unused, number = f"{name} {number}", number + 1
    return unused


# --- spans ---------------------------------------------------------------------------------------


def _without(text: str, spans: Iterable[Span]) -> tuple[str, int]:
    kept: list[str] = []
    end = 0
    merged = _merged(spans)
    for start, stop in merged:
        kept += [text[end:start], MARK]
        end = stop
    return "".join((*kept, text[end:])), len(merged)


def _spans(text: str) -> Iterator[Span]:
    lowered = text.lower()
    for rule in _RULES:
        for begin, end in _windows(rule, lowered, len(text)):
            for match in _matches(rule, text, begin, end):
                start, stop = match.span(_SECRET)
                if not text.startswith(MARK, start) and rule.confirms(match):
                    yield start, _end(text, stop) if stop - start >= _VALUE - 1 else stop


def _matches(rule: "_Rule", text: str, begin: int, end: int) -> Iterator[re.Match[str]]:
    """Yield what `finditer` would, looking at no more than a stretch of the text at a time.

    While a regular expression is matched, no other thread runs.
    """
    if rule.reach is None:
        yield from rule.pattern.finditer(text, begin, end)
        return
    while begin < end:
        stop = min(end, begin + _STRETCH + rule.reach)
        match = rule.pattern.search(text, begin, stop)
        if match is not None and (stop == end or match.start() < begin + _STRETCH):
            yield match
            begin = match.end()
        else:
            begin = end if stop == end else begin + _STRETCH


_STRETCH: Final = 32_768


def _end(text: str, stop: int) -> int:
    """Return where a value ends that is longer than its rule looks at."""
    rest = _UNBROKEN.match(text, stop)
    return stop if rest is None else rest.end()


def _windows(rule: "_Rule", lowered: str, length: int) -> list[Span]:
    """Return the stretches of a text in which a rule can match at all, for speed."""
    if not rule.hints:
        return [(0, length)]
    places = [
        (max(0, place - _BEFORE_HINT), min(length, place + _AFTER_HINT))
        for hint in rule.hints
        for place in _places(lowered, hint)
    ]
    # In lower case a few letters become two, and then places are not the text's own.
    return [(0, length)] if places and len(lowered) != length else _merged(places)


def _places(text: str, part: str) -> Iterator[int]:
    place = text.find(part)
    while place >= 0:
        yield place
        place = text.find(part, place + len(part))


_BEFORE_HINT: Final = 64
_AFTER_HINT: Final = 512
"""How far a match may reach to both sides of its hint: more than the bounds in a rule add up to."""


def _is_joint(text: str, place: int) -> bool:
    """Return whether the characters on both sides of a place are of one word."""
    pair = text[place - 1 : place + 1] if place else ""
    return len(pair) > 1 and pair.isascii() and pair.isalnum()


def _merged(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, stop in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged


# --- rules ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    """Its group `secret` is what is taken out."""
    confirms: Callable[[re.Match[str]], bool] = lambda _match: True
    hints: tuple[str, ...] = ()
    """What every match holds one of, in lower case. None: any text may match."""
    reach: int | None = _BEFORE_HINT + _AFTER_HINT
    """How long a match may be; none if a fixed beginning finds it fast, however long it is."""


def _has_digit(match: re.Match[str]) -> bool:
    return any(character.isdigit() for character in match[_SECRET])


def _is_mixed(value: str) -> bool:
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))


_CARD_LENGTHS: Final = (
    (re.compile(r"4"), {13, 16, 19}),
    (re.compile(r"5[1-5]|2[2-7]|35"), {16}),
    (re.compile(r"3[47]"), {15}),
    (re.compile(r"3[068]"), {14}),
    (re.compile(r"5[0689]|6"), {16, 17, 18, 19}),
)


def _is_card(match: re.Match[str]) -> bool:
    """Return whether digits are a payment card's.

    Source: ISO/IEC 7812-1: issuers by the first digits, the check digit by Luhn.
    """
    digits = [int(character) for character in match[_SECRET] if character.isdigit()]
    number = "".join(map(str, digits))
    if not any(
        begins.match(number) and len(number) in lengths for begins, lengths in _CARD_LENGTHS
    ):
        return False
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


_ORDINARY: Final = re.compile(
    r"""(?ix)
    (?: an? | and | any | are | as | at | be | been | by | changed | correct | different | easy
      | empty | expired | for | from | good | hard | here | in | incorrect | invalid | is | it
      | just | long | lost | missing | my | never | no | none | not | now | null | of | ok | old
      | on | one | only | optional | or | our | out | password | please | required | reset | right
      | safe | same | saved | secret | secure | set | short | so | still | stored | strong | that
      | the | there | this | to | too | true | undefined | unknown | used | very | was | weak
      | what | when | where | which | with | wrong | yes | you | your
      | falsch | richtig | nicht | vergessen | sehr | das | die | der | eine? | zu
      | correct[ao] | incorrect[ao] | muy | segur[ao] | la | el | una? | faux | très | le | une
      | неверный | правильный | не | очень | забыл
    ) [!?]*
    """
)
"""What follows "the password is" in ordinary talk."""

_ABOUT: Final = re.compile(r"(?i)\s*(?:manager|reset|polic|hint|field|generator|safe)")
"""What makes "password" the beginning of another word."""


def _is_password(match: re.Match[str]) -> bool:
    value = match[_SECRET]
    if _ORDINARY.fullmatch(value) or _is_apart(match):
        return False
    if match["sign"] or not value.isalpha():
        return True
    # A plain word after a plain "is" is a password only if it is somebody's, and in a script that
    # runs its words together it is the rest of a sentence.
    is_unspaced = value.lower() == value.upper()
    return not is_unspaced and (bool(match["whose"]) or not value.islower())


def _is_phrase(match: re.Match[str]) -> bool:
    is_talk = not match["sign"] and _ORDINARY.fullmatch(match[_SECRET].split()[0])
    return not is_talk and not _is_apart(match)


def _is_code(match: re.Match[str]) -> bool:
    return match[_SECRET].replace("-", "").isdigit() and not _is_apart(match)


_HASHES: Final = re.compile(r"(?i)commit|hash|sha|digest|checksum|uuid|isbn|\bids?\b")
_UUID: Final = re.compile(r"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _is_key(match: re.Match[str]) -> bool:
    value = match[_SECRET]
    is_hash = _HASHES.search(match["gap"]) or _UUID.fullmatch(value)
    return _is_mixed(value) and not is_hash and not _is_apart(match)


def _is_apart(match: re.Match[str]) -> bool:
    """Return whether name and value only happen to stand in one sentence."""
    gap: str = match["gap"]
    return bool(_ABOUT.match(gap)) or (match["bare"] is not None and bool(gap.strip()))


_LONGEST_TOKEN: Final = 8192
"""A signed token may be as long as a header, and is one only with its last part."""
_SHAPES: Final = r"""(?x)
    (?<![A-Za-z0-9])
    (?P<secret>
        (?: sk | pk | rk ) [-_] [A-Za-z0-9_-]{16,}+
      | ats_ [A-Za-z0-9_-]{16,}+
      | (?: AKIA | ASIA | ABIA | ACCA ) [0-9A-Z]{16} (?![0-9A-Za-z])
      | AIza [0-9A-Za-z_-]{30,}+
      | ya29\. [0-9A-Za-z_-]{20,}+
      | GOCSPX- [0-9A-Za-z_-]{20,}+
      | gh[opsur]_ [A-Za-z0-9]{20,}+
      | (?: github_pat_ | glpat- | hf_ | npm_ | pypi- | dop_v1_ | shpat_ | whsec_ | lin_api_ )
        [A-Za-z0-9_-]{16,}+
      | xox[abeoprs]- [A-Za-z0-9-]{10,}+
      | xapp- [A-Za-z0-9-]{10,}+
      | SG\. [A-Za-z0-9_-]{16,}+ \. [A-Za-z0-9_-]{16,}+
      | eyJ [A-Za-z0-9_-]{8,}+ \. [A-Za-z0-9_-]{8,}+ (?: \. [A-Za-z0-9_-]*+ )?
    )
"""

_LOGIN_NAMES: Final = r"""
    pass (?: word | wort | code | wd )s? | \bpwd\b | kennwort | mot \s de \s passe
  | contraseña | \bclave\b | \bsenha\b | парол[ья] | 密[码碼] | 口令 | パスワード | 비밀번호
"""
_LOGIN_HINTS: Final = (
    *("password", "passwort", "passcode", "passwd", "pwd", "kennwort", "passe", "contraseña"),
    *("clave", "senha", "парол", "密码", "密碼", "口令", "パスワード", "비밀번호"),
)
_PHRASE_NAMES: Final = r"(?: pass | seed \s | recovery \s ) -?phrase"
_CODE_NAMES: Final = r"""
    \bpin (?: [- ]? (?: code | number ) )?\b | \bcv[vc]2?\b | \botp\b | 验证码 | 驗證碼
  | \bssn\b | social \s security \s number
"""
_CODE_HINTS: Final = ("pin", "cvv", "cvc", "otp", "验证码", "驗證碼", "ssn", "social")
_KEY_NAMES: Final = r"""
    (?<! [A-Za-z\[] )
    (?: api | access | secret | private | licen[sc]e | encryption | account | ssh | auth )?
    [_ -]? (?: key | token | secret | schlüssel | llave | chave | credential )s? (?! [A-Za-z] )
  | ключ | токен | 密[钥鑰] | 令牌 | トークン | 토큰
"""
_KEY_HINTS: Final = (
    *("key", "token", "secret", "schlüssel", "llave", "chave", "credential", "ключ", "токен"),
    *("密钥", "密鑰", "令牌", "トークン", "토큰"),
)

_WHOSE: Final = r"""
    (?: (?P<whose> \b (?: my | our | mein | unser | mi | mon | meu | мой | 我的 ) )
        \x20? (?: [\w-]{1,20} \x20 )?? )?
"""
_GAP: Final = r"(?P<gap> [^\n.:=：＝。；;!?]{0,40}? )"
_SEPARATOR: Final = r"""
    (?: [ \t]{0,4} (?P<sign> [:=：＝] | -> | => ) [ \t]{0,4}
      | [ \t]{1,4} (?: is | are | was | ist | lautet | es | est | é | è | это | to | [-–—] )
        [ \t]{1,4}
      | \s? (?: 是 | 为 | 為 | 改成了? | は | 는 | 은 ) \s?
      | (?P<bare> [ \t]{1,4} ) (?= \S{0,64}? [0-9] )
    )
"""
_VALUE: Final = 256
"""How much of a value a rule looks at."""
_BREAKS: Final = r"""\s"'`“”«»„「」，。；！？、,;()<>"""
_UNBROKEN: Final = re.compile(f"[^{_BREAKS}]*+")
_WORD: Final = rf"""["'`“«„「]? (?P<secret> [^{_BREAKS}]{{%d,{_VALUE}}} (?<! [.!?:] ) )"""
_QUOTED: Final = r"""["'`“«„「] (?P<secret> [^\n"'`“”«»„「」]{3,128} ) ["'`”»“」]"""
_SENTENCE: Final = r"""["'`“«„「]? (?P<secret> [^\n"'`“”«»„「」.;!?]{8,256} )"""


def _named(words: str, value: str) -> re.Pattern[str]:
    pattern = f"{_WHOSE} (?: {words} ) {_GAP} {_SEPARATOR} {value}"
    return re.compile(pattern, re.VERBOSE | re.IGNORECASE)


_RULES: Final = (
    _Rule(re.compile(_SHAPES), _has_digit, reach=_LONGEST_TOKEN),
    _Rule(
        re.compile(
            r"(?s)(?P<secret>-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
            r".*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z))"
        ),
        reach=None,
    ),
    _Rule(
        re.compile(r"(?i)\b(?:bearer|basic)\s{1,4}(?P<secret>[A-Za-z0-9._~+/=-]{16,}+)"),
        _has_digit,
        ("bearer", "basic"),
    ),
    _Rule(
        re.compile(r"(?i)\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{0,128}:(?P<secret>[^\s/@]{1,256})@"),
        hints=("://",),
    ),
    _Rule(
        re.compile(
            r"(?<![0-9+])(?<![0-9][ -])(?P<secret>[0-9](?:[ -]?[0-9]){12,18})(?![ -]?[0-9])"
        ),
        _is_card,
    ),
    _Rule(_named(_LOGIN_NAMES, _QUOTED), _is_password, _LOGIN_HINTS),
    _Rule(_named(_LOGIN_NAMES, _WORD % 3), _is_password, _LOGIN_HINTS),
    _Rule(_named(_PHRASE_NAMES, _SENTENCE), _is_phrase, ("phrase",)),
    _Rule(_named(_CODE_NAMES, _WORD % 3), _is_code, _CODE_HINTS),
    _Rule(_named(_KEY_NAMES, _WORD % 8), _is_key, _KEY_HINTS),
)
