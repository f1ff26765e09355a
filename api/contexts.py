"""Building a context: each source searched in its way, ranked together, put into a budget."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pymongo.errors import PyMongoError

from api.chunks import chunk_of, turn_chunk
from api.errors import unavailable
from api.parts import Call
from pipeline.failing.failures import classify
from pipeline.offloading import aside
from pipeline.reading.contexts import Piece, Style, selected, texts_of, together, written
from pipeline.reading.filters import Filter
from pipeline.reading.index import Mode
from pipeline.reading.reranking import Reranker
from pipeline.reading.searching import Found, Query
from pipeline.reading.wanted import Wanted
from pipeline.tokens import count, count_aside
from schemas.identity import ReadScope
from schemas.memory import Kind
from schemas.turn import Turn

Json = dict[str, Any]
STM: Final = "stm"
RECENT_TOKENS: Final = 500
"""How much of recent context goes into a query."""
RERANKED: Final = 100
"""How many of the best a reranker is shown; the rest follows as it was."""
_STRATEGY: Final = "client_rrf"
"""What the order by the ranks of the sources is called."""
_NO_RERANKER: Final = "not_configured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One source, and how it is searched."""

    name: str
    scope: ReadScope | None
    """None: there is nothing to be searched."""
    mode: Mode
    top_k: int
    wanted: Filter
    missing: str | None = None
    """Why the project has no such source, if it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a context is to be."""

    query: str
    recent: tuple[str, ...] = ()
    """What was said before the query, the oldest first."""
    moment: datetime | None = None
    max_tokens: int | None = None
    style: Style = Style.OPENAI
    rerank: bool = False
    include_memories: bool = False
    fail_open: bool = False
    """Whether nothing found is better than an error, where nothing can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    source: Source
    pieces: Sequence[Piece] = ()
    effective_mode: Mode | None = None
    """None where it could not be searched."""
    error: str | None = None

    def told(self) -> Json:
        """Return it as it is sent; no index is ever built lazily, so nothing is `retryable`."""
        return {
            "source": self.source.name,
            "requested_mode": self.source.mode,
            "effective_mode": self.effective_mode or self.source.mode,
            "count": len(self.pieces),
            "error": self.error,
            "retryable": False,
        }


async def build(wish: Wish, sources: Sequence[Source], call: Call) -> Any:
    """Return the answer to a request for a context."""
    began = time.perf_counter()
    try:
        query = await _query(wish, sources, call)
    except PyMongoError as failure:
        outcomes = [_failed(source, failure) for source in sources]
    else:
        outcomes = await asyncio.gather(*(_searched(source, query, call) for source in sources))
    if all(outcome.effective_mode is None for outcome in outcomes) and not wish.fail_open:
        return unavailable(_why_none(outcomes))
    retrieved = time.perf_counter()
    found = [outcome.pieces for outcome in outcomes]
    texts = [piece.text for pieces in found for piece in pieces]
    ranked = await aside(texts, lambda: together(found))
    strategy, rerank_error = _STRATEGY, None
    if wish.rerank:
        ranked, strategy, rerank_error = await _reranked(wish.query, ranked, call.parts.reranker)
    style = wish.style
    chosen = await aside(texts, lambda: selected(ranked, style, wish.max_tokens, count))
    context = written(chosen, style)
    metadata: Json = {
        "token_count": await count_aside(texts_of(context)),
        "memory_counts": {
            source.name: sum(piece.source == source.name for piece in chosen) for source in sources
        },
        "timing": {
            "retrieval": retrieved - began,
            "formatting": time.perf_counter() - retrieved,
        },
        "ranking_strategy": strategy,
        "source_outcomes": [outcome.told() for outcome in outcomes],
    }
    if rerank_error is not None:
        metadata["rerank_error"] = rerank_error
    chunks = [dict(piece.chunk) for piece in chosen] if wish.include_memories else None
    return {"formatted_context": context, "metadata": metadata, "selected_memories": chunks}


def without_memory(wish: Wish, sources: Sequence[Source], *, skipped: str) -> Json:
    """Return the answer to a request that needs no memory: nothing is searched."""
    return {
        "formatted_context": written((), wish.style),
        "metadata": {
            "token_count": 0,
            "memory_counts": {source.name: 0 for source in sources},
            "timing": {"retrieval": 0.0, "formatting": 0.0},
            "ranking_strategy": _STRATEGY,
            "source_outcomes": [
                _Outcome(source=source, effective_mode=source.mode).told() for source in sources
            ],
            "skipped": skipped,
        },
        "selected_memories": [] if wish.include_memories else None,
    }


async def _query(wish: Wish, sources: Sequence[Source], call: Call) -> Query:
    """Return what is looked for: the request, and what was said just before it."""
    recent: list[str] = []
    left = RECENT_TOKENS
    for text in reversed(wish.recent):
        left -= await count_aside((text,))
        if left < 0:
            break
        recent.insert(0, text)
    text = "\n".join((wish.query, *recent))
    modes = {source.mode for source in sources}
    return await call.parts.searcher.understood(text, modes, moment=wish.moment)


async def _searched(source: Source, query: Query, call: Call) -> _Outcome:
    if source.missing is not None:
        return _Outcome(source=source, error=source.missing)
    if source.scope is None:
        return _Outcome(source=source, effective_mode=source.mode)
    try:
        if source.name == STM:
            turns = await call.parts.searcher.turns(
                source.scope, query, mode=source.mode, limit=source.top_k, wanted=source.wanted
            )
            return _found(source, turns, [_turn(hit.item, hit.score) for hit in turns.hits])
        memories = await call.parts.searcher.memories(
            source.scope,
            [Kind(source.name)],
            query,
            mode=source.mode,
            limit=source.top_k,
            wanted=Wanted(filter=source.wanted),
        )
    except PyMongoError as failure:
        return _failed(source, failure)
    pieces = [
        Piece(
            source=source.name,
            text=hit.item.text,
            said_at=hit.item.last_said,
            chunk=chunk_of(hit.item, hit.score),
        )
        for hit in memories.hits
    ]
    return _found(source, memories, pieces)


def _turn(turn: Turn, score: float) -> Piece:
    return Piece(
        source=STM,
        text=turn.content,
        said_at=turn.effective_at,
        place=turn.seq,
        role=turn.role.value,
        chunk=turn_chunk(turn, score),
    )


def _found(source: Source, found: Found[Any], pieces: Sequence[Piece]) -> _Outcome:
    return _Outcome(
        source=source,
        pieces=pieces,
        effective_mode=found.effective_mode,
        error=found.error,
    )


def _failed(source: Source, failure: PyMongoError) -> _Outcome:
    return _Outcome(source=source, error=type(failure).__name__)


async def _reranked(
    query: str, pieces: list[Piece], reranker: Reranker | None
) -> tuple[list[Piece], str, str | None]:
    """Return pieces in a reranker's order, what that is called, and why it is not its order."""
    if reranker is None:
        return pieces, _STRATEGY, _NO_RERANKER
    shown = [piece for piece in pieces if piece.text.strip()][:RERANKED]
    if not shown:
        return pieces, _STRATEGY, None
    try:
        order = await reranker.order(query, [piece.text for piece in shown])
    except Exception as error:  # whatever its client raises: that is its port's contract
        return pieces, _STRATEGY, classify(error).reason
    best = [shown[place] for place in order]
    ids = {id(piece) for piece in best}
    return best + [piece for piece in pieces if id(piece) not in ids], reranker.name, None


def _why_none(outcomes: Sequence[_Outcome]) -> str:
    missing = [outcome.source.missing for outcome in outcomes]
    if all(missing):
        return str(missing[0])
    return "no source of the context could be read: try again in a moment"
