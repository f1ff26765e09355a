"""The waker: what is due is woken, nobody is pestered, and one sweep's trouble is its own."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from structlog.testing import capture_logs

from pipeline.errors import BrokerUnavailableError
from pipeline.settings import SnapshotSettings
from producers.waker import OpenTurnsSweep, Sweep, UnsettledSnapshotsSweep, Waker
from schemas.event import TurnRecorded
from schemas.snapshot import Snapshot
from tests.builders import snapshot
from tests.cutting_world import SESSION, CuttingWorld, PublisherTwin, ServerTimeTwin, TurnsTwin

SETTINGS = SnapshotSettings(max_messages=4, max_tokens=100, stale=timedelta(minutes=3))
LOST_AFTER = timedelta(minutes=2)


def sweep_of(world: CuttingWorld) -> OpenTurnsSweep:
    return OpenTurnsSweep(
        turns=TurnsTwin(world),  # pyright: ignore[reportArgumentType] (the part that is used)
        publisher=PublisherTwin(world),
        server_time=ServerTimeTwin(world),
        settings=SETTINGS,
        lost_after=LOST_AFTER,
    )


async def test_nothing_open_and_nothing_due_wakes_nobody() -> None:
    world = CuttingWorld()
    sweep = sweep_of(world)

    assert await sweep() == 0

    world.record(1, 2)

    assert await sweep() == 0
    assert world.published == []


@pytest.mark.parametrize(
    ("seqs", "fields", "later"),
    [
        ((1, 2, 3, 4), {}, timedelta(0)),
        ((1,), {"tokens": 100}, timedelta(0)),
        ((1,), {"closes": True}, timedelta(0)),
        ((1,), {}, timedelta(minutes=2)),
    ],
    ids=["messages", "tokens", "closed", "lost"],
)
async def test_what_is_due_or_late_is_woken(
    seqs: tuple[int, ...], fields: dict[str, Any], later: timedelta
) -> None:
    world = CuttingWorld()
    world.record(*seqs, **fields)
    world.now += later

    assert await sweep_of(world)() == 1

    event = TurnRecorded.model_validate_json(world.published[0].value or b"")

    assert event.data.session == SESSION
    assert event.data.seq is None
    assert world.published[0].key == SESSION.encode()


async def test_a_session_nothing_comes_of_is_woken_ever_more_rarely() -> None:
    world = CuttingWorld()
    world.record(1, 2, 3, 4)
    sweep = sweep_of(world)
    woken: list[int] = []
    for second in range(600):
        if await sweep():
            woken.append(second)
        world.now += timedelta(seconds=1)
    waits = [later - earlier for earlier, later in pairwise(woken)]

    assert waits[:5] == [5, 10, 20, 40, 80]
    assert set(waits[5:]) == {120}


async def test_progress_makes_a_session_new_again() -> None:
    world = CuttingWorld()
    world.record(1, 2, 3, 4)
    sweep = sweep_of(world)
    await sweep()
    await world.cutter(max_messages=4).cut(SESSION)
    world.record(5, 6, 7, 8)

    assert await sweep() == 1


async def test_without_kafka_a_session_does_not_count_as_woken() -> None:
    world = CuttingWorld(kafka_is_gone=True)
    world.record(1, 2, 3, 4)
    sweep = sweep_of(world)
    with pytest.raises(BrokerUnavailableError):
        await sweep()
    world.kafka_is_gone = False

    assert await sweep() == 1


async def test_a_lost_event_is_made_good() -> None:
    world = CuttingWorld()
    world.record(1, 2, 3, 4)
    await sweep_of(world)()
    event = TurnRecorded.model_validate_json(world.published[0].value or b"")
    await world.cutter(max_messages=4).cut(event.data.session)

    assert world.ranges() == [(1, 4)]


class Due:
    """Snapshots of which some are due."""

    def __init__(self, due: list[Snapshot]) -> None:
        self.due = due

    async def unsettled_due(self, now_ms: int, limit: int) -> list[Snapshot]:
        return self.due[:limit]


async def test_unsettled_snapshots_are_sent_again_within_the_limit() -> None:
    world = CuttingWorld()
    sent: list[Snapshot] = []

    async def resend(each: Snapshot) -> None:
        sent.append(each)

    due = [snapshot(n, n) for n in range(1, 6)]
    sweep = UnsettledSnapshotsSweep(
        snapshots=Due(due),  # pyright: ignore[reportArgumentType] (the part that is used)
        server_time=ServerTimeTwin(world),
        resend=resend,
        limit=3,
    )

    assert await sweep() == 3
    assert sent == due[:3]


def finds(count: int) -> Callable[[], Awaitable[int]]:
    async def run() -> int:
        return count

    return run


async def breaks() -> int:
    raise RuntimeError("the secret word")


async def test_a_sweep_that_fails_keeps_no_other_from_its_work() -> None:
    waker = Waker(
        [Sweep(name="broken", run=breaks), Sweep(name="fine", run=finds(2))],
        interval=timedelta(seconds=1),
    )
    with capture_logs() as logs:
        found = await waker.sweep()

    assert found == {"fine": 2}
    assert {"sweep": "broken", "exception": "RuntimeError"}.items() <= logs[0].items()
    assert "secret" not in str(logs)


async def test_sweeps_run_until_they_are_told_to_stop_and_a_hanging_one_holds_up_none() -> None:
    runs = 0
    stopping = asyncio.Event()

    async def count() -> int:
        nonlocal runs
        runs += 1
        if runs == 5:
            stopping.set()
        return 0

    async def hangs() -> int:
        await stopping.wait()
        return 0

    waker = Waker(
        [Sweep(name="hanging", run=hangs), Sweep(name="counting", run=count)],
        interval=timedelta(milliseconds=1),
    )
    async with asyncio.timeout(5):
        await waker.run(stopping)

    assert runs == 5
