"""The overview: what is wrong and what to do, then how it flows."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import RedirectResponse, Response

from api.console.pages import to
from api.console.parts import Call, Called, Sent
from api.console.pictures import HOURS, chart_of
from api.console.troubles import SHOWN, troubles_of
from pipeline.letters.grouping import grouped
from pipeline.ports.letters import LetterQuery
from pipeline.settings import SnapshotSettings
from schemas.failure import LetterState

GRACE: Final = timedelta(minutes=5)
REFRESH: Final = 10
"""Seconds after which a page is loaded anew that is asked to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """What waits for a time, in one topic."""

    topic: str
    extractions: int
    due_at: datetime
    """When the next of them is tried."""


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter()

    @routes.get("/")
    async def overview(call: Called) -> Response:
        """Show where everything stands."""
        now = datetime.now(UTC)
        ledger = await call.parts.figures.ledger()
        broker = await call.parts.figures.broker()
        wanted = LetterQuery(state=LetterState.DEAD, projects=call.visitor.projects)
        groups = grouped(await call.installation.letters.matching(wanted))
        troubles = troubles_of(
            ledger.status,
            broker,
            groups,
            now=now,
            open_at_most=longest_open(call.installation.settings.snapshot),
        )
        deaths = await call.parts.figures.stored.deaths(
            now - timedelta(hours=HOURS), call.visitor.projects
        )
        return call.pages.page(
            call.request,
            "overview.html",
            now=now,
            troubles=troubles,
            groups=len(groups),
            letters=sum(group.letters for group in groups),
            most=SHOWN,
            ledger=ledger.status,
            totals=ledger.totals,
            flow=ledger.flow,
            broker=broker,
            tiers=_tiers(ledger.status),
            chart=chart_of(deaths, now),
            refresh=_refresh(call),
        )

    @routes.post("/resume")
    async def resume(call: Called, sent: Sent) -> Response:
        """Let a breaker be tried at once, or a guard let letters through."""
        await call.switches().resume(sent.one("name"))
        call.parts.figures.something_was_done()
        return RedirectResponse(to("/", done="resumed"), HTTPStatus.SEE_OTHER)

    return routes


def longest_open(settings: SnapshotSettings) -> timedelta:
    """Return how old an open turn may become while all goes well: of a talk that just goes on."""
    return settings.stale * settings.max_messages + GRACE


def _tiers(ledger: dict[str, Any]) -> list[Tier]:
    return [
        Tier(
            topic=topic,
            extractions=tier["extractions"],
            due_at=datetime.fromisoformat(tier["next_due_at"]),
        )
        for topic, tier in ledger["extractions"]["waiting"].items()
    ]


def _refresh(call: Call) -> int | None:
    return REFRESH if call.request.query_params.get("refresh") == "on" else None
