"""The text arm: BM25 over the texts of a scope, brought up to date one text at a time."""

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

K1: Final = 1.5
B: Final = 0.75

Scores = npt.NDArray[np.float64]


class _Postings:
    """Where a term stands: slots and how often, in the order they came, what is dropped too."""

    __slots__ = ("counts", "live", "slots")

    def __init__(self) -> None:
        self.slots = array("i")
        self.counts = array("i")
        self.live = 0


class LexicalArm:
    """BM25 over texts that stand in numbered slots.

    A slot is used once: what replaces a text stands in a new one. `put` and `drop` cost their own
    text, a question the postings of its terms. What is dropped stays in the postings, unseen,
    until `renumber`.
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

    def renumber(self, kept: npt.NDArray[np.int64]) -> None:
        """Give the slots in `kept` the numbers 0, 1, 2…, and throw away what was dropped."""
        numbers = np.full(len(self._lengths), -1, np.int32)
        numbers[kept] = np.arange(len(kept), dtype=np.int32)
        for postings in self._postings.values():
            new = numbers[np.frombuffer(postings.slots, np.int32)]
            counts = np.frombuffer(postings.counts, np.int32)[new >= 0]
            postings.slots = array("i", new[new >= 0].tobytes())
            postings.counts = array("i", counts.tobytes())
        lengths = np.frombuffer(self._lengths, np.int32)[kept]
        self._lengths = array("i", lengths.tobytes())
        self._terms = {int(numbers[slot]): terms for slot, terms in self._terms.items()}

    def scores(self, weights: Mapping[str, float]) -> Scores:
        """Return how well each slot answers terms of these weights; dropped ones at random.

        Source: Lù, "BM25S", 2024, the form of Lucene; k1 and b as its defaults.
        """
        found = np.zeros(len(self._lengths))
        texts = len(self._terms)
        if not self._live_length:
            return found
        lengths = np.frombuffer(self._lengths, np.int32)
        average = self._live_length / texts
        for term, weight in weights.items():
            postings = self._postings.get(term)
            if postings is None:
                continue
            slots = np.frombuffer(postings.slots, np.int32)
            counts = np.frombuffer(postings.counts, np.int32)
            rarity = np.log1p((texts - postings.live + 0.5) / (postings.live + 0.5))
            long = K1 * (1 - B + B * lengths[slots] / average)
            found[slots] += weight * rarity * counts / (counts + long)
        return found
