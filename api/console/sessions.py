"""A conversation: what was said, how it was cut and extracted, and what was learned from what."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fastapi import APIRouter
from fastapi.responses import Response

from api.console.evidence import Segment, segments_of
from api.console.forms import whole_from
from api.console.parts import Call, Called
from api.console.refusals import UnknownPageError
from pipeline.ports.turns import SessionState
from pipeline.reading.memories import text_of
from schemas.assertion import Assertion
from schemas.extraction import Extraction
from schemas.snapshot import Snapshot
from schemas.turn import Turn

LISTED: Final = 100
TURNS: Final = 100
"""Turns on one page of a conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A turn as it is shown."""

    turn: Turn
    segments: list[Segment]
    is_open: bool
    cited: int
    """How many of what was learned rests on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A snapshot and its run that counts."""

    snapshot: Snapshot
    extraction: Extraction | None
    runs: int
    set_aside: dict[str, int]
    """Items that became nothing, by reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """An assertion in words."""

    assertion: Assertion
    text: str


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter(prefix="/sessions")

    @routes.get("")
    async def some(call: Called) -> Response:
        """Find conversations by whose they are."""
        asked = call.request.query_params
        named = {name: asked.get(name, "").strip() for name in ("project", "user", "session")}
        who = call.visitor.principal
        found: list[SessionState] = []
        if any(named.values()):
            found = await call.installation.sessions.matching(
                call.visitor.project_id or named["project"] or None,
                org_id=None if who is None else who.org_id,
                user_id=named["user"] or None,
                session_id=named["session"] or None,
                limit=LISTED + 1,
            )
        return call.pages.page(
            call.request,
            "sessions.html",
            sessions=found[:LISTED],
            is_more=len(found) > LISTED,
            asked=named,
            is_asked=any(named.values()),
            project=call.visitor.project_id,
        )

    @routes.get("/{session}")
    async def one(call: Called, session: str) -> Response:
        """Show a conversation."""
        state = await _read(call, session)
        parts = call.installation
        newest = await parts.turns.newest(session)
        last = 0 if newest is None else newest.seq
        first = whole_from("from", call.request.query_params.get("from", ""), least=1, most=2**31)
        first = first or 1
        cuts = await _cuts(call, session)
        learned = await _learned(call, cuts)
        turns = await parts.turns.read(session, first, first + TURNS - 1)
        opened = {turn.seq for turn in await parts.turns.open_turns(session)}
        return call.pages.page(
            call.request,
            "session.html",
            state=state,
            turns=[_said(turn, learned, is_open=turn.seq in opened) for turn in turns],
            cuts=cuts,
            learned=learned,
            first=first,
            last=last,
            step=TURNS,
        )

    return routes


async def _read(call: Call, session: str) -> SessionState:
    state = await call.installation.sessions.by_key(session)
    if state is None or not call.visitor.may_read(state.identity.project_id, state.identity.org_id):
        raise UnknownPageError("no conversation has that key: find it by whose it is")
    return state


async def _cuts(call: Call, session: str) -> list[Cut]:
    found: list[Cut] = []
    for snapshot in await call.installation.snapshots.covering(session, 1):
        runs = await call.installation.extractions.runs_of(snapshot.snapshot_id)
        active = next((run for run in runs if run.run == snapshot.active_run), None)
        aside = Counter(
            item.reason for part in (active.parts if active else ()) for item in part.set_aside
        )
        found.append(
            Cut(snapshot=snapshot, extraction=active, runs=len(runs), set_aside=dict(aside))
        )
    return found


async def _learned(call: Call, cuts: Sequence[Cut]) -> list[Learned]:
    found: list[Learned] = []
    for cut in cuts:
        if cut.extraction is None:
            continue
        made = await call.installation.assertions.of_extraction(cut.extraction.extraction_id)
        ordered = sorted(made, key=lambda one: (one.position.key(), one.assertion_id))
        found += [Learned(assertion=one, text=text_of(one.content)) for one in ordered]
    return found


def _said(turn: Turn, learned: Sequence[Learned], *, is_open: bool) -> Said:
    evidence = [
        one.assertion.evidence
        for one in learned
        if one.assertion.evidence is not None and turn.seq in one.assertion.evidence.seqs
    ]
    return Said(
        turn=turn,
        segments=segments_of(turn.content, [each.quote for each in evidence]),
        is_open=is_open,
        cited=len(evidence),
    )
