"""Memories of the types that a project declares itself.

Their calls name nobody: they belong to the user whose turns the caller's execution has recorded.
"""

from typing import Any

from fastapi import APIRouter
from pydantic import Field

from api.naming import Named
from api.parts import Call, Called, Storing
from api.texts import Said, Sent
from pipeline.errors import UnknownTypeError, UnsupportedError
from pipeline.reading.index import Mode
from pipeline.reading.memories import Memory
from pipeline.reading.wanted import Wanted
from pipeline.saving.custom import tags_of
from pipeline.saving.direct import Author, Draft
from schemas.identity import ReadScope, Scope, Visibility
from schemas.memory import SAVED_CHARACTERS, CustomContent, CustomKind
from schemas.project import CustomType
from schemas.turn import Metadata

Json = dict[str, Any]


class CustomBody(Sent):
    """Something of a declared type."""

    content: Said = Field(max_length=SAVED_CHARACTERS, examples=["Leaks under pressure."])
    tags: Metadata | None = None
    """Declared ones only."""
    contextual_metadata: Metadata | None = None
    """Kept as it is; nothing is looked up by it."""


class CustomQuery(Sent):
    """What is looked for among those of a type."""

    query: str = Field(min_length=1, max_length=20_000, examples=["leaks"])
    tags: Metadata | None = None
    """What they must have."""
    top_k: int = Field(default=10, ge=1, le=100)


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter(tags=["custom types"])

    @routes.post("/types/{memory_type}", status_code=201)
    async def save(memory_type: str, body: CustomBody, call: Storing) -> Json:
        """Save a memory of a declared type for the user of the execution."""
        scope, declared = await _place(memory_type, call)
        content = CustomContent(
            type=declared.name, body=body.content, tags=tags_of(declared, body.tags or {})
        )
        draft = Draft(
            scope=scope,
            kind=CustomKind.CUSTOM,
            content=content,
            metadata=body.contextual_metadata or None,
        )
        author = Author(agent_id=call.caller.agent_id, execution_id=call.caller.execution_id)
        saved = await call.parts.saver.save(draft, author, upsert=False)
        return {
            "id": saved.memory_id,
            "type": content.type,
            "tags": _told(content),
            "has_embedding": False,
        }

    @routes.post("/types/{memory_type}/retrieve")
    async def retrieve(memory_type: str, body: CustomQuery, call: Called) -> Json:
        """Return the memories of a type that have these tags, best first."""
        scope, declared = await _place(memory_type, call)
        wanted = tags_of(declared, body.tags or {})
        own = ReadScope(
            project_id=scope.project_id,
            org_id=scope.org_id,
            user_id=scope.owner,
            visibility=scope.visibility,
        )
        searcher = call.parts.searcher
        found = await searcher.memories(
            own,
            [CustomKind.CUSTOM],
            await searcher.understood(body.query, {Mode.HYBRID}),
            mode=Mode.HYBRID,
            limit=body.top_k,
            wanted=Wanted(type=declared.name, type_tags=wanted),
        )
        results = [_result(hit.item) for hit in found.hits]
        return {"results": results, "count": len(results)}

    return routes


async def _place(memory_type: str, call: Call) -> tuple[Scope, CustomType]:
    """Return to whom a call belongs, and the type it names.

    Raises:
        UnsupportedError: Nobody is known for whom it is.
        UnknownTypeError: The project declares none of that name.
    """
    caller, nobody = call.caller, Named()
    project = caller.project(nobody)
    execution = caller.execution_id
    user = None if execution is None else await call.parts.executions.user(project, execution)
    if user is None:
        raise UnsupportedError(
            "memories of custom types belong to the user of an execution: send the header"
            " X-Agent-Engine-Execution-Id of one that has recorded turns here, of one user"
        )
    settings = (await call.parts.projects.applied(project)).settings
    declared = {each.name: each for each in settings.custom_memory_types}
    if memory_type not in declared:
        raise UnknownTypeError(sorted(declared))
    scope = Scope(
        project_id=project,
        org_id=caller.org(nobody),
        owner=user,
        visibility=Visibility.PRIVATE,
    )
    return scope, declared[memory_type]


def _told(content: CustomContent) -> Json:
    return {tag.name: tag.value for tag in content.tags}


def _result(memory: Memory) -> Json:
    content = memory.run.content
    if not isinstance(content, CustomContent):
        raise TypeError("a record of a custom type holds its content")
    return {
        "id": memory.memory_id,
        "type": content.type,
        "content": content.body,
        "tags": _told(content),
        "contextual_metadata": memory.run.metadata,
        "user_id": memory.record.scope.owner,
        "agent_id": memory.run.agents[-1] if memory.run.agents else None,
    }
