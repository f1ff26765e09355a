"""A turn's text as the rules read it: sentences and clauses with their places in the original.

What must not be read (code, quoted lines, secrets, text handed over for translation) is blanked
out at the same length, so every place found is a place in the turn.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from compose.offline.rules_secrets import secret_spans

BARRED = "\x00"
"""Stands for one character of a secret; a clause that holds one yields nothing."""

LONGEST_SENTENCE = 600
"""A longer one is no talk: it is pasted, and not read."""

_UNREAD = (
    re.compile(r"```(?:[^`]|`(?!``))*+(?:```)?"),
    re.compile(r"(?m)^[ \t]*>.*$"),
)
_TAG = re.compile(r"<(?P<close>/?)(?P<name>[A-Za-z][\w.-]{0,60})(?:\s[^<>\n]{0,200})?>")
_HANDED_OVER = re.compile(
    r"""(?imx)
    (?: ^[ \t]* | [.!?。！？,，][ \t]* | \b(?:please|you|help\ me|me)\s+ | 请 | 帮我 | 帮忙 )
    (?: (?:translate|summari[sz]e|proofread|rewrite|rephrase|paraphrase|edit|polish|improve|shorten
        |correct|fix|check|classify|analy[sz]e|complete|continue|write|draft|compose|role-?play
        |act\ as|pretend|imagine|suppose|übersetz\w*|traduc\w*|traduz\w*|schreib\w*|escrib\w*)\b
        [^\n.!?]{0,120}? (?: : | ： | \n | \bthat\ (?:i|you)\b | \bas\ if\b | \byou(?:'re|\ are)\b )
      | (?:翻译|潤色|润色|改写|总结|概括|修改|续写|扮演|假装|假设|想象)[^\n。！？]{0,60}?[:：\n你]
    )
    """
)
_SENTENCE_END = re.compile(r"[.!?。！？；;…\n]+[\"'”’」』）)\]]*")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:mr|mrs|ms|dr|st|prof|sr|sra|e\.g|i\.e|etc|vs|approx|a\.m|p\.m|[a-hj-z])$|^\s*\d{1,2}$",
    re.IGNORECASE,
)
_CHINESE = re.compile(r"[\u3400-\u9fff]")
_QUOTED = re.compile(r"\"[^\"\n]{0,300}\"|“[^”\n]{0,300}”|「[^」\n]{0,300}」"
    r"|«[^»\n]{0,300}»|(?<!\w)'[^'\n]{2,300}'(?!\w)|‘[^’\n]{2,300}’(?!\w)")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """One sentence of a turn."""

    start: int
    """Where it begins in the turn."""
    text: str
    """Its words, secrets blanked out."""
    asks: bool
    """Whether it ends with a question mark."""

    @property
    def is_chinese(self) -> bool:
        """Whether it holds Chinese characters."""
        return _CHINESE.search(self.text) is not None

    @property
    def is_clean(self) -> bool:
        """Whether no part of it was a secret."""
        return BARRED not in self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """A part of a sentence that may state something."""

    start: int
    """Where it begins in the sentence."""
    text: str
    """Its words."""


def readable(content: str) -> str:
    """Return the turn's text, of the same length, without what must not be read."""
    text = list(content)
    for start, end in secret_spans(content):
        text[start:end] = BARRED * (end - start)
    unread = [match.span() for pattern in _UNREAD for match in pattern.finditer(content)]
    if (handed := _HANDED_OVER.search(content)) is not None:
        unread.append((handed.start(), len(content)))
    for start, end in (*unread, *_tagged_spans(content)):
        text[start:end] = "\n" * (end - start)
    return "".join(text)


def _tagged_spans(content: str) -> Iterator[tuple[int, int]]:
    """Yield where markup is, with what stands between an opening tag and its closing one."""
    opened: dict[str, int] = {}
    for tag in _TAG.finditer(content):
        name = tag["name"].lower()
        if not tag["close"]:
            opened.setdefault(name, tag.start())
            yield tag.span()
        elif (start := opened.pop(name, None)) is not None:
            yield start, tag.end()
            opened = {other: place for other, place in opened.items() if place < start}
        else:
            yield tag.span()


def sentences(text: str) -> Iterator[Sentence]:
    """Yield the sentences of what `readable` returned, in order."""
    start = 0
    for match in _SENTENCE_END.finditer(text):
        if not _ends_sentence(text, start, match):
            continue
        yield from _sentence(text, start, match.end())
        start = match.end()
    yield from _sentence(text, start, len(text))


def quoted_spans(text: str) -> list[tuple[int, int]]:
    """Return where the text holds somebody's words, or a title, between quotation marks."""
    return [match.span() for match in _QUOTED.finditer(text)]


def split(text: str, boundary: re.Pattern[str]) -> Iterator[Clause]:
    """Yield the clauses between boundaries; one inside quotation marks is none."""
    quoted = quoted_spans(text)
    start = 0
    for match in boundary.finditer(text):
        if any(first < match.start() < last for first, last in quoted):
            continue
        yield from _clause(text, start, match.start())
        start = match.end()
    yield from _clause(text, start, len(text))


def _ends_sentence(text: str, start: int, match: re.Match[str]) -> bool:
    if match.group()[0] != "." or "\n" in match.group():
        return True
    if match.end() < len(text) and not text[match.end()].isspace():
        return False
    if re.match(r"\s+[A-Z]", text[match.end() :]) and text[: match.start()].endswith("etc"):
        return True
    return _ABBREVIATION.search(text[start : match.start()]) is None


def _sentence(text: str, start: int, end: int) -> Iterator[Sentence]:
    words = text[start:end]
    stripped = words.strip()
    if 1 < len(stripped) <= LONGEST_SENTENCE:
        yield Sentence(
            start=start + words.index(stripped),
            text=stripped,
            asks=re.search(r"[?？][^\w]*$", stripped) is not None,
        )


def _clause(text: str, start: int, end: int) -> Iterator[Clause]:
    words = text[start:end]
    stripped = words.strip(" \t,，.!。！;；、~～")
    if stripped:
        yield Clause(start=start + words.index(stripped), text=stripped)
