"""Terms: what texts and questions are compared by.

Words come down to their stems. What is written without spaces is cut into pairs of neighbouring
characters. What has a form of its own (`INV-2024-0042`, an address, a path) is a term as a whole
and in its parts.
"""

import itertools
import re
import sys
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from pipeline.reading.languages import DEFAULT, language_of, stem

_LONGEST: Final = 100
"""Characters of a term; what is longer is nobody's word."""
_HAN: Final = r"\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff"
_HANGUL: Final = r"\u1100-\u11ff\uac00-\ud7af"
_UNSPACED: Final = (
    rf"{_HAN}{_HANGUL}\u3041-\u30ff"  # and Kana
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao; Burmese; Khmer
)
"""Written without spaces, or, as Korean, with what other languages write apart."""
_MARKS: Final = "".join(
    mark for code in range(0x300, 0xFFFF) if unicodedata.category(mark := chr(code)).startswith("M")
)
"""Signs that belong to the letter before them: vowels of Hindi, tones of Thai."""
_LETTER: Final = rf"(?:[^\W_]|[{_MARKS}])"
_WRITTEN: Final = re.compile(rf"{_LETTER}+(?:[-_./\\@:+#~&]+{_LETTER}+)*")
_PART: Final = re.compile(
    rf"(?P<unspaced>[{_UNSPACED}]+)|(?P<number>\d+)|(?P<word>(?:(?![{_UNSPACED}\d]){_LETTER})+)"
)
_FORM: Final = re.compile(r"[\d_./\\@:]")
"""What tells an id, an address, a path or a version from words joined by hyphens."""
_UNIT: Final = re.compile(rf".[{_MARKS}]*", re.DOTALL)
_MEANS_ALONE: Final = re.compile(rf"[{_HAN}{_HANGUL}]")


class _Sort(Enum):
    WORD = auto()
    LITERAL = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """A text as it is indexed."""

    terms: Sequence[str]
    """In their order, each as often as it stands there."""
    language: str
    """What its words in Latin letters were taken for."""


def terms_of(text: str) -> Terms:
    """Return the terms of a text."""
    pieces = list(_pieces(text))
    language = language_of(piece for piece, sort in pieces if sort is _Sort.WORD)
    return Terms(
        terms=[
            sys.intern(stem(piece, language) if sort is _Sort.WORD else piece)
            for piece, sort in pieces
        ],
        language=language,
    )


def asked_by(query: str, languages: Collection[str] = (DEFAULT,)) -> list[tuple[str, ...]]:
    """Return what a question asks for: terms, each with what else it may be called.

    A short question seldom tells its language. So each of its words is looked up as every language
    would have it that texts were indexed in.

    Args:
        query: The question.
        languages: Those that texts were indexed in.
    """
    asked = [
        tuple(dict.fromkeys(stem(piece, language) for language in sorted(languages)))
        if sort is _Sort.WORD
        else (piece,)
        for piece, sort in _pieces(query)
    ]
    return list(dict.fromkeys(asked))


def _pieces(text: str) -> Iterator[tuple[str, _Sort]]:
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    for written in _WRITTEN.finditer(folded):
        whole = written.group()
        if whole.isascii() and whole.isalpha():  # Most are; the rest takes longer.
            yield whole[:_LONGEST], _Sort.WORD
            continue
        parts = 0
        has_unspaced = False
        for part in _PART.finditer(whole):
            parts += 1
            if part.lastgroup == "unspaced":
                has_unspaced = True
                yield from _pairs(part.group())
            elif part.lastgroup == "word":
                yield part.group()[:_LONGEST], _Sort.WORD
            else:
                yield part.group()[:_LONGEST], _Sort.LITERAL
        is_form = parts > 1 and not has_unspaced and _FORM.search(whole) is not None
        if is_form and len(whole) <= _LONGEST:
            yield whole, _Sort.LITERAL


def _pairs(run: str) -> Iterable[tuple[str, _Sort]]:
    units: list[str] = _UNIT.findall(run)
    for unit in units:
        if len(units) == 1 or _MEANS_ALONE.match(unit):
            yield unit, _Sort.LITERAL
    for first, second in itertools.pairwise(units):
        yield first + second, _Sort.LITERAL
