"""The text arm: BM25 over the texts of a scope, brought up to date one text at a time."""

from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

K1: Final = 0.9
B: Final = 0.4
"""Source: Trotman, Jia and Crane, "Towards an Efficient and Effective Search Engine", 2012."""

Slots = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]


class _Postings:
    """Where a term stands: slots and how often, in the order they came, what is dropped too."""

    __slots__ = ("counts", "live", "slots")

    def __init__(self) -> None:
        self.slots = array("i")
        self.counts = array("i")
        self.live = 0


class LexicalArm:
    """BM25 over texts that stand in slots, numbered in the order they were added.

    A slot is used once: what replaces a text stands in a new one. `put` and `drop` cost their own
    text, a question the postings of its terms. What is dropped stays in the postings, counting for
    nothing, until `renumber`.
    """

    def __init__(self) -> None:
        self._postings: dict[str, _Postings] = {}
        self._terms: dict[int, tuple[str, ...]] = {}
        self._lengths = array("i")
        self._live_length = 0

    def put(self, slot: int, terms: Sequence[str]) -> None:
        """Add a text by its terms; `slot` is the number of slots given out so far."""
        counts = Counter(terms)
        for term, count in counts.items():
            postings = self._postings.get(term)
            if postings is None:
                postings = self._postings[term] = _Postings()
            postings.slots.append(slot)
            postings.counts.append(count)
            postings.live += 1
        self._terms[slot] = tuple(counts)
        self._lengths.append(len(terms))
        self._live_length += len(terms)

    def drop(self, slot: int) -> None:
        """Take a text out: it counts towards nothing any more."""
        for term in self._terms.pop(slot):
            postings = self._postings[term]
            postings.live -= 1
            if not postings.live:
                del self._postings[term]
        self._live_length -= self._lengths[slot]

    def renumber(self, kept: Slots) -> None:
        """Give the slots in `kept`, those not dropped, the numbers 0, 1, 2…."""
        numbers = np.full(len(self._lengths), -1, np.int32)
        numbers[kept] = np.arange(len(kept), dtype=np.int32)
        for postings in self._postings.values():
            new = numbers[np.frombuffer(postings.slots, np.int32)]
            counts = np.frombuffer(postings.counts, np.int32)[new >= 0]
            postings.slots = array("i", new[new >= 0].tobytes())
            postings.counts = array("i", counts.tobytes())
        self._lengths = array("i", np.frombuffer(self._lengths, np.int32)[kept].tobytes())
        self._terms = {int(numbers[slot]): terms for slot, terms in self._terms.items()}

    def rarity(self, names: Sequence[str]) -> float:
        """Return what a term weighs by any of its names: the rarer the more, unheard of the most.

        Args:
            names: Terms of which a text has one at most.
        """
        live = sum(self._postings[name].live for name in names if name in self._postings)
        return float(np.log1p((len(self._terms) - live + 0.5) / (live + 0.5)))

    def scores(self, names: Sequence[str]) -> tuple[Slots, Scores]:
        """Return where a term stands by any of its names, and the BM25 score of each for it.

        Each slot is there once; dropped ones may be among them, with any score.

        Source: Lù, "BM25S", 2024, the form of Lucene.

        Args:
            names: Terms of which a text has one at most.
        """
        held = [self._postings[name] for name in names if name in self._postings]
        if not held:
            return np.empty(0, np.int64), np.empty(0)
        slots = np.concatenate([np.frombuffer(one.slots, np.int32) for one in held])
        counts = np.concatenate([np.frombuffer(one.counts, np.int32) for one in held])
        average = self._live_length / len(self._terms)
        lengths = np.frombuffer(self._lengths, np.int32)[slots]
        scores = self.rarity(names) * counts / (counts + K1 * (1 - B + B * lengths / average))
        return slots.astype(np.int64), scores
