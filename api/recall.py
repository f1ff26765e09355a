"""Reading back: searches that return records, contexts that return what goes into a prompt."""

import time
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter
from pydantic import Field, JsonValue
from pymongo.errors import PyMongoError

from api.chunks import chunk_of, turn_chunk
from api.errors import unavailable
from api.naming import Named, refused
from api.parts import Call, Called
from pipeline import filters
from pipeline.contexts import Piece, Style, together, within, written
from pipeline.errors import FilterError
from pipeline.filters import Filter
from pipeline.offloading import aside
from pipeline.reading.memories import Memory, memories_of, scores
from pipeline.tokens import count
from schemas.memory import Kind, ProceduralContent, TaxonomicContent
from schemas.project import Indexed, Leg, MetadataType, ProjectSettings

Json = dict[str, Any]
TURNS: Final = 200
"""The most turns of a conversation that are looked through."""
STM: Final = "stm"
Source = Literal["stm", "semantic", "episodic", "procedural", "taxonomic"]
Mode = Literal["text", "semantic", "hybrid"]
_MODE: Final = "text"
"""The one way of matching there is in this version; others are answered by it, and it is said."""
_LEGS: Final[dict[Mode, Leg]] = {"text": Leg.TEXT, "semantic": Leg.VECTOR, "hybrid": Leg.BOTH}
"""What each mode needs of the index of a source that is filtered."""
_NOT_LISTED: Final = (
    "stm is no source of this project: list short_term in metadata_partition_index of its settings"
)


class SearchBody(Named):
    """What is looked for."""

    query: str = Field(min_length=1, max_length=20_000, examples=["travel preferences"])
    top_k: int = Field(default=50, ge=1, le=200)
    domain: str | None = None
    tags: list[str] | None = None
    similarity_threshold: float = 0.0
    metadata_filter: dict[str, JsonValue] | None = None


class TypedSearchBody(SearchBody):
    """What is looked for, and among which kind of memory."""

    type: Kind = Field(examples=["semantic"])


class ContextBody(Named):
    """What a context is to be about, from sources that are all searched alike."""

    query: str = Field(min_length=1, max_length=20_000, examples=["What should I avoid?"])
    top_k: int = Field(default=50, ge=1, le=200)
    max_tokens: int | None = Field(default=None, ge=1)
    format_style: Style | None = None
    include_memories: bool = False
    metadata_filter: dict[str, JsonValue] | None = None
    enabled_sources: list[Source] | None = None


class SourceSpec(Named):
    """How one source is searched."""

    source: Source
    mode: Mode = "semantic"
    metadata_filter: dict[str, JsonValue] | None = None
    top_k: int = Field(default=20, ge=1, le=200)


class SourcesBody(Named):
    """What a context is to be about, and how each of its sources is searched."""

    query: str = Field(min_length=1, max_length=20_000, examples=["What did we decide?"])
    sources: Annotated[list[SourceSpec], Field(min_length=1, max_length=5)] = Field(
        examples=[[{"source": "stm", "mode": "text"}, {"source": "semantic", "mode": "hybrid"}]]
    )
    rerank: bool = False
    max_tokens: int | None = Field(default=None, ge=1)
    format_style: Style | None = None
    include_memories: bool = False


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter(tags=["recall"])

    @routes.post("/search")
    async def search(body: TypedSearchBody, call: Called) -> Json:
        """Return the memories of one kind that answer a query best."""
        return await _search(body, body.type, call)

    for kind in Kind:
        routes.post(f"/retrieval/{kind}")(_search_of(kind))

    async def context(body: ContextBody, call: Called) -> Any:
        """Return one context from sources that are all searched alike.

        Without `enabled_sources` these are episodic and semantic. A filter's unknown keys match
        nothing here; `context-from-sources` refuses them.
        """
        sources = body.enabled_sources
        specs = [
            SourceSpec(source=source, metadata_filter=body.metadata_filter, top_k=body.top_k)
            for source in (sorted(set(sources)) if sources else ("episodic", "semantic"))
        ]
        return await _context(body, specs, call, settings=None)

    for path in ("/context", "/retrieval/context"):
        routes.post(path)(context)

    @routes.post("/retrieval/context-from-sources")
    async def context_from_sources(body: SourcesBody, call: Called) -> Any:
        """Return one context from sources that are each searched in their own way."""
        named = [spec.source for spec in body.sources]
        if len(set(named)) < len(named):
            raise refused("sources", "must name each source once")
        if STM in named and body.session_id is None:
            raise refused("session_id", "is required where stm is a source")
        project = await call.parts.projects.applied(call.caller.project(body))
        return await _context(body, body.sources, call, settings=project.settings)

    return routes


