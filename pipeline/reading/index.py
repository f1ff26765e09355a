"""What one scope holds, in memory, to be searched by words, by meaning, or by both."""

from array import array
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from pipeline.reading.fusing import fused, ranks_of
from pipeline.reading.lexical import LexicalArm
from pipeline.reading.semantic import SemanticArm, Vector
from pipeline.reading.terms import terms_of

_FEW_SLOTS: Final = 64


class Mode(StrEnum):
    """What decides whether an entry answers."""

    TEXT = "text"
    SEMANTIC = "semantic"
    HYBRID = "hybrid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A text to be found."""

    key: str
    """The id of a memory or a turn."""
    text: str
    said_at: datetime
    """Of those that answer equally well, the newest comes first."""
    vector: Vector | None = None
    thread: str | None = None
    """A conversation's key: its entries are each other's neighbours."""
    place: int = 0
    """Where it stands in the thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """An entry that was found."""

    key: str
    score: float
    """Of the mode: above 0 for text, the cosine for semantic, the fused score for hybrid."""


class ScopeIndex:
    """The entries of one scope; not to be used by two threads at once.

    Keeping it up to date costs what changed: nothing is built anew for one entry. What is dropped
    or replaced leaves the working memory at latest when as much is dropped as is left.
    """

    def __init__(self) -> None:
        self._lexical = LexicalArm()
        self._semantic = SemanticArm()
        self._slots: dict[str, int] = {}
        self._keys: list[str | None] = []
        self._said = array("d")

    def __len__(self) -> int:
        return len(self._slots)

    def put(self, entry: Entry) -> None:
        """Add an entry, in the place of what had its key.

        Raises:
            ValueError: Its vector can't be compared with those here; nothing is changed.
        """
        if entry.vector is not None:
            self._semantic.check(entry.vector)
        self.drop(entry.key)
        slot = len(self._keys)
        self._slots[entry.key] = slot
        self._keys.append(entry.key)
        self._said.append(entry.said_at.timestamp())
        self._lexical.put(slot, terms_of(entry.text))
        if entry.vector is not None:
            self._semantic.put(slot, entry.vector)

    def drop(self, key: str) -> None:
        """Take an entry out; nothing happens where there is none."""
        slot = self._slots.pop(key, None)
        if slot is None:
            return
        self._keys[slot] = None
        self._lexical.drop(slot)
        self._semantic.drop(slot)
        if len(self._keys) > _FEW_SLOTS + 2 * len(self._slots):
            self._renumber()

    def search(
        self,
        query: str,
        vector: Vector | None,
        mode: Mode,
        limit: int,
        among: Collection[str] | None = None,
    ) -> list[Hit]:
        """Return what answers a question, best first.

        Args:
            query: The question.
            vector: Its vector; without one, hybrid goes by words only.
            mode: What decides.
            limit: How many at most.
            among: The only keys that may be returned.

        Raises:
            ValueError: Nothing to go by in semantic mode, or a vector that can't be compared.
        """
        if mode is Mode.SEMANTIC and vector is None:
            raise ValueError("a semantic search needs the query's vector")
        allowed = self._allowed(among)
        rankings: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]] = []
        if mode is not Mode.SEMANTIC:
            scores = self._lexical.scores(Counter(terms_of(query)))
            rankings.append(self._ranked(scores, allowed & (scores > 0)))
        if mode is not Mode.TEXT and vector is not None:
            scores = self._semantic.scores(vector, len(self._keys))
            rankings.append(self._ranked(scores, allowed & ~np.isnan(scores)))
        if mode is Mode.HYBRID:
            scores = fused(ranks_of(order, len(self._keys)) for order, _ in rankings)
            rankings = [self._ranked(scores, scores > 0)]
        order, scores = rankings[0]
        return [
            Hit(key=key, score=float(scores[slot]))
            for slot in order[:limit]
            if (key := self._keys[int(slot)]) is not None
        ]

    def _allowed(self, among: Collection[str] | None) -> npt.NDArray[np.bool_]:
        allowed = np.zeros(len(self._keys), np.bool_)
        keys = self._slots if among is None else among
        slots = [slot for key in keys if (slot := self._slots.get(key)) is not None]
        allowed[slots] = True
        return allowed

    def _ranked(
        self, scores: npt.NDArray[np.float64], eligible: npt.NDArray[np.bool_]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        slots = np.flatnonzero(eligible)
        said = np.array(self._said)[slots]
        keys = np.array([self._keys[slot] for slot in slots])
        return slots[np.lexsort((keys, -said, -scores[slots]))], scores

    def _renumber(self) -> None:
        kept = np.flatnonzero([key is not None for key in self._keys])
        self._lexical.renumber(kept)
        self._semantic.renumber(kept)
        self._keys = [self._keys[slot] for slot in kept]
        self._said = array("d", np.array(self._said)[kept].tobytes())
        self._slots = {key: slot for slot, key in enumerate(self._keys) if key is not None}
