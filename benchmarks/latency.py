"""`bench latency`: from the last turn of a full snapshot to its records, less the model's time."""

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

from benchmarks.endpoint import answering_after
from benchmarks.extraction import with_model
from benchmarks.figures import Figure, percentile
from cli.system import ROLES, apps_of
from consumers.recording_wiring import recorder
from consumers.wiring import Installation
from producers.recording import Recorder
from schemas.identity import ReadScope

ROUNDS = 30
MODEL_SECONDS = 0.05
PATIENCE = timedelta(seconds=30)


async def run(parts: Installation, progress: Callable[[str], None]) -> list[Figure]:
    """Return p50 and p99 over sessions that fill one snapshot each, one after another."""
    with answering_after(MODEL_SECONDS) as url:
        parts = with_model(parts, url, permits=8)
        async with apps_of(parts, ROLES) as apps, recorder(parts) as recording:
            await asyncio.gather(*(app.start() for app in apps))
            progress(f"{ROUNDS} full snapshots")
            samples = [await _once(parts, recording) for _ in range(ROUNDS + 1)][1:]
            await asyncio.gather(*(app.stop() for app in apps))
    return [
        Figure(
            name=f"latency p{percent}",
            ours=(percentile(samples, percent) - MODEL_SECONDS) * 1000,
            yardstick=None,
            unit="ms",
            goal=goal,
        )
        for percent, goal in ((50, "≤ 250 ms"), (99, "–"))
    ]


async def _once(parts: Installation, recording: Recorder) -> float:
    whose = {"user_id": uuid4().hex, "session_id": "bench"}
    turn = None
    began = 0.0
    for number in range(parts.settings.snapshot.max_messages):
        began = time.perf_counter()
        turn = await recording.record(
            whose, {"role": "user", "content": f"I moved to Porto, {number} years ago."}
        )
    if turn is None:
        raise ValueError("a full snapshot has a turn at least")
    async with asyncio.timeout(PATIENCE.total_seconds()):
        while not await _is_readable(parts, whose["user_id"]):
            await asyncio.sleep(0.002)
    return time.perf_counter() - began


async def _is_readable(parts: Installation, user: str) -> bool:
    records = parts.records.of_scope(ReadScope(project_id="default", user_id=user))
    async for record in records:
        if record.runs:
            return True
    return False
