"""What is remembered of a user: each memory with its history, and where each word of it is from."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from fastapi import APIRouter
from fastapi.responses import Response

from api.console.forms import whole_from
from api.console.parts import Call, Called
from api.console.refusals import UnknownPageError
from pipeline.reading.memories import text_of
from schemas.assertion import Assertion
from schemas.identity import DEFAULT_PROJECT, ReadScope
from schemas.memory import CustomKind, Kind
from schemas.record import ContentRun, Record, RunState

LISTED: Final = 50
READ: Final = 2000
"""Records of one user that are looked at; whoever has more is told so."""
KINDS: Final = (*(kind.value for kind in Kind), CustomKind.CUSTOM.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """One content of a record, in words."""

    run: ContentRun
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """A record as it is shown: what holds, and what held before."""

    record: Record
    current: list[Content]
    closed: list[Content]
    """What is replaced, wrong, ended or past; the latest first."""
    last_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """An assertion that a record is folded from."""

    assertion: Assertion
    text: str


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter(prefix="/users")

    @routes.get("")
    async def memory(call: Called) -> Response:
        """Show what is remembered of somebody."""
        asked = call.request.query_params
        project = call.visitor.project_id or asked.get("project", "").strip() or DEFAULT_PROJECT
        user, kind = asked.get("user", "").strip(), asked.get("kind", "")
        page = whole_from("page", asked.get("page", ""), least=1, most=READ // LISTED) or 1
        found = await _of(call, project, user) if user else []
        kept = [one for one in found if kind not in KINDS or one.record.kind == kind]
        return call.pages.page(
            call.request,
            "user.html",
            user=user,
            project=project,
            own_project=call.visitor.project_id,
            kind=kind,
            kinds=KINDS,
            memories=kept[(page - 1) * LISTED : page * LISTED],
            number_of=len(kept),
            is_all=len(found) < READ,
            page=page,
            last_page=-(-len(kept) // LISTED),
        )

    @routes.get("/records/{record_id}")
    async def record(call: Called, record_id: str) -> Response:
        """Show a record, and every assertion that it is folded from."""
        found = await call.installation.records.get(record_id)
        if found is None or not call.visitor.may_read(found.scope.project_id, found.scope.org_id):
            raise UnknownPageError("no record has that id: find it by whose memory it is")
        sources = await call.installation.assertions.of_slot(record_id)
        ordered = sorted(sources, key=lambda one: (one.position.key(), one.assertion_id))
        return call.pages.page(
            call.request,
            "record.html",
            record=found,
            contents=[Content(run=run, text=text_of(run.content)) for run in found.runs],
            sources=[Source(assertion=one, text=text_of(one.content)) for one in ordered],
        )

    return routes


async def _of(call: Call, project_id: str, user_id: str) -> list[Remembered]:
    who = call.visitor.principal
    scope = ReadScope(
        project_id=project_id, org_id=None if who is None else who.org_id, user_id=user_id
    )
    records: list[Record] = []
    async for record in call.installation.records.of_scope(scope):
        if record.runs:
            records.append(record)
        if len(records) == READ:
            break
    return remembered(records)


def remembered(records: Iterable[Record]) -> list[Remembered]:
    """Return records as they are shown, what was said last first."""
    found: list[Remembered] = []
    for record in records:
        contents = [Content(run=run, text=text_of(run.content)) for run in record.runs]
        current = [one for one in contents if one.run.state is RunState.CURRENT]
        closed = [one for one in contents if one.run.state is not RunState.CURRENT]
        found.append(
            Remembered(
                record=record,
                current=current,
                closed=closed[::-1],
                last_at=max(run.last_at for run in record.runs),
            )
        )
    return sorted(found, key=lambda one: (one.last_at, one.record.record_id), reverse=True)
