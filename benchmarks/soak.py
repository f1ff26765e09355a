"""`bench soak`: what memory and open files grow by while one process handles 100,000 events."""

import asyncio
import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final
from uuid import uuid4

from benchmarks.endpoint import answering_after
from benchmarks.extraction import with_model
from benchmarks.figures import Figure
from cli.system import ROLES, apps_of
from consumers.lag import group_lag
from consumers.recording_wiring import recorder
from consumers.wiring import Installation
from pipeline.extracting.planning import FIRST_TICKET, extraction_id, ready_data, ready_event
from pipeline.messages import encode
from producers.recording import Recorder
from schemas.event import TurnRecorded, TurnRecordedData, event_id
from schemas.message import OutgoingMessage
from schemas.topics import GROUPS, SNAPSHOT_READY, TURN_RECORDED, Stage
from schemas.turn import Turn

EVENTS: Final = 100_000
ROUND: Final = 1000
"""Events about one conversation."""
AT_ONCE: Final = 25
"""So many of each kind of event are published side by side."""
PROGRESS_EVERY: Final = 5
MODEL_SECONDS: Final = 0.01
PATIENCE: Final = timedelta(minutes=5)
_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    memory: float
    """Resident, in MiB."""
    files: int


async def run(parts: Installation, progress: Callable[[str], None]) -> list[Figure]:
    """Return the growth after warming up. Needs `/proc`."""
    with answering_after(MODEL_SECONDS) as url:
        parts = with_model(parts, url, permits=8)
        async with apps_of(parts, ROLES) as apps, recorder(parts) as recording:
            await asyncio.gather(*(app.start() for app in apps))
            samples = await _rounds(parts, recording, progress)
            await asyncio.gather(*(app.stop() for app in apps))
    share = len(samples) // 5
    warm, end = samples[share : 2 * share], samples[-share:]
    memory = statistics.median(one.memory for one in end)
    files = statistics.median(one.files for one in end)
    return [
        Figure(
            name=f"memory gained over {EVENTS} events",
            ours=memory - statistics.median(one.memory for one in warm),
            yardstick=None,
            unit="MiB",
            goal="≤ 20 MiB",
        ),
        Figure(
            name=f"open files gained over {EVENTS} events",
            ours=files - statistics.median(one.files for one in warm),
            yardstick=None,
            unit="files",
            goal="0",
        ),
    ]


async def _rounds(
    parts: Installation, recording: Recorder, progress: Callable[[str], None]
) -> list[_Sample]:
    """Let a conversation become memory each round, then tell of it again and again."""
    samples: list[_Sample] = []
    for number in range(EVENTS // ROUND):
        told = await _told(parts, await _talk(recording))
        for _ in range(ROUND // (AT_ONCE * len(told))):
            await asyncio.gather(*map(parts.publisher.publish, told * AT_ONCE))
        await _handled(parts)
        samples.append(_sample())
        if number % PROGRESS_EVERY == 0:
            progress(f"{number * ROUND} of {EVENTS} events, {samples[-1].memory:.0f} MiB")
    return samples


async def _talk(recording: Recorder) -> Turn:
    whose = {"user_id": uuid4().hex, "session_id": "bench"}
    turn = await recording.record(whose, {"role": "user", "content": "I moved to Porto."})
    await recording.close(whose)
    return turn


async def _told(parts: Installation, turn: Turn) -> tuple[OutgoingMessage, ...]:
    """Wait until a turn is memory; return the events that told of it."""
    async with asyncio.timeout(PATIENCE.total_seconds()):
        while (snapshot := await parts.snapshots.last(turn.session)) is None:
            await asyncio.sleep(0.02)
        ready = ready_data(snapshot)
        while not await _is_settled(parts, extraction_id(ready.snapshot, ready.run)):
            await asyncio.sleep(0.02)
    now = parts.clock.now()
    recorded = TurnRecorded(
        id=event_id("turn.recorded", turn.session, turn.seq),
        subject=turn.session,
        time=now,
        data=TurnRecordedData(session=turn.session, seq=turn.seq),
    )
    return (
        encode(TURN_RECORDED.name, recorded),
        encode(SNAPSHOT_READY.name, ready_event(ready, now), ticket=FIRST_TICKET),
    )


async def _is_settled(parts: Installation, extraction: str) -> bool:
    found = await parts.extractions.get(extraction)
    return found is not None and found.outcome is not None


async def _handled(parts: Installation) -> None:
    """Wait until each group has committed all there is."""
    kafka = parts.settings.kafka
    async with asyncio.timeout(PATIENCE.total_seconds()):
        for stage, topic in ((Stage.SNAPSHOT, TURN_RECORDED), (Stage.EXTRACTION, SNAPSHOT_READY)):
            while any(lag.messages for lag in await group_lag(kafka, GROUPS[stage], [topic])):
                await asyncio.sleep(1)


def _sample() -> _Sample:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    files = sum(1 for _ in Path("/proc/self/fd").iterdir())
    return _Sample(memory=pages * os.sysconf("SC_PAGESIZE") / _MIB, files=files)
