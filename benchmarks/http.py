"""`bench http`: a turn recorded over HTTP, beside a bare insert behind an otherwise empty route."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Final
from uuid import uuid4

import httpx
from fastapi import FastAPI, Response
from starlette.types import ASGIApp

from api.server import HttpApp, http_app
from benchmarks.bare_turns import BareTurns, bare_turns, said, timed
from benchmarks.figures import Figure, latencies
from consumers.recording_wiring import recorder
from consumers.wiring import Installation
from pipeline.settings import HttpSettings

PAIRS: Final = 400
WARM_UP: Final = 20
_HTTP: Final = HttpSettings(port=0)
_STOP: Final = timedelta(seconds=5)


async def run(parts: Installation, progress: Callable[[str], None]) -> list[Figure]:
    """Return p50 and p99 of turns that one agent sends one after the other.

    The two sides take turns, so that a machine whose speed drifts drifts for both.
    """
    settings = parts.settings.model_copy(update={"http": _HTTP})
    async with (
        recorder(parts) as recording,
        bare_turns(parts, recording) as bare,
        http_app(replace(parts, settings=settings)) as app,
        _connected(app) as ours,
        _connected(_served(_inserting(bare))) as theirs,
    ):
        for number in range(WARM_UP):
            await _record(ours, "warm", number)
            await _insert(theirs, "warm", number)
        progress(f"{PAIRS} turns, one at a time")
        session = uuid4().hex
        recorded: list[float] = []
        inserted: list[float] = []
        for number in range(PAIRS):
            recorded.append(await timed(_record(ours, session, number)))
            inserted.append(await timed(_insert(theirs, session, number)))
    return latencies("http", recorded, inserted, {50: "≤ 1.3", 99: "≤ 1.6"})


def _inserting(bare: BareTurns) -> FastAPI:
    """Return the framework with one route, which looks at nothing that was sent."""
    app = FastAPI()

    async def insert(session: str, number: int) -> Response:
        await bare.insert(session, number)
        return Response(status_code=201)

    app.post("/{session}/{number}")(insert)
    return app


def _served(app: ASGIApp) -> HttpApp:
    return HttpApp(app, _HTTP, stop_within=_STOP)


@asynccontextmanager
async def _connected(app: HttpApp) -> AsyncGenerator[httpx.AsyncClient]:
    """Serve an application and yield a client of it."""
    await app.start()
    try:
        async with httpx.AsyncClient(base_url=app.address) as client:
            yield client
    finally:
        await app.stop()


async def _record(client: httpx.AsyncClient, session: str, number: int) -> None:
    turn = {"user_id": "bench", "session_id": session, "role": "user", "content": said(number)}
    answer = await client.post("/api/v1/memory/turns", json=turn)
    answer.raise_for_status()


async def _insert(client: httpx.AsyncClient, session: str, number: int) -> None:
    answer = await client.post(f"/{session}/{number}", json={"content": said(number)})
    answer.raise_for_status()
