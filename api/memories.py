"""Typed memories: saved, looked up, listed, corrected and deleted by agents themselves."""

from typing import Annotated, Any, Final, cast

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field, JsonValue

from api.chunks import entry_of
from api.naming import Caller, Named, refused
from api.parts import Call, Called, Storing
from api.texts import Said
from pipeline.errors import UnknownMemoryError
from pipeline.reading.memories import Memory, memories_of
from pipeline.saving.direct import Author, Draft
from schemas.identity import Visibility
from schemas.memory import (
    SAVED_CHARACTERS,
    Content,
    EpisodicContent,
    Kind,
    ProceduralContent,
    SemanticContent,
    TaxonomicContent,
)
from schemas.record import RunState
from schemas.turn import Metadata

Json = dict[str, Any]
Text = Annotated[Said, Field(max_length=SAVED_CHARACTERS)]
Remark = Annotated[str, Field(max_length=1000)]
Names = Annotated[list[str], Field(max_length=50)]
Objects = Annotated[list[Metadata], Field(max_length=100)]
"""Objects that can be stored: not too deep, not too large, numbers of 64 bits."""
_KEPT: Final = (RunState.CURRENT, RunState.ENDED)
"""A procedure that can be read, and one that was deleted softly."""
_SCORES: Final = {"citation_score", "llm_confidence_score", "combined_score"}
"""An episode's metadata that holds all three is taken for an older format's and dropped (M-127)."""


class SaveBody(Named):
    """What every save has."""

    metadata: Metadata | None = None
    source: str = Field(default="agent", min_length=1, max_length=256)


class SemanticBody(SaveBody):
    """A fact with its label."""

    label: Said = Field(max_length=200, examples=["seat-preference"])
    text: Text = Field(examples=["Prefers window seats."])
    upsert: bool = False
    """Replace what the label held."""


class SemanticPatch(SaveBody):
    """What is to be otherwise about a fact."""

    text: Text | None = None


class EpisodicBody(SaveBody):
    """Something that happened."""

    title: Said = Field(max_length=200, examples=["Renewal call"])
    content: Text = Field(examples=["The user renewed for a year."])
    summary_text: Annotated[str, Field(max_length=SAVED_CHARACTERS)] | None = None
    participants: Names | None = None
    tags: Names | None = None


class TaxonomicBody(SaveBody):
    """What a term means in a domain."""

    domain: Said = Field(max_length=120, examples=["billing"])
    term: Said = Field(max_length=200, examples=["dunning"])
    definition: Text = Field(examples=["Reminding of unpaid invoices."])
    related_terms: Names | None = None


class ProceduralFields(SaveBody):
    """What a procedure may have beside its name."""

    steps: Objects | None = None
    resources: Objects | None = None
    allowed_tools: Names | None = None
    compatibility: Remark | None = None
    license: Remark | None = None
    trigger_conditions: Names | None = None
    tags: Names | None = None
    extraction_source: Remark | None = None
    source_format: Remark | None = None
    source_path: Remark | None = None


class ProceduralBody(ProceduralFields):
    """A way of doing something."""

    procedure: Said = Field(max_length=200, examples=["refund"])
    description: Text = Field(examples=["How to refund an order."])
    content: Text = Field(examples=["Check the order, then refund it."])


class ProceduralPatch(ProceduralFields):
    """What is to be otherwise about a procedure."""

    description: Text | None = None
    content: Text | None = None


class SemanticQuery(Named):
    """Which facts."""

    label: str | None = None
    limit: int = Field(default=20, ge=1, le=200)


class EpisodicQuery(Named):
    """Which episodes, the newest first."""

    limit: int = Field(default=20, ge=1, le=200)


class TaxonomicQuery(Named):
    """Which terms."""

    domain: str | None = None
    term: str | None = None
    limit: int = Field(default=200, ge=1, le=1000)


class ProceduralQuery(Named):
    """Which procedures."""

    procedure: str | None = None
    include_deleted: bool = False
    limit: int = Field(default=200, ge=1, le=1000)


class DeleteQuery(Named):
    """How to delete."""

    soft: bool = True
    """A procedure stays in the history and can be read with `include_deleted`."""


