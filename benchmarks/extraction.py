"""`bench extraction`: snapshots a second beside the same permits calling instructor in a loop."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

from pydantic import SecretStr

from benchmarks.endpoint import answering_after
from benchmarks.figures import Figure
from cli.system import apps_of
from consumers.extraction_wiring import configured_model
from consumers.recording_wiring import recorder
from consumers.wiring import Installation
from pipeline.ports.model import ModelRequest
from pipeline.settings import LLMSettings
from schemas.memory import Kind
from schemas.turn import Turn

PERMITS = 32
MODEL_SECONDS = 0.5
SNAPSHOTS = 320
TURNS = 4
SESSIONS_AT_ONCE = 16
PATIENCE = timedelta(minutes=5)


async def run(parts: Installation, progress: Callable[[str], None]) -> list[Figure]:
    """Return the rate of the whole consumer, with everything it stores and publishes."""
    with answering_after(MODEL_SECONDS) as url:
        parts = with_model(parts, url, permits=PERMITS)
        progress(f"recording and cutting {SNAPSHOTS} sessions")
        turns = await _cut(parts)
        progress("extracting them")
        ours = await _extract(parts)
        progress("the same calls in a bare loop")
        theirs = await _bare(parts.settings.llm, turns)
    return [
        Figure(
            name=f"extraction, {PERMITS} permits, model {MODEL_SECONDS * 1000:.0f} ms",
            ours=ours,
            yardstick=theirs,
            unit="snapshots/s",
            goal="≥ 0.9",
        )
    ]


def with_model(parts: Installation, url: str, *, permits: int) -> Installation:
    """Return an installation whose model is an endpoint."""
    settings = parts.settings
    llm = settings.llm.model_copy(
        update={
            "provider": "openai_compatible",
            "model": "bench",
            "base_url": url,
            "api_key": SecretStr("none"),
        }
    )
    extraction = settings.extraction.model_copy(update={"permits": permits})
    changed = settings.model_copy(update={"llm": llm, "extraction": extraction})
    return replace(parts, settings=changed)


async def _cut(parts: Installation) -> tuple[Turn, ...]:
    """Record sessions, close them and cut them; return the turns of one."""
    gate = asyncio.Semaphore(SESSIONS_AT_ONCE)
    async with recorder(parts) as recording:

        async def talk() -> tuple[Turn, ...]:
            whose = {"user_id": uuid4().hex, "session_id": "bench"}
            async with gate:
                said = [
                    await recording.record(
                        whose, {"role": "user", "content": f"I moved to Porto, {n} years ago."}
                    )
                    for n in range(TURNS)
                ]
                await recording.close(whose)
            return tuple(said)

        talks = await asyncio.gather(*(talk() for _ in range(SNAPSHOTS)))
    async with apps_of(parts, ["waker", "snapshot"]) as apps:
        await asyncio.gather(*(app.start() for app in apps))
        async with asyncio.timeout(PATIENCE.total_seconds()):
            while await parts.turns.open_sessions():
                await asyncio.sleep(0.1)
        await asyncio.gather(*(app.stop() for app in apps))
    return talks[0]


async def _extract(parts: Installation) -> float:
    extractions = parts.database["extractions"]
    async with apps_of(parts, ["extraction"]) as apps:
        began = time.perf_counter()
        await asyncio.gather(*(app.start() for app in apps))
        started = time.perf_counter()
        async with asyncio.timeout(PATIENCE.total_seconds()):
            while await extractions.count_documents({"outcome": {"$ne": None}}) < SNAPSHOTS:
                await asyncio.sleep(0.05)
        ended = time.perf_counter()
        await asyncio.gather(*(app.stop() for app in apps))
    # Consumers read from the moment they are assigned, which is before `start` returns.
    return SNAPSHOTS / (ended - (began + started) / 2)


async def _bare(settings: LLMSettings, turns: tuple[Turn, ...]) -> float:
    request = ModelRequest(turns=turns, context=(), kinds=tuple(Kind), max_tokens=None)
    permits = asyncio.Semaphore(PERMITS)
    async with configured_model(settings) as model:

        async def call() -> None:
            async with permits:
                await model.answer(request)

        await call()
        began = time.perf_counter()
        await asyncio.gather(*(call() for _ in range(SNAPSHOTS)))
        return SNAPSHOTS / (time.perf_counter() - began)