def _search_of(kind: Kind) -> Any:
    async def search(body: SearchBody, call: Called) -> Json:
        return await _search(body, kind, call)

    search.__doc__ = f"Return the {kind} memories that answer a query best."
    return search


async def _search(body: SearchBody, kind: Kind, call: Call) -> Json:
    # The conversation of an episode is part of its search; other kinds belong to none.
    session = body.session_id if kind is Kind.EPISODIC else None
    wanted = _filter(body.metadata_filter, None)
    found = await _memories(body, kind, session, wanted, call)
    found = [memory for memory in found if _is_of(memory, body.domain, body.tags)]
    ranked = await _ranked(body.query, found)
    chunks = [
        chunk_of(memory, score) for memory, score in ranked if score >= body.similarity_threshold
    ][: body.top_k]
    return {"memories": chunks, "count": len(chunks)}


def _is_of(memory: Memory, domain: str | None, tags: list[str] | None) -> bool:
    content = memory.run.content
    if domain and isinstance(content, TaxonomicContent) and content.domain != domain:
        return False
    if tags and isinstance(content, ProceduralContent):
        own = (memory.run.fields or {}).get("tags")
        return isinstance(own, list) and bool(set(tags) & {str(tag) for tag in own})
    return True


async def _context(
    body: ContextBody | SourcesBody,
    specs: list[SourceSpec],
    call: Call,
    *,
    settings: ProjectSettings | None,
) -> Any:
    """Answer; by a project's settings, or without any where every path may be filtered by."""
    began = time.perf_counter()
    wanted = [
        _filter(spec.metadata_filter, None)
        if settings is None
        else _declared_filter(spec, settings)
        for spec in specs
    ]
    found: list[list[Piece]] = []
    outcomes: list[Json] = []
    for spec, passing in zip(specs, wanted, strict=True):
        error = None if settings is None else _unlisted(spec, settings)
        try:
            pieces = await _pieces(body, spec, passing, call) if error is None else []
        except PyMongoError as failure:
            pieces, error = [], type(failure).__name__
        found.append(pieces)
        outcomes.append(
            {
                "source": spec.source,
                "requested_mode": spec.mode,
                "effective_mode": _MODE,
                "count": len(pieces),
                "error": error,
                "retryable": False,
            }
        )
    if all(outcome["error"] for outcome in outcomes):
        return unavailable(_why_none(outcomes))
    retrieved = time.perf_counter()
    texts = (piece.text for pieces in found for piece in pieces)
    selected = await aside(texts, lambda: within(together(found), body.max_tokens, _count))
    text = written(selected, body.format_style or Style.OPENAI)
    counts = dict.fromkeys((spec.source for spec in specs), 0)
    for piece in selected:
        counts[piece.source] += 1
    metadata = {
        "token_count": _count(text) if isinstance(text, str) else _count_all(text),
        "memory_counts": counts,
        "timing": {
            "retrieval": retrieved - began,
            "formatting": time.perf_counter() - retrieved,
        },
        "ranking_strategy": "client_rrf",
        "source_outcomes": outcomes,
    }
    chunks = [dict(piece.chunk) for piece in selected] if body.include_memories else None
    return {"formatted_context": text, "metadata": metadata, "selected_memories": chunks}