class DeleteResult(BaseModel):
    """How many were deleted."""

    deleted_count: int
    acknowledged: bool = True


def router() -> APIRouter:
    """Return the routes of the four kinds."""
    routes = APIRouter(tags=["memories"])
    _semantic(routes)
    _episodic(routes)
    _taxonomic(routes)
    _procedural(routes)
    return routes


def _semantic(routes: APIRouter) -> None:
    @routes.post("/semantic", status_code=201)
    async def create(body: SemanticBody, call: Storing) -> Json:
        """Save a fact; with `upsert` it takes the place of what its label held."""
        content = SemanticContent(attribute=body.label, label=body.label, text=body.text)
        saved = await _save(body, call, Kind.SEMANTIC, content, upsert=body.upsert)
        return _created(saved, label=body.label)

    @routes.get("/semantic")
    async def look_up(query: Annotated[SemanticQuery, Query()], call: Called) -> Json:
        """List facts, those of one label if one is named."""
        found = await _read(query, call, Kind.SEMANTIC)
        if query.label is not None:
            wanted = query.label.casefold()
            found = [one for one in found if _label(one).casefold() == wanted]
        return _entries(found[: query.limit])

    @routes.get("/semantic/{memory_id}")
    async def get(memory_id: str, query: Annotated[Named, Query()], call: Called) -> Json:
        """Return one fact."""
        return entry_of(await _one(memory_id, query, call, Kind.SEMANTIC))

    @routes.patch("/semantic/{memory_id}")
    async def correct(memory_id: str, body: SemanticPatch, call: Storing) -> Json:
        """Correct a fact: what it said before stays in its history as wrong."""
        old = await _owned(memory_id, body, call, Kind.SEMANTIC)
        content = old.run.content
        if body.text is not None:
            content = content.model_copy(update={"text": body.text})
        return await _correct(old, content, old.run.fields, body, call)

    @routes.delete("/semantic/{memory_id}")
    async def delete(
        memory_id: str, query: Annotated[DeleteQuery, Query()], call: Called
    ) -> DeleteResult:
        """Forget a fact."""
        return await _forget(memory_id, query, call, Kind.SEMANTIC)


def _episodic(routes: APIRouter) -> None:
    @routes.post("/episodic", status_code=201)
    async def create(body: EpisodicBody, call: Storing) -> Json:
        """Save an episode of a conversation."""
        if body.session_id is None:
            raise refused("session_id", "is required")
        if (body.metadata or {}).keys() >= _SCORES:
            body = body.model_copy(update={"metadata": None})
        content = EpisodicContent(
            title=body.title,
            summary=body.summary_text or body.content,
            participants=tuple(body.participants or ()),
        )
        fields = _given(content=body.content, tags=cast("list[JsonValue] | None", body.tags))
        saved = await _save(body, call, Kind.EPISODIC, content, fields=fields)
        return _created(saved, title=body.title)

    @routes.get("/episodic")
    async def look_up(query: Annotated[EpisodicQuery, Query()], call: Called) -> Json:
        """List episodes, the newest first; those of one conversation if one is named."""
        found = await _read(query, call, Kind.EPISODIC, session_id=query.session_id)
        return _entries(found[: query.limit])

    @routes.delete("/episodic/{memory_id}")
    async def delete(
        memory_id: str, query: Annotated[DeleteQuery, Query()], call: Called
    ) -> DeleteResult:
        """Forget an episode."""
        return await _forget(memory_id, query, call, Kind.EPISODIC)


