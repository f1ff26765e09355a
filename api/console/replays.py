"""Replays: what one would take, starting, pausing and ending it, and what it came to."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import RedirectResponse, Response
from pydantic import TypeAdapter

from api.console.forms import as_utc, validated, whole_from
from api.console.pages import to
from api.console.parts import Call, Called, Sent
from api.console.refusals import FormError, UnknownPageError
from pipeline.errors import JobError
from pipeline.replaying.desk import Estimate
from schemas.job import Job, JobState, Replay, Selection

COUNTING: Final = timedelta(seconds=10)
"""So long a page counts what a selection holds; the command line takes its time."""
REFRESH: Final = 5
MOST_TOKENS: Final = 10**12
_SELECTING: Final[Mapping[str, str]] = {
    "project_id": "project",
    "user_id": "user",
    "session_id": "session",
    "since": "since",
    "until": "until",
}
"""Fields of a selection, and what forms and addresses call them."""
_SELECTION: Final[TypeAdapter[Selection]] = TypeAdapter(Selection)


class Change(StrEnum):
    """What can be done to a replay that there is."""

    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"


_DONE: Final = {
    Change.PAUSE: "paused",
    Change.RESUME: "continued",
    Change.CANCEL: "cancelled",
}


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter(prefix="/replays")
    _add_reading(routes)
    _add_acting(routes)
    return routes


def _add_reading(routes: APIRouter) -> None:
    @routes.get("")
    async def every(call: Called) -> Response:
        """List the replays, the newest first."""
        jobs = [job for job in await call.replays().all() if _may_see(call, job)]
        return call.pages.page(call.request, "replays.html", jobs=jobs)

    @routes.get("/new")
    async def new(call: Called) -> Response:
        """Show what a replay would take; nothing is done."""
        asked = call.request.query_params
        replay = replay_from(dict(asked), call.visitor.project_id)
        is_asked = "count" in asked
        found: Estimate | None = None
        if is_asked:
            try:
                async with asyncio.timeout(COUNTING.total_seconds()):
                    found = await call.replays().estimate(replay.selection)
            except TimeoutError:
                found = None
        return call.pages.page(
            call.request,
            "replay_new.html",
            replay=replay,
            asked={name: asked.get(name, "") for name in _SELECTING.values()},
            budget=asked.get("budget", ""),
            estimate=found,
            is_asked=is_asked,
            project=call.visitor.project_id,
        )

    @routes.get("/{job_id}")
    async def one(call: Called, job_id: str) -> Response:
        """Show what a replay came to, so far."""
        job = await _read(call, job_id)
        is_asked = call.request.query_params.get("refresh") == "on"
        return call.pages.page(
            call.request,
            "replay.html",
            job=job,
            report=await call.replays().report(job),
            may_act=_may_act(call, job),
            refresh=REFRESH if is_asked and job.state is JobState.OPEN else None,
        )


def _add_acting(routes: APIRouter) -> None:
    @routes.post("/start")
    async def start(call: Called, sent: Sent) -> Response:
        """Start a replay of what there is now."""
        replay = replay_from(dict(sent.fields), call.visitor.project_id)
        job = await call.replays().start(replay)
        return RedirectResponse(to(f"/replays/{job.job_id}", done="started"), HTTPStatus.SEE_OTHER)

    @routes.post("/{job_id}/act")
    async def act(call: Called, job_id: str, sent: Sent) -> Response:
        """Pause, resume or cancel one."""
        job = await _read(call, job_id)
        if not _may_act(call, job):
            raise JobError(
                "it is of all projects, and this account of one: the command line can change it"
            )
        try:
            change = Change(sent.one("act"))
        except ValueError:
            raise FormError(f"act: must be one of {', '.join(Change)}") from None
        desk = call.replays()
        if change is Change.PAUSE:
            await desk.pause(job.job_id)
        elif change is Change.CANCEL:
            await desk.cancel(job.job_id)
        else:
            await desk.resume(job.job_id, token_budget=_budget(dict(sent.fields)))
        where = to(f"/replays/{job.job_id}", done=_DONE[change])
        return RedirectResponse(where, HTTPStatus.SEE_OTHER)


def replay_from(sent: Mapping[str, str], project_id: str | None) -> Replay:
    """Return a replay as it is asked for, of one's own project where one has one.

    Raises:
        FormError: A field holds what can't be meant.
    """
    given: dict[str, Any] = {
        field: value for field, name in _SELECTING.items() if (value := sent.get(name, "").strip())
    }
    if project_id is not None:
        given["project_id"] = project_id
    selection = validated(_SELECTION, given, _SELECTING)
    times = {"since": as_utc(selection.since), "until": as_utc(selection.until)}
    return Replay(
        selection=selection.model_copy(update=times),
        is_forced=sent.get("force") == "on",
        token_budget=_budget(sent),
        stops_at_letter=sent.get("stop") == "on",
    )


def _budget(sent: Mapping[str, str]) -> int | None:
    return whole_from("token budget", sent.get("budget", ""), least=1, most=MOST_TOKENS)


async def _read(call: Call, job_id: str) -> Job:
    try:
        job = await call.replays().read(job_id)
    except JobError:
        job = None
    if job is None or not _may_see(call, job):
        raise UnknownPageError("no replay has that id: the list shows those there are")
    return job


def _may_see(call: Call, job: Job) -> bool:
    return call.visitor.is_of(job.replay.selection.project_id)


def _may_act(call: Call, job: Job) -> bool:
    own = call.visitor.project_id
    return own is None or job.replay.selection.project_id == own
