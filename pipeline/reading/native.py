"""Searching by MongoDB's own `$search` and `$vectorSearch`, behind the port of the plain indexes.

It only scores, as those do: what is returned is decided by the searcher's last query, with the ids
and the whole scope. An arm whose index is missing or still being built is left out, and it is said.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import Final, Protocol

import numpy as np
from pymongo.errors import PyMongoError

from pipeline.embedding.filling import TURN
from pipeline.embedding.ports import content_hash
from pipeline.reading.cache import Question, Scored
from pipeline.reading.fusing import fused
from pipeline.reading.index import Hit, Mode
from pipeline.reading.memories import Memory, memories_of
from pipeline.reading.ports import RecordReads
from pipeline.reading.search_pipelines import (
    MOST,
    TEXT_INDEX,
    Document,
    by_meaning,
    cosine_of,
    has_no_turns,
    records_by_words,
    turns_by_words,
    vector_index,
)
from pipeline.reading.terms import terms_of
from schemas.identity import ReadScope
from schemas.memory import RecordKind
from schemas.record import RunState

SPARE: Final = 4
"""How many times as many are asked for as wanted: some records hold several contents."""

Scores = dict[str, float]
"""By key of a memory or a turn."""


class SearchIndexError(PyMongoError):
    """No index that a search needs can be asked; it names why, by a stable code."""


class SearchServer(Protocol):
    """A MongoDB that searches by itself."""

    async def found(self, collection: str, pipeline: list[Document]) -> list[Document]:
        """Return what a pipeline finds, best first.

        Raises:
            pymongo.errors.PyMongoError: It can't be asked.
        """
        ...

    async def lacks(self, collection: str, name: str) -> str | None:
        """Return `search_index_missing` or `search_index_building`; none where it can be asked.

        An index that is not there answers with nothing, and does not fail.
        """
        ...


class NativeMemories:
    """The memories of a scope and of some kinds; as `CachedIndex`, with nothing kept."""

    def __init__(
        self,
        *,
        server: SearchServer,
        records: RecordReads,
        scope: ReadScope,
        kinds: Sequence[RecordKind],
        history: bool,
        model: str | None,
    ) -> None:
        """Ask nothing yet; arguments as for `MemoryIndex`, and whose vectors are searched."""
        self._server = server
        self._records = records
        self._scope = scope
        self._kinds = kinds
        self._states = tuple(RunState) if history else (RunState.CURRENT,)
        self._model = model

    async def search(self, question: Question) -> Scored:
        """Return what answers best; what leaves room is not filled up.

        Raises:
            SearchIndexError: No index can be asked that the mode needs.
            pymongo.errors.PyMongoError: The database does not answer.
        """
        names = [kind.value for kind in self._kinds]
        ids = None
        if question.among is not None:
            ids = sorted({key.rpartition(":")[0] for key in question.among})
        said: dict[str, datetime] = {}

        async def by_words(limit: int) -> Scores:
            rows = await _each(
                ids,
                lambda some: self._server.found(
                    "records",
                    records_by_words(question.text, self._scope, names, some, limit),
                ),
            )
            scores = {str(row["_id"]): float(row["score"]) for row in rows}
            memories = await self._memories(scores, said)
            return _worded(question.text, memories, scores)

        async def by_vectors(limit: int) -> Scores:
            vector, model = question.vector, self._model
            if vector is None or model is None:
                return {}
            rows = await _each(
                ids,
                lambda some: self._server.found(
                    "vectors",
                    by_meaning(vector, model, self._scope, names, owners=some, limit=limit),
                ),
            )
            near = {(str(row["owner"]), str(row["content_hash"])): row["score"] for row in rows}
            memories = await self._memories({owner for owner, _ in near}, said)
            return {
                memory.key: cosine_of(near[place])
                for memory in memories
                if (place := (memory.record.record_id, content_hash(memory.text))) in near
            }

        return await _searched(
            self._server,
            question,
            collection="records",
            model=self._model,
            by_words=by_words,
            by_vectors=by_vectors,
            said=said,
        )

    async def _memories(self, ids: Iterable[str], said: dict[str, datetime]) -> list[Memory]:
        found = await self._records.of_ids(list(ids), self._scope, self._kinds)
        memories = memories_of(found, self._states)
        said.update((memory.key, memory.last_said) for memory in memories)
        return memories


class NativeTurns:
    """The turns of a conversation; as `CachedIndex`, with nothing kept."""

    def __init__(self, *, server: SearchServer, scope: ReadScope, model: str | None) -> None:
        """Ask nothing yet; the scope names a session id."""
        self._server = server
        self._scope = scope
        self._model = model

    async def search(self, question: Question) -> Scored:
        """Return what answers best; what leaves room is not filled up.

        Raises:
            SearchIndexError: No index can be asked that the mode needs.
            pymongo.errors.PyMongoError: The database does not answer.
        """
        if has_no_turns(self._scope):
            return Scored(hits=[], mode=question.mode)
        ids = None if question.among is None else sorted(question.among)

        async def by_words(limit: int) -> Scores:
            rows = await _each(
                ids,
                lambda some: self._server.found(
                    "turns", turns_by_words(question.text, self._scope, some, limit)
                ),
            )
            return {str(row["_id"]): float(row["score"]) for row in rows}

        async def by_vectors(limit: int) -> Scores:
            vector, model = question.vector, self._model
            if vector is None or model is None:
                return {}
            rows = await _each(
                ids,
                lambda some: self._server.found(
                    "vectors",
                    by_meaning(vector, model, self._scope, [TURN], owners=some, limit=limit),
                ),
            )
            return {str(row["owner"]): cosine_of(row["score"]) for row in rows}

        return await _searched(
            self._server,
            question,
            collection="turns",
            model=self._model,
            by_words=by_words,
            by_vectors=by_vectors,
            said={},
        )


async def _searched(
    server: SearchServer,
    question: Question,
    *,
    collection: str,
    model: str | None,
    by_words: Callable[[int], Awaitable[Scores]],
    by_vectors: Callable[[int], Awaitable[Scores]],
    said: dict[str, datetime],
) -> Scored:
    """Ask the arms of a mode that can be asked, and put together what they find."""
    error: str | None = None
    arms: dict[Mode, Callable[[int], Awaitable[Scores]]] = {}
    wants_vectors = question.mode is not Mode.TEXT
    has_vector = wants_vectors and question.vector is not None and model is not None
    if has_vector and question.vector is not None:
        lacking = await server.lacks("vectors", vector_index(len(question.vector)))
        if lacking is None:
            arms[Mode.SEMANTIC] = by_vectors
        error = lacking
    if question.mode is not Mode.SEMANTIC or Mode.SEMANTIC not in arms:
        lacking = await server.lacks(collection, TEXT_INDEX)
        if lacking is None:
            arms[Mode.TEXT] = by_words
        error = error or lacking
    if not arms:
        raise SearchIndexError(error or "")
    limit = min(MOST, SPARE * question.limit)
    if not question.text.strip() and Mode.TEXT in arms:
        arms[Mode.TEXT] = _nothing
    found = await asyncio.gather(*(ask(limit) for ask in arms.values()))
    mode = Mode.HYBRID if len(arms) > 1 else next(iter(arms))
    scores = found[0] if len(found) == 1 else _fused(found)
    if question.among is not None:
        allowed = set(question.among)
        scores = {key: score for key, score in scores.items() if key in allowed}

    def place(key: str) -> tuple[float, bool, float]:
        when = said.get(key)
        is_later = when is not None and question.moment is not None and when > question.moment
        return (-scores[key], is_later, 0.0 if when is None else -when.timestamp())

    ranked = sorted(scores, key=place)[: question.limit]
    hits = [Hit(key=key, score=scores[key]) for key in ranked]
    return Scored(hits=hits, mode=mode, error=error)


async def _nothing(limit: int) -> Scores:
    """Find nothing: the server refuses a question without words."""
    del limit
    return {}


def _fused(found: Sequence[Scores]) -> Scores:
    """Return the reciprocal rank fusion of the arms, which weigh alike."""
    keys = sorted({key for scores in found for key in scores})
    places = {key: place for place, key in enumerate(keys)}
    rankings = [
        np.array([places[key] for key in sorted(scores, key=lambda key: -scores[key])], np.int64)
        for scores in found
    ]
    return dict(
        zip(keys, fused([(ranking, 1.0) for ranking in rankings], len(keys)).tolist(), strict=True)
    )


def _worded(text: str, memories: Sequence[Memory], scores: Scores) -> Scores:
    """Return the score of each memory by its record's: which content it was, words in common tell.

    The index knows records, with all that they ever held.
    """
    asked = set(terms_of(text).terms)
    common = {memory.key: len(asked & set(terms_of(memory.text).terms)) for memory in memories}
    most: dict[str, int] = {}
    for memory in memories:
        of = memory.record.record_id
        most[of] = max(most.get(of, 0), common[memory.key])
    return {
        memory.key: scores[memory.record.record_id]
        for memory in memories
        if common[memory.key] == most[memory.record.record_id]
    }


async def _each(
    ids: Sequence[str] | None, ask: Callable[[Sequence[str] | None], Awaitable[list[Document]]]
) -> list[Document]:
    """Ask once, or once for each so many ids; scores of one index can be compared."""
    if ids is None:
        return await ask(None)
    parts = [ids[first : first + MOST] for first in range(0, len(ids), MOST)]
    return [row for rows in await asyncio.gather(*map(ask, parts)) for row in rows]