def _taxonomic(routes: APIRouter) -> None:
    @routes.post("/taxonomic", status_code=201)
    async def create(body: TaxonomicBody, call: Storing) -> Json:
        """Save what a term means; the whole project reads it unless said otherwise."""
        content = TaxonomicContent(
            domain=body.domain,
            term=body.term,
            definition=body.definition,
            related_terms=tuple(body.related_terms or ()),
        )
        saved = await _save(
            body, call, Kind.TAXONOMIC, content, default=Visibility.ORG, upsert=True
        )
        return _created(saved, domain=body.domain, term=body.term)

    @routes.get("/taxonomic")
    async def look_up(query: Annotated[TaxonomicQuery, Query()], call: Called) -> Json:
        """List terms, those of one domain or of one name if asked for."""
        found = [
            one
            for one in await _read(query, call, Kind.TAXONOMIC)
            if isinstance(one.run.content, TaxonomicContent)
            and query.domain in (None, "", one.run.content.domain)
            and query.term in (None, "", one.run.content.term)
        ]
        return _entries(found[: query.limit])

    @routes.get("/taxonomic/domains")
    async def domains(query: Annotated[Named, Query()], call: Called) -> Json:
        """List the domains there are terms of."""
        found = await _read(query, call, Kind.TAXONOMIC)
        contents = [one.run.content for one in found]
        named = {each.domain for each in contents if isinstance(each, TaxonomicContent)}
        return {"domains": sorted(named)}

    @routes.delete("/taxonomic/{memory_id}")
    async def delete(
        memory_id: str, query: Annotated[DeleteQuery, Query()], call: Called
    ) -> DeleteResult:
        """Forget what a term means."""
        return await _forget(memory_id, query, call, Kind.TAXONOMIC)


def _procedural(routes: APIRouter) -> None:
    @routes.post("/procedural", status_code=201)
    async def create(body: ProceduralBody, call: Storing) -> Json:
        """Save a procedure. It always makes a new one: a correction is a PATCH."""
        content = _procedure(body.procedure, body.description, body)
        saved = await _save(body, call, Kind.PROCEDURAL, content, fields=_own(body, body.content))
        return _created(saved, procedure=body.procedure)

    @routes.get("/procedural")
    async def look_up(query: Annotated[ProceduralQuery, Query()], call: Called) -> Json:
        """List procedures, those of one name if one is given; deleted ones if asked for."""
        states = _KEPT[: 1 + query.include_deleted]
        found = await _read(query, call, Kind.PROCEDURAL, states=states)
        if query.procedure:
            found = [one for one in found if _name(one) == query.procedure]
        return _entries(found[: query.limit])

    @routes.get("/procedural/{memory_id}")
    async def get(
        memory_id: str,
        query: Annotated[ProceduralQuery, Query()],
        call: Called,
    ) -> Json:
        """Return one procedure."""
        states = _KEPT[: 1 + query.include_deleted]
        return entry_of(await _one(memory_id, query, call, Kind.PROCEDURAL, states=states))

    @routes.patch("/procedural/{memory_id}")
    async def correct(memory_id: str, body: ProceduralPatch, call: Storing) -> Json:
        """Correct a procedure: how it was before stays in its history as wrong."""
        old = await _owned(memory_id, body, call, Kind.PROCEDURAL)
        held = old.run.content
        if not isinstance(held, ProceduralContent):
            raise TypeError("a procedural record holds procedures")
        content = _procedure(held.name, body.description or held.description, body, held)
        fields = {**(old.run.fields or {}), **(_own(body, body.content) or {})}
        return await _correct(old, content, fields or None, body, call)

    @routes.delete("/procedural/{memory_id}")
    async def delete(
        memory_id: str, query: Annotated[DeleteQuery, Query()], call: Called
    ) -> DeleteResult:
        """Delete a procedure: it stays in the history, unless `soft` is false."""
        if query.soft:
            memory = await _one(memory_id, query, call, Kind.PROCEDURAL)
            await call.parts.saver.end(memory, _author(query, call.caller))
            return DeleteResult(deleted_count=1)
        return await _forget(memory_id, query, call, Kind.PROCEDURAL)


def _procedure(
    name: str, description: str, body: ProceduralFields, held: ProceduralContent | None = None
) -> ProceduralContent:
    """Return a procedure with what is given, else with what it held."""
    steps = tuple(_step(step) for step in body.steps or ())
    return ProceduralContent(
        name=name,
        description=description,
        steps=steps if body.steps is not None or held is None else held.steps,
        trigger_conditions=tuple(body.trigger_conditions)
        if body.trigger_conditions is not None
        else held.trigger_conditions
        if held
        else (),
        tools=tuple(body.allowed_tools)
        if body.allowed_tools is not None
        else held.tools
        if held
        else (),
    )


def _step(step: dict[str, JsonValue]) -> str:
    """Return a step in words: its description, whatever its author calls it, else all it says."""
    for name in ("description", "action", "text", "name"):
        said = step.get(name)
        if isinstance(said, str) and said.strip():
            return said
    return "; ".join(f"{name}: {value}" for name, value in step.items())


