"""What says the same again, so that a prompt has it once."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from pipeline.folding.slots import normalized

NEAR: Final = 0.9
"""Jaccard index of two sets of words from which on one may repeat the other."""
_WORD: Final = re.compile(r"\w+")
_NEGATIONS: Final = frozenset(
    {
        *("no", "not", "never", "none", "nobody", "nothing", "without", "cannot", "t"),
        *("nicht", "kein", "keine", "keinen", "nie", "niemals", "ohne"),
        *("non", "ne", "pas", "jamais", "sans", "nunca", "jamás", "sin", "não", "sem", "mai"),
        *("niet", "geen", "nooit", "zonder", "inte", "ikke", "aldrig", "bez"),
        *("не", "нет", "никогда", "без", "değil", "yok"),
    }
)
"""Words that turn a sentence round; `t` is what is left of "don't"."""

Item = TypeVar("Item")


def distinct(items: Sequence[Item], text_of: Callable[[Item], str]) -> list[Item]:
    """Return items without those that repeat one before them; best first stays best first.

    One repeats another if both have the same text, normalized, or if it is nearly the same: all
    words of one are among those of the other, these are at least `NEAR` of them, and what the
    other has more is no number and no negation. A word that stands in the place of another makes
    another statement: a name, a day, a dose.
    """
    kept: list[Item] = []
    texts: set[str] = set()
    by_size: dict[int, list[frozenset[str]]] = {}
    for item in items:
        said = text_of(item)
        text, words = normalized(said), words_of(said)
        if text in texts or _is_near_any(words, by_size):
            continue
        texts.add(text)
        by_size.setdefault(len(words), []).append(words)
        kept.append(item)
    return kept


def _is_near_any(words: frozenset[str], by_size: dict[int, list[frozenset[str]]]) -> bool:
    return any(
        is_near(words, other)
        for size, others in by_size.items()
        if min(size, len(words)) >= NEAR * max(size, len(words))
        for other in others
    )


def is_near(one: frozenset[str], other: frozenset[str]) -> bool:
    """Return whether one set of words says what the other says."""
    fewer, more = sorted((one, other), key=len)
    if not fewer <= more or len(fewer) < NEAR * len(more):
        return False
    extra = more - fewer
    return not extra & _NEGATIONS and not any(map(_has_digit, extra))


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text, folded."""
    return frozenset(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


def _has_digit(word: str) -> bool:
    return any(character.isdigit() for character in word)
