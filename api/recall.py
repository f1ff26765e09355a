"""Reading back: searches that return records, contexts that return what goes into a prompt."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter
from pydantic import AwareDatetime, Field, JsonValue
from pymongo.errors import PyMongoError

from api.chunks import chunk_of
from api.contexts import STM, Source, Wish, build, without_memory
from api.naming import Named, refused
from api.parts import Call, Called
from pipeline.errors import FilterError
from pipeline.reading import filters
from pipeline.reading.contexts import Style
from pipeline.reading.filters import Filter
from pipeline.reading.index import Mode
from pipeline.reading.trivial import needs_no_memory
from pipeline.reading.wanted import Wanted
from schemas.memory import Kind
from schemas.project import Indexed, Leg, MetadataType, ProjectSettings

Json = dict[str, Any]
SourceName = Literal["stm", "semantic", "episodic", "procedural", "taxonomic"]
Text = Annotated[str, Field(min_length=1, max_length=20_000)]
RECENT: Final = 10
"""How many texts of recent context a request may have."""
_LEGS: Final = {Mode.TEXT: Leg.TEXT, Mode.SEMANTIC: Leg.VECTOR, Mode.HYBRID: Leg.BOTH}
"""What each mode needs of the index of a source that is filtered."""
_NOT_LISTED: Final = (
    "stm is no source of this project: list short_term in metadata_partition_index of its settings"
)


class SearchBody(Named):
    """What is looked for."""

    query: Text = Field(examples=["travel preferences"])
    mode: Mode | None = None
    """None: `hybrid`; `semantic` where a `similarity_threshold` is given."""
    top_k: int = Field(default=50, ge=1, le=200)
    domain: str | None = None
    tags: list[str] | None = None
    similarity_threshold: float = 0.0
    """The lowest score, of the mode; 0: none."""
    metadata_filter: dict[str, JsonValue] | None = None
    include_history: bool = False
    """Whether what is not current any more is found too."""
    as_of: AwareDatetime | None = None
    """What was current then is found, and nothing else."""
    query_timestamp: AwareDatetime | None = None
    """When it is asked, if that is not now."""


class TypedSearchBody(SearchBody):
    """What is looked for, and among which kind of memory."""

    type: Kind = Field(examples=["semantic"])


class _ContextBody(Named):
    """What every context is asked for with."""

    query: Text = Field(examples=["What did we decide?"])
    recent_context: Annotated[list[Text], Field(max_length=RECENT)] = Field(
        default_factory=list[str]
    )
    """What was said just before, the oldest first: it is looked for too."""
    query_timestamp: AwareDatetime | None = None
    """When it is asked, if that is not now."""
    max_tokens: int | None = Field(default=None, ge=1)
    format_style: Style | None = None
    include_memories: bool = False
    skip_trivial: bool = False
    """Whether a greeting and the like gets an empty context, and nothing is searched."""
    fail_open: bool = False
    """Whether an empty context is wanted, and no error, where nothing can be read."""


class ContextBody(_ContextBody):
    """What a context is to be about, from sources that are all searched alike."""

    mode: Mode = Mode.HYBRID
    top_k: int = Field(default=50, ge=1, le=200)
    metadata_filter: dict[str, JsonValue] | None = None
    enabled_sources: list[SourceName] | None = None


class SourceSpec(Named):
    """How one source is searched."""

    source: SourceName
    mode: Mode = Mode.SEMANTIC
    metadata_filter: dict[str, JsonValue] | None = None
    top_k: int = Field(default=20, ge=1, le=200)


class SourcesBody(_ContextBody):
    """What a context is to be about, and how each of its sources is searched."""

    sources: Annotated[list[SourceSpec], Field(min_length=1, max_length=5)] = Field(
        examples=[[{"source": "stm", "mode": "text"}, {"source": "semantic", "mode": "hybrid"}]]
    )
    rerank: bool = False


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
        named = body.enabled_sources
        wanted = _filter(body.metadata_filter, None)
        specs = [
            SourceSpec(source=source, mode=body.mode, top_k=body.top_k)
            for source in (sorted(set(named)) if named else ("episodic", "semantic"))
        ]
        sources = [_source(spec, body, call, wanted=wanted) for spec in specs]
        return await _context(body, sources, call, rerank=False)

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
        sources = await _declared(body, call)
        return await _context(body, sources, call, rerank=body.rerank)

    return routes


def _search_of(kind: Kind) -> Any:
    async def search(body: SearchBody, call: Called) -> Json:
        return await _search(body, kind, call)

    search.__doc__ = f"Return the {kind} memories that answer a query best."
    return search


async def _search(body: SearchBody, kind: Kind, call: Call) -> Json:
    # The conversation of an episode is part of its search; other kinds belong to none.
    session = body.session_id if kind is Kind.EPISODIC else None
    threshold = body.similarity_threshold or None
    mode = body.mode or (Mode.HYBRID if threshold is None else Mode.SEMANTIC)
    wanted = Wanted(
        filter=_filter(body.metadata_filter, None),
        session_id=session,
        domain=body.domain if kind is Kind.TAXONOMIC else None,
        tags=tuple(body.tags or ()) if kind is Kind.PROCEDURAL else (),
        history=body.include_history,
        as_of=body.as_of,
    )
    scope = call.caller.reads(body, session_id=session)
    searcher = call.parts.searcher
    query = await searcher.understood(body.query, {mode}, moment=body.query_timestamp)
    found = await searcher.memories(
        scope,
        [kind],
        query,
        mode=mode,
        limit=body.top_k,
        wanted=wanted,
        threshold=threshold,
    )
    return {
        "memories": [chunk_of(hit.item, hit.score) for hit in found.hits],
        "count": len(found.hits),
        "effective_mode": found.effective_mode,
        "error": found.error,
    }


async def _context(
    body: ContextBody | SourcesBody, sources: Sequence[Source], call: Call, *, rerank: bool
) -> Any:
    wish = Wish(
        query=body.query,
        recent=tuple(body.recent_context),
        moment=body.query_timestamp,
        max_tokens=body.max_tokens,
        style=body.format_style or Style.OPENAI,
        rerank=rerank,
        include_memories=body.include_memories,
        fail_open=body.fail_open,
    )
    if body.skip_trivial and needs_no_memory(body.query):
        return without_memory(wish, sources, skipped="trivial")
    return await build(wish, sources, call)


async def _declared(body: SourcesBody, call: Call) -> list[Source]:
    """Return the sources of a request, as its project's settings have them.

    Raises:
        FilterError: A filter names what is not declared, or can't be used with its source.
        pymongo.errors.PyMongoError: The settings can't be read, and something is filtered by.
    """
    try:
        settings = (await call.parts.projects.applied(call.caller.project(body))).settings
    except PyMongoError as failure:
        if not body.fail_open:
            raise
        # Without the settings nobody can tell what may be filtered by; nothing is read anyway.
        why = type(failure).__name__
        return [
            _source(spec, body, call, wanted=filters.EVERYTHING, missing=why)
            for spec in body.sources
        ]
    return [
        _source(
            spec,
            body,
            call,
            wanted=_declared_filter(spec, settings),
            missing=_unlisted(spec, settings),
        )
        for spec in body.sources
    ]


def _source(
    spec: SourceSpec, body: Named, call: Call, *, wanted: Filter, missing: str | None = None
) -> Source:
    if spec.source != STM:
        scope = call.caller.reads(body)
    elif body.session_id is None:
        scope = None
    else:
        scope = call.caller.reads(body, session_id=body.session_id)
    return Source(
        name=spec.source,
        scope=scope,
        mode=spec.mode,
        top_k=spec.top_k,
        wanted=wanted,
        missing=missing,
    )


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


def _indexed(source: SourceName) -> Indexed:
    return Indexed.SHORT_TERM if source == STM else Indexed(source)