def _own(body: ProceduralFields, content: str | None) -> dict[str, JsonValue] | None:
    """Return what a procedure has beyond its content's fields, as it was given."""
    names = ("steps", "resources", "compatibility", "license", "tags")
    names += ("extraction_source", "source_format", "source_path")
    return _given(content=content, **{name: getattr(body, name) for name in names})


def _given(**fields: JsonValue | None) -> dict[str, JsonValue] | None:
    return {name: value for name, value in fields.items() if value is not None} or None


def _created(memory: Memory, **named: str) -> Json:
    return {"id": memory.memory_id, **named, "has_embedding": False, "acknowledged": True}


def _entries(found: list[Memory]) -> Json:
    return {"entries": [entry_of(memory) for memory in found], "count": len(found)}


def _label(memory: Memory) -> str:
    content = memory.run.content
    return content.label if isinstance(content, SemanticContent) else ""


def _name(memory: Memory) -> str:
    content = memory.run.content
    return content.name if isinstance(content, ProceduralContent) else ""


def _author(body: SaveBody | DeleteQuery, caller: Caller) -> Author:
    return Author(
        source=body.source if isinstance(body, SaveBody) else "agent",
        agent_id=body.agent_id or caller.agent_id,
        session_id=body.session_id,
        execution_id=caller.execution_id,
    )


async def _save(
    body: SaveBody,
    call: Call,
    kind: Kind,
    content: Content,
    *,
    fields: dict[str, JsonValue] | None = None,
    default: Visibility = Visibility.PRIVATE,
    upsert: bool = False,
) -> Memory:
    draft = Draft(
        scope=call.caller.writes(body, default),
        kind=kind,
        content=content,
        fields=fields,
        metadata=body.metadata or None,
    )
    return await call.parts.saver.save(draft, _author(body, call.caller), upsert=upsert)


async def _read(
    query: Named,
    call: Call,
    kind: Kind,
    *,
    session_id: str | None = None,
    states: tuple[RunState, ...] = (RunState.CURRENT,),
) -> list[Memory]:
    """Return the memories of a kind in a scope, those last said first."""
    scope = call.caller.reads(query, session_id=session_id)
    records = [record async for record in call.parts.records.of_scope(scope, kinds=[kind])]
    found = memories_of(records, states)
    if session_id is not None:
        found = [one for one in found if session_id in one.run.sessions]
    return sorted(found, key=lambda one: one.last_said, reverse=True)


async def _one(
    memory_id: str,
    query: Named,
    call: Call,
    kind: Kind,
    *,
    states: tuple[RunState, ...] = (RunState.CURRENT,),
) -> Memory:
    found = await call.parts.saver.find(memory_id, call.caller.reads(query), states)
    if found.kind is not kind:
        raise UnknownMemoryError(memory_id)
    return found


async def _owned(memory_id: str, body: SaveBody, call: Call, kind: Kind) -> Memory:
    """Return a memory that is to be changed; a visibility in the body is the new one, no filter."""
    owner = Named(org_id=body.org_id, project_id=body.project_id, user_id=body.user_id)
    return await _one(memory_id, owner, call, kind)


async def _correct(
    old: Memory,
    content: Content,
    fields: dict[str, JsonValue] | None,
    body: SaveBody,
    call: Call,
) -> Json:
    scope = old.record.scope
    if body.visibility is not None:
        scope = scope.model_copy(update={"visibility": body.visibility})
    draft = Draft(
        scope=scope,
        kind=old.kind,
        content=content,
        fields=fields,
        metadata=old.run.metadata if body.metadata is None else body.metadata or None,
    )
    return entry_of(await call.parts.saver.correct(old, draft, _author(body, call.caller)))


async def _forget(memory_id: str, query: DeleteQuery, call: Call, kind: Kind) -> DeleteResult:
    # Also what is history only: nobody reads it by default, and it is somebody's all the same.
    memory = await _one(memory_id, query, call, kind, states=tuple(RunState))
    await call.parts.forgetter.forget(memory)
    return DeleteResult(deleted_count=1)
