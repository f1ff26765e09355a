"""Searching: what of a scope answers a query best.

Identity and filters are in the database's queries: in the one that says what may be scored, where
anything narrows it, and in the last, which decides what is returned and with which content. In
between an index that is kept in memory scores (`pipeline.reading.cache`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Generic, Protocol, TypeVar

import structlog

from pipeline.embedding.ports import ActiveModel, Embedder, Purpose, Refused, Vector, Vectors
from pipeline.failing.failures import classify
from pipeline.ports.clocks import ServerTime
from pipeline.reading.cache import CachedIndex, IndexCache, Question, Scored
from pipeline.reading.filters import EVERYTHING, Filter
from pipeline.reading.index import Hit, Mode
from pipeline.reading.memories import Memory, key_of
from pipeline.reading.native import NativeMemories, NativeTurns, SearchServer
from pipeline.reading.ports import Narrowed, RecordReads, TurnReads
from pipeline.reading.tracking import Embedded, MemoryIndex, TurnIndex
from pipeline.reading.wanted import Wanted
from schemas.identity import ReadScope
from schemas.memory import RecordKind
from schemas.record import Record
from schemas.turn import Turn

CACHED_ENTRIES: Final = 100_000
"""How many memories and turns one process keeps indexed."""
EMBEDDING_PATIENCE: Final = timedelta(seconds=5)
"""How long a reader waits for the vector of a query."""
_MORE: Final = 4
"""How many times as many are asked for where the last query left too few."""
_OTHER_MODEL: Final = "another_model_is_active"
ALL_CURRENT: Final = Wanted()

log = structlog.get_logger(__name__)

Item = TypeVar("Item", Memory, Turn)


class Index(Protocol):
    """What scores the texts of a scope: an index in memory, or the database itself."""

    async def search(self, question: Question) -> Scored:
        """Return what answers best.

        Raises:
            pymongo.errors.PyMongoError: It can't be asked.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What is looked for, understood as far as it could be."""

    text: str
    vector: Vector | None = None
    error: str | None = None
    """Why it has none though it should: a stable code."""
    moment: datetime | None = None
    """When it is asked, if that is not now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match(Generic[Item]):
    """A memory or a turn that was found."""

    item: Item
    score: float
    """By words above 0, by meaning the cosine, by both the fused score; 0 for what fills up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found(Generic[Item]):
    """What answers a query in a scope."""

    hits: list[Match[Item]]
    """Best first; of equal scores the newest first."""
    effective_mode: Mode
    error: str | None
    """Why it was not searched as asked, if something failed: a stable code."""


