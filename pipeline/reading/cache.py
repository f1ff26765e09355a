"""Indexes of scopes, kept in memory and brought up to date before each search.

They only score. What is returned, and with which content, is decided by a last query of the
database (`pipeline.reading.searching`), so a stale entry can mislead nobody.
"""

import asyncio
from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final, Generic, TypeVar

from pipeline.offloading import aside
from pipeline.reading.index import Entry, Hit, Mode, ScopeIndex, Vector

LARGE: Final = 2000
"""Entries from which on they are scored in a thread: some milliseconds of work."""

_Place = tuple[datetime, int, str]
"""What entries are put in order by: when it was said, where in its conversation, its key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What an index is asked."""

    text: str
    vector: Vector | None
    mode: Mode
    limit: int
    among: Collection[str] | None = None
    moment: datetime | None = None
    """When it is asked, if that is not now: what was said later counts as older than the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What an index answers."""

    hits: list[Hit]
    """Best first. Of equal scores the newest first."""
    mode: Mode
    """What decided."""
    error: str | None = None
    """Why something was left out that the mode asks for: a stable code."""


class CachedIndex(ABC):
    """The index of one scope.

    `is_embedded_at_will` says whether somebody may not want vectors of it at all: without any,
    semantic goes by words there as hybrid does.

    Concurrency: one search at a time brings it up to date and scores; who waited for one that
    began after he came does not read again.
    """

    is_embedded_at_will: ClassVar[bool] = False

    def __init__(self) -> None:
        self._index = ScopeIndex()
        self._places: dict[str, _Place] = {}
        self._oldest_first: list[_Place] = []
        self._with_vector: set[str] = set()
        self._lock = asyncio.Lock()
        self._asked = 0
        self._fresh = 0

    def __len__(self) -> int:
        return len(self._places)

    async def search(self, question: Question) -> Scored:
        """Bring it up to date, then score.

        Semantic and hybrid without a vector of the question, and hybrid without a vector of any
        entry, go by words alone. What is asked in these modes and leaves room is filled up with
        what is newest, at score 0; but semantic by vectors has nothing that has none.

        Raises:
            pymongo.errors.PyMongoError: It can't be brought up to date.
        """
        self._asked += 1
        # By itself: a thread that scores can't be cut off, whatever becomes of who asked.
        task = asyncio.create_task(self._searched(question, self._asked))
        task.add_done_callback(_look_at)
        return await asyncio.shield(task)

    async def _searched(self, question: Question, number: int) -> Scored:
        async with self._lock:
            if self._fresh < number:
                reached = self._asked
                await self._refresh()
                self._fresh = reached
            if len(self) < LARGE:
                return self._scored(question)
            return await asyncio.to_thread(self._scored, question)

    @abstractmethod
    async def _refresh(self) -> None:
        """Read what changed. Cut off, it is done again by the next search."""

    async def _replace(self, gone: Sequence[str], entries: Sequence[Entry]) -> None:
        """Take some out and put some in."""
        texts = [entry.text for entry in entries]
        await aside(texts, lambda: self._replaced(gone, entries))

    def _replaced(self, gone: Sequence[str], entries: Sequence[Entry]) -> None:
        for key in gone:
            self._drop(key)
        for entry in entries:
            self._drop(entry.key)
            self._index.put(entry)
            place = (entry.said_at, entry.place, entry.key)
            self._places[entry.key] = place
            insort(self._oldest_first, place)
            if entry.vector is not None:
                self._with_vector.add(entry.key)

    def _drop(self, key: str) -> None:
        place = self._places.pop(key, None)
        if place is None:
            return
        self._index.drop(key)
        self._with_vector.discard(key)
        del self._oldest_first[bisect_left(self._oldest_first, place)]

    def _scored(self, question: Question) -> Scored:
        mode = question.mode
        wants_any = mode is not Mode.SEMANTIC or self.is_embedded_at_will
        has_vectors = question.vector is not None and not (wants_any and not self._with_vector)
        effective = mode if has_vectors else Mode.TEXT
        moment, limit = question.moment, question.limit
        hits = self._index.search(
            question.text,
            question.vector if has_vectors else None,
            effective,
            limit if moment is None else len(self),
            question.among,
        )
        if moment is not None:
            hits.sort(key=lambda hit: self._order_at(moment, self._places[hit.key]))
            hits.sort(key=lambda hit: -hit.score)
            hits = hits[:limit]
        if mode is not Mode.TEXT and effective is not Mode.SEMANTIC and len(hits) < limit:
            hits.extend(self._newest(question, {hit.key for hit in hits}))
        return Scored(hits=hits, mode=effective)

    def _newest(self, question: Question, found: set[str]) -> list[Hit]:
        """Return what is newest of what was not found, as much as there is room for."""
        room = question.limit - len(found)
        places = reversed(self._oldest_first)
        if question.moment is not None:
            moment = question.moment
            places = iter(sorted(places, key=lambda place: self._order_at(moment, place)))
        among = question.among if question.among is not None else self._places
        hits: list[Hit] = []
        for _, _, key in places:
            if len(hits) == room:
                break
            if key not in found and key in among:
                hits.append(Hit(key=key, score=0.0))
        return hits

    @staticmethod
    def _order_at(moment: datetime, place: _Place) -> tuple[bool, float]:
        """Return what puts the newest at a moment first, and what was said later last."""
        said_at = place[0]
        return said_at > moment, -said_at.timestamp()


def _look_at(task: asyncio.Task[Scored]) -> None:
    if not task.cancelled():
        task.exception()  # told to whoever waits; nobody may


Index = TypeVar("Index", bound=CachedIndex)


class IndexCache(Generic[Index]):
    """Indexes by what they are of; those that were not used for the longest time go first.

    Args:
        entries: How many entries all together may hold; one that holds more by itself stays until
            another is used.
    """

    def __init__(self, *, entries: int) -> None:
        self._bound = entries
        self._indexes: OrderedDict[Hashable, Index] = OrderedDict()

    def of(self, key: Hashable, make: Callable[[], Index]) -> Index:
        """Return the index of a key, made where there is none."""
        index = self._indexes.get(key)
        if index is None:
            index = self._indexes[key] = make()
        self._indexes.move_to_end(key)
        return index

    def trim(self) -> None:
        """Drop what was not used for the longest time, until the bound is kept."""
        # An empty one is something to keep, too.
        held = sum(len(index) + 1 for index in self._indexes.values())
        while held > self._bound and len(self._indexes) > 1:
            _, dropped = self._indexes.popitem(last=False)
            held -= len(dropped) + 1
