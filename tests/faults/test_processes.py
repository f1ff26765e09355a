"""Several processes on real Kafka: killed at every point, joining, leaving, under load."""

import asyncio
import os
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from compose.real_kafka import real_kafka
from consumers.recording_wiring import recorder
from pipeline.auditing import AuditReport
from pipeline.crash_points import CrashPoint
from pipeline.messages import encode
from schemas.event import TurnRecorded, TurnRecordedData, event_id
from schemas.identity import SessionIdentity
from schemas.topics import TURN_RECORDED
from schemas.turn import Turn
from tests.faults.system import System, system
from tests.faults.test_crash_points import (
    ELSEWHERE,
    HELD,
    NEVER_CLOSED,
    REFUSED,
    SLOW,
    TRUNCATED,
    UNAVAILABLE,
    home,
)
from tests.faults.worker import Said
from tests.scripted_endpoint import ScriptedEndpoint, delayed

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("real_kafka_available")]

POINTS = [
    point
    for point in CrashPoint
    if point not in {*ELSEWHERE, *HELD, *NEVER_CLOSED, *REFUSED, *SLOW, *TRUNCATED, *UNAVAILABLE}
]
"""Those that every good snapshot passes."""
SESSIONS = 6
AT_ONCE = 16
"""Sessions that are recorded side by side under load: more the embedded database can't take."""
PERMITS = 2
TURNS_EACH = 50 if "AFTERTURN_TEST_MONGO_URI" in os.environ else 8
"""Of each of 200 sessions: 10,000 in all on a real MongoDB, fewer on the slow embedded one."""
OTHER_VERSION = {"AFTERTURN_LLM__TEMPERATURE": "0.5"}
LONG = timedelta(seconds=120)


@asynccontextmanager
async def installed(
    mongo_uri: str, endpoint: ScriptedEndpoint, folder: Path
) -> AsyncGenerator[System]:
    async with (
        real_kafka(folder / "kafka") as cluster,
        system(mongo_uri, cluster.bootstrap_servers, endpoint, folder) as running,
    ):
        running.environment["AFTERTURN_EXTRACTION__PERMITS"] = str(PERMITS)
        yield running


def talks(name: str, sessions: int = SESSIONS) -> list[Said]:
    """Return two turns each of several sessions."""
    return [
        (SessionIdentity(user_id=f"{name}-{number}", session_id="s"), f"I live in {name} {turn}.")
        for number in range(sessions)
        for turn in range(2)
    ]


async def stored_calls(running: System) -> int:
    """Return how many calls the stored answers took."""
    return sum(
        [
            sum(part["reply"]["calls"] for part in extraction["parts"] if part["reply"])
            async for extraction in running.parts.database["extractions"].find()
        ]
    )


def whole(report: AuditReport, turns: int) -> None:
    assert report.violations == []
    assert (report.turns, report.in_snapshots, report.open) == (turns, turns, 0)
    assert set(report.outcomes) == {"records"}


async def test_two_versions_of_a_process_survive_a_kill_at_every_point(
    mongo_uri: str, endpoint: ScriptedEndpoint, tmp_path: Path
) -> None:
    endpoint.respond_with(home)
    said: list[Said] = []
    reached: set[CrashPoint] = set()
    async with installed(mongo_uri, endpoint, tmp_path) as running:
        running.start(instance="other", environment=OTHER_VERSION)
        for attempt in range(2):
            for point in POINTS:
                if point in reached:
                    continue
                said += talks(f"{point.value}-{attempt}")
                armed = running.start(said, crash_at=point)
                if await running.dies(armed, timedelta(seconds=20)):
                    reached.add(point)
                armed.kill()
                armed.join()
        running.start(said)
        await running.settles(len(said), LONG)

        assert reached == set(POINTS)
        whole(await running.audit(), len(said))
        cut_off = endpoint.count - await stored_calls(running)
        assert 1 <= cut_off <= PERMITS * len(running.workers)
        assert await running.parts.letters.count() == 0
        versions = await running.parts.database["extractions"].distinct("version")
        assert len(versions) == 2


async def test_processes_that_join_and_leave_in_the_middle_of_calls_repeat_none(
    mongo_uri: str, endpoint: ScriptedEndpoint, tmp_path: Path
) -> None:
    endpoint.respond_with(lambda request: delayed(home(request), timedelta(seconds=1)))
    said = talks("slow", sessions=16)
    async with installed(mongo_uri, endpoint, tmp_path) as running:
        first = running.start(said, instance="first")
        await asyncio.to_thread(endpoint.wait_for, 1, timeout=timedelta(seconds=60))
        running.start(instance="second")
        await asyncio.to_thread(endpoint.wait_for, 6, timeout=timedelta(seconds=60))
        first.terminate()
        assert await running.dies(first)
        assert first.exitcode == 0
        await running.settles(len(said), LONG)

        report = await running.audit()
        whole(report, len(said))
        assert endpoint.count == sum(report.outcomes.values())


async def test_many_turns_with_repeated_and_reordered_events_tile_whole(
    mongo_uri: str, endpoint: ScriptedEndpoint, tmp_path: Path
) -> None:
    endpoint.respond_with(home)
    dice = random.Random(7)  # noqa: S311 (a schedule, not a secret)
    async with installed(mongo_uri, endpoint, tmp_path) as running:
        running.environment["AFTERTURN_EXTRACTION__PERMITS"] = "16"
        running.environment["AFTERTURN_WAKER__LOST_AFTER"] = "30"
        running.environment["AFTERTURN_MONGO__TIMEOUT"] = "10"
        running.environment["AFTERTURN_EXTRACTION__LEASE"] = "20"
        running.environment["AFTERTURN_SNAPSHOT__STALE"] = "5"
        running.start(instance="one")
        running.start(
            instance="two", environment={"AFTERTURN_SNAPSHOT__MAX_MESSAGES": "7"} | OTHER_VERSION
        )
        turns = await spoken(running, sessions=200, turns=TURNS_EACH)
        dice.shuffle(turns)
        for turn in turns[: len(turns) // 5]:
            await running.parts.publisher.publish(encode(TURN_RECORDED.name, wake_up(turn)))
        await running.settles(len(turns), timedelta(minutes=6))

        report = await running.audit()
        whole(report, len(turns))
        assert endpoint.count == sum(report.outcomes.values())
        assert await running.parts.letters.count() == 0


async def spoken(running: System, *, sessions: int, turns: int) -> list[Turn]:
    """Record so many sessions at once; return all turns."""
    gate = asyncio.Semaphore(AT_ONCE)
    async with recorder(running.parts) as recording:

        async def talk(number: int) -> list[Turn]:
            whose = SessionIdentity(user_id=f"user {number}", session_id="s")
            async with gate:
                return [
                    await recording.record(
                        whose, {"role": "user", "content": f"I live in town {n}."}
                    )
                    for n in range(turns)
                ]

        talked = await asyncio.gather(*(talk(number) for number in range(sessions)))
    return [turn for talk_ in talked for turn in talk_]


def wake_up(turn: Turn) -> TurnRecorded:
    return TurnRecorded(
        id=event_id("turn.recorded", turn.session, turn.seq),
        subject=turn.session,
        time=turn.recorded_at,
        data=TurnRecordedData(session=turn.session, seq=turn.seq),
    )