class Searcher:
    """Searches memories and turns, for any number of callers at once."""

    def __init__(
        self,
        *,
        records: RecordReads,
        turns: TurnReads,
        server_time: ServerTime,
        command_timeout: timedelta,
        embedder: Embedder | None = None,
        vectors: Vectors | None = None,
        active: ActiveModel | None = None,
        server: SearchServer | None = None,
        cached_entries: int = CACHED_ENTRIES,
    ) -> None:
        """Make one that has read nothing yet.

        Args:
            records: The records.
            turns: The turns.
            server_time: The database's clock.
            command_timeout: After what the database gives up a write.
            embedder: Makes the vectors of queries; none: words decide, whatever is asked for.
            vectors: The vectors of contents.
            active: Which model's vectors are searched; none: the embedder's.
            server: Searches by itself; none: indexes in memory do.
            cached_entries: How many memories and turns are kept indexed.
        """
        self._records = records
        self._turns = turns
        self._server_time = server_time
        self._command_timeout = command_timeout
        self._embedder = embedder
        self._embedded = None
        if embedder is not None and vectors is not None:
            self._embedded = Embedded(vectors=vectors, model=embedder.model)
        self._active = active
        self._server = server
        self._model: str | None = None
        """The active model, as it was last read: with another, vectors may be there anew."""
        self._cache: IndexCache[CachedIndex] = IndexCache(entries=cached_entries)

    async def understood(
        self, text: str, modes: Collection[Mode], *, moment: datetime | None = None
    ) -> Query:
        """Return a query as `memories` and `turns` take it, with its vector where a mode wants one.

        An embedder that is down, slow or refuses the text is no failure: the query has none then,
        and says why.

        Args:
            text: What is looked for.
            modes: In what ways it will be.
            moment: When it is asked, if that is not now.

        Raises:
            pymongo.errors.PyMongoError: Which model is active can't be read.
        """
        if self._embedder is None or set(modes) <= {Mode.TEXT}:
            return Query(text=text, moment=moment)
        if self._active is not None:
            self._model = await self._active.active()
        if self._model not in (None, self._embedder.model):
            return Query(text=text, moment=moment, error=_OTHER_MODEL)
        vector = await _vector_of(self._embedder, text)
        if isinstance(vector, str):
            log.warning("query_not_embedded", reason=vector)
            return Query(text=text, moment=moment, error=vector)
        return Query(text=text, moment=moment, vector=vector)

    async def memories(
        self,
        scope: ReadScope,
        kinds: Sequence[RecordKind],
        query: Query,
        *,
        mode: Mode,
        limit: int,
        wanted: Wanted = ALL_CURRENT,
        threshold: float | None = None,
    ) -> Found[Memory]:
        """Return the memories of a scope and of some kinds that answer best.

        Args:
            scope: Whose; an agent or a session in it is that of the content.
            kinds: Of which kinds, at least one.
            query: What is looked for.
            mode: What decides.
            limit: How many at most.
            wanted: What narrows it.
            threshold: The lowest score, of the mode. Where words decide though it was of another,
                whatever shares a word reaches it.

        Raises:
            pymongo.errors.PyMongoError: The database does not answer.
        """
        condition = wanted.condition()
        # What an index is of must never change of a record, and these may.
        base = scope.model_copy(update={"agent_id": None, "session_id": None})
        among: set[str] | None = None
        if base != scope or not wanted.is_all_current:
            among = {
                key_of(record_id, run["assertions"][0])
                async for record_id, run in self._records.runs_of(scope, kinds, condition)
                if wanted.passes(run)
            }

        async def confirmed(keys: Sequence[str]) -> dict[str, Memory]:
            ids = {key.rpartition(":")[0] for key in keys}
            records = await self._records.of_ids(ids, scope, kinds, condition)
            return {memory.key: memory for memory in _wanted_of(records, wanted)}

        def index() -> CachedIndex:
            return MemoryIndex(
                scope=base,
                kinds=kinds,
                history=wanted.needs_history,
                records=self._records,
                embedded=self._embedded,
                server_time=self._server_time,
                command_timeout=self._command_timeout,
            )

        key = (base, tuple(kinds), wanted.needs_history, self._model)
        return await self._search(
            self._cache.of(key, index)
            if self._server is None
            else NativeMemories(
                server=self._server,
                records=self._records,
                scope=base,
                kinds=kinds,
                history=wanted.needs_history,
                model=self._searched_model,
            ),
            _asked(query, mode, limit, among),
            confirmed,
            threshold=threshold,
            error=None if mode is Mode.TEXT else query.error,
        )

    async def turns(
        self,
        scope: ReadScope,
        query: Query,
        *,
        mode: Mode,
        limit: int,
        wanted: Filter = EVERYTHING,
    ) -> Found[Turn]:
        """Return the turns of a conversation that answer best.

        Args:
            scope: Names a session id.
            query: What is looked for.
            mode: What decides.
            limit: How many at most.
            wanted: What they must pass.

        Raises:
            pymongo.errors.PyMongoError: The database does not answer.
        """
        narrowed = Narrowed(scope=scope, filter=wanted)
        among = None if wanted == EVERYTHING else await self._turns.passing(narrowed)

        async def confirmed(keys: Sequence[str]) -> dict[str, Turn]:
            turns = await self._turns.of_ids(keys, narrowed)
            return {turn.turn_id: turn for turn in turns}

        def index() -> CachedIndex:
            return TurnIndex(scope=scope, turns=self._turns, embedded=self._embedded)

        return await self._search(
            self._cache.of((scope, "turns", self._model), index)
            if self._server is None
            else NativeTurns(server=self._server, scope=scope, model=self._searched_model),
            _asked(query, mode, limit, among),
            confirmed,
            threshold=None,
            error=None if mode is Mode.TEXT else query.error,
        )

    @property
    def _searched_model(self) -> str | None:
        return self._model or (None if self._embedder is None else self._embedder.model)

    async def _search(
        self,
        index: Index,
        question: Question,
        confirmed: Callable[[Sequence[str]], Awaitable[dict[str, Item]]],
        *,
        threshold: float | None,
        error: str | None,
    ) -> Found[Item]:
        """Ask for more until the last query leaves enough, or there is no more."""
        limit, asked = question.limit, question.limit
        looked_at: set[str] = set()
        matches: list[Match[Item]] = []
        while True:
            scored = await index.search(replace(question, limit=asked))
            self._cache.trim()
            hits = [
                hit
                for hit in scored.hits
                if hit.key not in looked_at and _reaches(hit, scored, question, threshold)
            ]
            stand = await confirmed([hit.key for hit in hits]) if hits else {}
            matches.extend(
                Match(item=stand[hit.key], score=hit.score) for hit in hits if hit.key in stand
            )
            looked_at.update(hit.key for hit in scored.hits)
            if len(matches) >= limit or len(scored.hits) < asked:
                return Found(
                    hits=matches[:limit], effective_mode=scored.mode, error=error or scored.error
                )
            asked *= _MORE


async def _vector_of(embedder: Embedder, text: str) -> Vector | str:
    """Return the vector of a query, or why there is none."""
    try:
        async with asyncio.timeout(EMBEDDING_PATIENCE.total_seconds()):
            (vector,) = await embedder.embed([text], Purpose.QUERY)
    except Exception as error:  # whatever its client raises: that is its port's contract
        return classify(error).reason
    return vector.reason if isinstance(vector, Refused) else vector


def _asked(query: Query, mode: Mode, limit: int, among: Collection[str] | None) -> Question:
    return Question(
        text=query.text,
        vector=query.vector,
        mode=mode,
        limit=limit,
        among=among,
        moment=query.moment,
    )


def _reaches(hit: Hit, scored: Scored, question: Question, threshold: float | None) -> bool:
    """Return whether a score is high enough."""
    if threshold is None:
        return True
    if scored.mode is Mode.TEXT and question.mode is not Mode.TEXT:
        return hit.score > 0
    return hit.score >= threshold


def _wanted_of(records: Sequence[Record], wanted: Wanted) -> list[Memory]:
    return [
        Memory(record=record, run=run)
        for record in records
        for run in record.runs
        if wanted.passes_run(run)
    ]
