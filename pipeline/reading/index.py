"""What one scope holds, in memory, to be searched by words, by meaning, or by both."""

from array import array
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from hashlib import blake2b
from typing import Final

import numpy as np
import numpy.typing as npt

from pipeline.reading.dating import dates_asked_by, terms_of_date
from pipeline.reading.fusing import Ranking, fused, weights_of
from pipeline.reading.lexical import K1, LexicalArm
from pipeline.reading.semantic import SemanticArm, Vector
from pipeline.reading.terms import asked_by, terms_of
from pipeline.reading.threads import Threads

_FEW_SLOTS: Final = 64

Scores = npt.NDArray[np.float64]


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
    """Without one it is found by its words only."""
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

    Keeping it up to date costs what changed; nothing is built anew for one entry. What is dropped
    or replaced is seen no more at once, and leaves the working memory at latest when as much was
    dropped as is left.
    """

    def __init__(self) -> None:
        self._lexical = LexicalArm()
        self._semantic = SemanticArm()
        self._threads = Threads()
        self._slots: dict[str, int] = {}
        self._keys: list[str | None] = []
        self._alive = array("b")
        self._said = array("d")
        self._lots = array("q")
        self._newest_first: Ranking | None = None
        self._languages = Counter[str]()
        self._language: list[str] = []

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
        self._alive.append(True)
        self._said.append(entry.said_at.timestamp())
        self._lots.append(_lot(entry.key))
        self._newest_first = None
        text = terms_of(entry.text)
        self._languages[text.language] += 1
        self._language.append(text.language)
        self._lexical.put(slot, [*text.terms, *terms_of_date(entry.said_at)])
        self._threads.put(slot, entry.key, entry.thread, entry.place)
        if entry.vector is not None:
            self._semantic.put(slot, entry.vector)

    def drop(self, key: str) -> None:
        """Take an entry out; nothing happens where there is none."""
        slot = self._slots.pop(key, None)
        if slot is None:
            return
        self._keys[slot] = None
        self._alive[slot] = False
        self._languages[self._language[slot]] -= 1
        self._lexical.drop(slot)
        self._semantic.drop(slot)
        self._threads.drop(slot)
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

        What stands beside an entry in its thread helps to find it: by words, an entry may be found
        that has none of them itself; by meaning, only what has a vector.

        Args:
            query: The question.
            vector: Its vector; without one, hybrid goes by words only.
            mode: What decides.
            limit: How many at most.
            among: The only keys that may be returned.

        Raises:
            ValueError: There is no vector in semantic mode, or one that can't be compared.
        """
        if mode is Mode.SEMANTIC and vector is None:
            raise ValueError("a semantic search needs the vector of its query")
        allowed = self._allowed(among)
        if mode is Mode.TEXT or vector is None:
            scores, _ = self._by_words(query)
            if mode is Mode.HYBRID:
                scores = fused([(self._ranked(scores, allowed & (scores > 0)), 1)], len(scores))
            return self._hits(scores, allowed & (scores > 0), limit)
        near = self._threads.blended(self._semantic.scores(vector, len(self._keys)))
        if mode is Mode.SEMANTIC:
            return self._hits(near, allowed & ~np.isnan(near), limit)
        scores, explained = self._by_words(query)
        by_words = self._ranked(scores, allowed & (scores > 0))
        by_meaning = self._ranked(near, allowed & ~np.isnan(near))
        weights = weights_of(by_words, by_meaning, explained)
        both = fused(zip((by_words, by_meaning), weights, strict=True), len(scores))
        return self._hits(both, both > 0, limit)

    def _by_words(self, query: str) -> tuple[Scores, float]:
        """Return how well each slot answers by words, and how much the best of them explains.

        A term weighs by its rarity in the question as in the text, so that the filler words of a
        question decide nothing in any language.

        Source: Salton and Buckley, "Term-weighting Approaches in Automatic Text Retrieval", 1988.
        """
        found = np.zeros(len(self._keys))
        most = 0.0
        dates = [(date,) for date in dates_asked_by(query)]
        for names in asked_by(query, +self._languages) + dates:
            best = np.zeros(len(self._keys))
            rarity = self._lexical.rarity(names)
            slots, scores = self._lexical.scores(names)
            self._threads.spread(best, slots, scores * rarity)
            found += best
            most += rarity**2
        # A text of average length that has every term once.
        whole = most / (1 + K1)
        best_of_all = found[np.frombuffer(self._alive, np.bool_)].max(initial=0)
        explained = float(best_of_all) / whole if whole else 0.0
        return found, min(1.0, explained)

    def _allowed(self, among: Collection[str] | None) -> npt.NDArray[np.bool_]:
        if among is None:
            return np.array(self._alive, np.bool_)
        allowed = np.zeros(len(self._keys), np.bool_)
        allowed[[slot for key in among if (slot := self._slots.get(key)) is not None]] = True
        return allowed

    def _ranked(self, scores: Scores, eligible: npt.NDArray[np.bool_]) -> Ranking:
        newest_first = self._newest_first
        if newest_first is None:
            said = np.array(self._said)
            newest_first = self._newest_first = np.lexsort((np.array(self._lots), -said))
        slots = newest_first[eligible[newest_first]]
        return slots[np.argsort(-scores[slots], kind="stable")]

    def _hits(self, scores: Scores, eligible: npt.NDArray[np.bool_], limit: int) -> list[Hit]:
        if np.count_nonzero(eligible) > limit > 0:
            least = np.partition(scores[eligible], -limit)[-limit]
            eligible = eligible & (scores >= least)
        return [
            Hit(key=key, score=float(scores[slot]))
            for slot in self._ranked(scores, eligible)[:limit]
            if (key := self._keys[int(slot)]) is not None
        ]

    def _renumber(self) -> None:
        kept = np.flatnonzero(np.array(self._alive))
        self._lexical.renumber(kept)
        self._semantic.renumber(kept)
        self._threads.renumber(kept)
        self._keys = [self._keys[int(slot)] for slot in kept]
        self._language = [self._language[int(slot)] for slot in kept]
        self._alive = array("b", [True] * len(kept))
        self._said = array("d", np.array(self._said)[kept].tobytes())
        self._lots = array("q", np.array(self._lots)[kept].tobytes())
        self._newest_first = None
        self._slots = {key: slot for slot, key in enumerate(self._keys) if key is not None}


def _lot(key: str) -> int:
    """Return what decides between entries that answer equally well and were said at once."""
    return int.from_bytes(
        blake2b(key.encode(), digest_size=8).digest(), byteorder="big", signed=True
    )