async def _pieces(
    body: ContextBody | SourcesBody,
    spec: SourceSpec,
    wanted: Filter,
    call: Call,
) -> list[Piece]:
    """Return the best of one source, best first."""
    if spec.source == STM:
        scope = call.caller.reads(body, session_id=body.session_id)
        turns = await call.parts.turns.of_scope(scope, TURNS) if body.session_id else []
        chunks = [(turn, turn_chunk(turn, None)) for turn in turns]
        passing = [
            (turn, chunk) for turn, chunk in chunks if filters.matches(wanted, chunk["metadata"])
        ]
        said = [turn.content for turn, _ in passing]
        found = await aside(said, lambda: scores(body.query, said))
        best = sorted(range(len(passing)), key=lambda place: (-found[place], -place))
        return [
            Piece(
                source=STM,
                text=passing[place][0].content,
                order=(passing[place][0].effective_at, passing[place][0].seq),
                chunk=passing[place][1] | {"similarity_score": found[place]},
                role=passing[place][0].role.value,
            )
            for place in best[: spec.top_k]
        ]
    memories = await _memories(body, Kind(spec.source), None, wanted, call)
    return [
        Piece(
            source=spec.source,
            text=memory.text,
            order=memory.last_said,
            chunk=chunk_of(memory, score),
        )
        for memory, score in (await _ranked(body.query, memories))[: spec.top_k]
    ]


async def _memories(
    named: Named, kind: Kind, session: str | None, wanted: Filter, call: Call
) -> list[Memory]:
    """Return what is current of a kind in a scope and passes a filter."""
    scope = call.caller.reads(named, session_id=session)
    records = [record async for record in call.parts.records.of_scope(scope, kinds=[kind])]
    return [
        memory
        for memory in memories_of(records)
        if (session is None or session in memory.run.sessions)
        and filters.matches(wanted, chunk_of(memory, None)["metadata"])
    ]


async def _ranked(query: str, memories: list[Memory]) -> list[tuple[Memory, float]]:
    """Return memories best first; those that share no word with the query last, newest first."""
    newest = sorted(memories, key=lambda memory: memory.last_said, reverse=True)
    texts = [memory.text for memory in newest]
    found = await aside(texts, lambda: scores(query, texts))
    return sorted(zip(newest, found, strict=True), key=lambda each: -each[1])


def _filter(
    sent: dict[str, JsonValue] | None, declared: Mapping[str, MetadataType] | None
) -> Filter:
    return filters.EVERYTHING if not sent else filters.parse(sent, declared)


def _declared_filter(spec: SourceSpec, settings: ProjectSettings) -> Filter:
    """Return the filter of a source.

    Raises:
        FilterError: It names what is not declared, or the source can't be filtered in its mode.
    """
    found = _filter(spec.metadata_filter, settings.filterable)
    source, leg = _indexed(spec.source), _LEGS[spec.mode]
    if filters.own_paths(found) and not settings.serves(source, leg):
        raise FilterError(
            f"source {spec.source} can't be filtered in mode {spec.mode}: list `{leg}` for {source}"
            " in metadata_partition_index"
        )
    return found


def _unlisted(spec: SourceSpec, settings: ProjectSettings) -> str | None:
    """Return why a source is not there; none if it is."""
    is_listed = any(settings.serves(Indexed.SHORT_TERM, leg) for leg in (Leg.TEXT, Leg.VECTOR))
    return None if spec.source != STM or is_listed else _NOT_LISTED


def _indexed(source: Source) -> Indexed:
    return Indexed.SHORT_TERM if source == STM else Indexed(source)


def _why_none(outcomes: list[Json]) -> str:
    if all(outcome["error"] == _NOT_LISTED for outcome in outcomes):
        return _NOT_LISTED
    return "no source of the context could be read: try again in a moment"


def _count(text: str) -> int:
    return count((text,))


def _count_all(messages: list[Json]) -> int:
    return count([str(message["content"]) for message in messages])
