"""What runs together, what runs alone, and what a count says after each."""

import asyncio
from datetime import timedelta

import pytest
from pymongo.errors import AutoReconnect
from structlog.testing import capture_logs

from consumers.isolation import FRESH, LONGEST_SUBJECT, Isolation
from consumers.pool import Pool, PoolLimits
from consumers.room import Room
from pipeline.failing.crash_loops import BURIALS, CRASHES, SET_ASIDE, SuspectError
from pipeline.stores.in_memory import MemoryDeliveries
from schemas.message import IncomingMessage
from schemas.topics import Stage
from tests.crash_loop_world import PARTITION, message

STAGE = Stage.EXTRACTION
MARK = "topic/0"


class Counting(MemoryDeliveries):
    """Deliveries that count what they are asked."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.reads = 0

    async def put(self, stage: Stage, subject: str, starts: int) -> None:
        self.writes += 1
        await super().put(stage, subject, starts)

    async def remove(self, stage: Stage, subject: str) -> None:
        self.writes += 1
        await super().remove(stage, subject)

    async def starts(self, stage: Stage, subject: str) -> int:
        self.reads += 1
        return await super().starts(stage, subject)


class Gated:
    """A step whose every run ends when a test says so, and that says so when it is told to."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.gates: dict[int, asyncio.Event] = {}
        self.errors: dict[int, Exception] = {}
        self.buried: list[IncomingMessage] = []
        self.is_buried = True

    def subject(self, message: IncomingMessage) -> str | None:
        return None if message.key is None else message.key.decode()

    async def __call__(self, message: IncomingMessage) -> None:
        offset = message.at.offset
        self.begun.append(offset)
        if offset in self.gates:
            await self.gates[offset].wait()
        if offset in self.errors:
            raise self.errors.pop(offset)

    async def bury(self, message: IncomingMessage) -> bool:
        self.buried.append(message)
        return self.is_buried


class Grave:
    """The last resort."""

    def __init__(self) -> None:
        self.buried: list[tuple[IncomingMessage, Stage]] = []

    async def bury(self, message: IncomingMessage, stage: Stage) -> None:
        self.buried.append((message, stage))


class World:
    """An isolation and all around it."""

    def __init__(self) -> None:
        self.deliveries = Counting()
        self.step = Gated()
        self.grave = Grave()
        self.room = Room()
        self.isolation = Isolation(
            self.step, STAGE, deliveries=self.deliveries, last_resort=self.grave, room=self.room
        )

    async def died(self, offset: int, starts: int) -> None:
        """Leave what dead processes leave."""
        await self.deliveries.put(STAGE, f"subject {offset}", starts)

    async def follow_the_dead(self) -> None:
        """Be given a partition whose owner died."""
        await self.deliveries.put(STAGE, MARK, 1)
        self.isolation.assigned(PARTITION)
        self.deliveries.writes = 0

    async def left(self) -> set[str]:
        """Return what has no end, but for the mark on the partition."""
        return await self.deliveries.unended(STAGE) - {MARK}

    async def starts(self, offset: int) -> int:
        return await self.deliveries.starts(STAGE, f"subject {offset}")

    def begin(self, offset: int) -> asyncio.Task[None]:
        """Begin one that goes on until its gate is opened."""
        self.step.gates[offset] = asyncio.Event()
        return asyncio.create_task(self.isolation(message(offset)))


async def turns() -> None:
    """Let everything that can happen now happen."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
def world() -> World:
    return World()


async def test_only_what_comes_first_after_a_death_is_counted(world: World) -> None:
    await world.follow_the_dead()
    for offset in range(FRESH):
        await world.isolation(message(offset))
    counted = world.deliveries.writes
    world.deliveries.reads = 0
    await world.isolation(message(FRESH))

    assert counted == 2 * FRESH
    assert world.deliveries.writes == counted
    assert world.deliveries.reads == 0


async def test_where_nobody_died_nothing_is_counted_and_the_partition_is_marked_while_it_is_ours(
    world: World,
) -> None:
    world.isolation.assigned(PARTITION)
    for offset in range(3):
        await world.isolation(message(offset))
    writes, marked = world.deliveries.writes, await world.deliveries.unended(STAGE)
    await world.isolation.given_back([PARTITION])
    left = await world.deliveries.unended(STAGE)
    world.isolation.assigned(PARTITION)
    await world.isolation(message(3))

    assert (writes, marked, left) == (1, {MARK}, set())
    assert await world.deliveries.unended(STAGE) == {MARK}


async def test_a_partition_that_cannot_be_given_back_holds_up_no_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.isolation.assigned(PARTITION)
    await world.isolation(message(0))

    async def is_gone(*_: object) -> None:
        raise AutoReconnect

    monkeypatch.setattr(world.deliveries, "remove", is_gone)
    with capture_logs() as logs:
        await world.isolation.given_back([PARTITION])

    assert [one["event"] for one in logs] == ["partitions_not_given_back"]
    assert await world.deliveries.unended(STAGE) == {MARK}


async def test_a_start_is_counted_while_it_runs_and_not_after_it_returned(world: World) -> None:
    await world.follow_the_dead()
    running = world.begin(0)
    await turns()
    meanwhile = await world.starts(0)
    world.step.gates[0].set()
    await running

    assert (meanwhile, await world.starts(0)) == (1, 0)


async def test_of_two_copies_at_once_the_last_to_end_takes_the_count_away(world: World) -> None:
    await world.follow_the_dead()
    world.step.gates = {0: asyncio.Event(), 1: asyncio.Event()}
    copies = [
        asyncio.create_task(world.isolation(message(offset, subject="one"))) for offset in range(2)
    ]
    await turns()
    world.step.gates[0].set()
    await copies[0]
    meanwhile = await world.left()
    world.step.gates[1].set()
    await copies[1]

    assert meanwhile == {"one"}
    assert await world.left() == set()


@pytest.mark.parametrize("before", [0, 3])
async def test_an_exception_or_a_cancellation_counts_neither_as_crash_nor_as_end(
    world: World, before: int
) -> None:
    await world.follow_the_dead()
    if before:
        await world.died(0, before)
    world.step.errors[0] = ConnectionResetError()
    with pytest.raises(ConnectionResetError):
        await world.isolation(message(0))
    after_exception = await world.starts(0)
    running = world.begin(0)
    await turns()
    meanwhile = await world.starts(0)
    running.cancel()
    await asyncio.wait({running})

    assert (after_exception, meanwhile, await world.starts(0)) == (before, before + 1, before)
    assert running.cancelled()


async def test_a_suspect_waits_until_all_have_ended_and_nobody_begins_beside_it(
    world: World,
) -> None:
    await world.died(1, 1)
    await world.follow_the_dead()
    first = world.begin(0)
    await turns()
    suspect = world.begin(1)
    later = world.begin(2)
    await turns()
    begun = [list(world.step.begun)]
    waiting = await world.starts(1)
    world.step.gates[0].set()
    await turns()
    begun.append(list(world.step.begun))
    running = await world.starts(1)
    world.step.gates[1].set()
    await turns()
    begun.append(list(world.step.begun))
    world.step.gates[2].set()
    await asyncio.gather(first, suspect, later)

    assert begun == [[0], [0, 1], [0, 1, 2]]
    assert (waiting, running, await world.starts(1)) == (1, 2, 0)


async def test_what_is_read_elsewhere_is_known_after_the_next_assignment(world: World) -> None:
    await world.follow_the_dead()
    await world.isolation(message(0))
    await world.died(1, SET_ASIDE)
    await world.follow_the_dead()
    await world.isolation(message(1))

    assert world.step.begun == [0]


async def test_what_the_step_suspects_runs_again_alone(world: World) -> None:
    await world.follow_the_dead()
    company = world.begin(0)
    await turns()
    world.step.errors[1] = SuspectError()
    suspect = asyncio.create_task(world.isolation(message(1)))
    await turns()
    before = list(world.step.begun)
    in_company = await world.starts(1)
    world.step.gates[0].set()
    await asyncio.gather(company, suspect)

    assert before == [0, 1]
    assert in_company == 0
    assert world.step.begun == [0, 1, 1]


async def test_the_process_is_told_alone_from_in_company(world: World) -> None:
    seen: list[bool] = []
    async with world.room.together():
        seen.append(world.room.is_alone)
    async with world.room.alone():
        seen.append(world.room.is_alone)

    assert [*seen, world.room.is_alone] == [False, True, False]


async def test_after_five_tries_the_step_sets_it_aside_and_it_is_never_run_again(
    world: World,
) -> None:
    await world.died(0, CRASHES)
    await world.follow_the_dead()
    await world.isolation(message(0))
    with capture_logs() as logs:
        await world.isolation(message(0))

    assert world.step.begun == []
    assert world.step.buried == [message(0)]
    assert [one["event"] for one in logs] == ["message_passed_by"]
    assert await world.starts(0) == SET_ASIDE


async def test_what_could_not_be_set_aside_yet_is_tried_again_as_before(world: World) -> None:
    await world.died(0, CRASHES)
    await world.follow_the_dead()
    world.step.is_buried = False
    await world.isolation(message(0))
    after_deferral = await world.starts(0)
    world.step.is_buried = True
    await world.isolation(message(0))

    assert after_deferral == CRASHES
    assert len(world.step.buried) == 2


async def test_what_kills_even_while_it_is_set_aside_is_a_letter_unread(world: World) -> None:
    await world.died(0, CRASHES + BURIALS)
    await world.follow_the_dead()
    await world.isolation(message(0))

    assert (world.step.begun, world.step.buried) == ([], [])
    assert world.grave.buried == [(message(0), STAGE)]
    assert await world.starts(0) == SET_ASIDE


async def test_what_was_set_aside_waits_for_nobody_and_is_let_in_again_at_once(
    world: World,
) -> None:
    await world.died(0, SET_ASIDE)
    await world.follow_the_dead()
    company = world.begin(1)
    await turns()
    await asyncio.wait_for(world.isolation(message(0)), timeout=5)
    await world.deliveries.remove(STAGE, "subject 0")
    await world.isolation(message(0))
    world.step.gates[1].set()
    await company

    assert world.step.begun == [1, 0]


@pytest.mark.parametrize("key", [None, b"", b"x" * (LONGEST_SUBJECT + 1)])
async def test_what_names_nothing_is_counted_by_its_place(world: World, key: bytes | None) -> None:
    await world.follow_the_dead()
    world.step.gates[7] = asyncio.Event()
    running = asyncio.create_task(
        world.isolation(message(7).model_copy(update={"key": key})),
    )
    await turns()
    counted = await world.left()
    world.step.gates[7].set()
    await running

    assert counted == {"topic/0/7"}


async def test_who_waits_for_others_to_be_alone_waits_for_one_of_them_only(world: World) -> None:
    for offset in (1, 2):
        await world.died(offset, 1)
    await world.follow_the_dead()
    tasks = [world.begin(offset) for offset in range(4)]
    await turns()
    ended: list[int] = []
    while len(ended) < len(tasks):
        running = [offset for offset in world.step.begun if offset not in ended]
        for offset in running:
            world.step.gates[offset].set()
        ended += running
        await turns()
    await asyncio.gather(*tasks)

    assert world.step.begun == [0, 1, 3, 2]


async def test_who_is_held_up_sees_that_something_moves_and_nothing_otherwise(
    world: World,
) -> None:
    seen: list[int] = []
    async with world.room.together():
        pass
    seen.append(world.isolation.moves)
    async with world.room.together():
        alone = asyncio.create_task(_be(world.room))
        await turns()
    seen.append(world.isolation.moves)
    await alone
    seen.append(world.isolation.moves)

    assert seen == [0, 1, 2]


def pool_of(world: World, drain_timeout: timedelta) -> Pool:
    limits = PoolLimits(
        concurrency=1, drain_timeout=drain_timeout, commit_timeout=timedelta(seconds=1)
    )
    return Pool(world.isolation, limits, name="p", consumer=lambda: None, isolation=world.isolation)


async def test_a_pool_tells_of_its_partitions_and_is_not_stuck_while_it_is_held_up(
    world: World,
) -> None:
    pool = pool_of(world, timedelta(seconds=1))
    await world.follow_the_dead()
    await pool.on_partitions_assigned([PARTITION])
    world.step.gates[0] = asyncio.Event()
    pool.submit(message(0))
    await turns()
    counted = await world.left()
    world.step.gates[0].set()
    await turns()
    before = pool.progress
    await _be(world.room)
    moved = pool.progress - before
    await pool.on_partitions_revoked([PARTITION])

    assert (counted, before, moved) == ({"subject 0"}, 1, 1)
    assert await world.deliveries.unended(STAGE) == set()


async def test_a_pool_keeps_the_mark_of_a_partition_whose_work_goes_on(world: World) -> None:
    pool = pool_of(world, timedelta(milliseconds=1))
    await pool.on_partitions_assigned([PARTITION])
    world.step.gates[0] = asyncio.Event()
    pool.submit(message(0))
    await turns()
    await pool.on_partitions_revoked([PARTITION])
    left = await world.deliveries.unended(STAGE)
    world.step.gates[0].set()
    await turns()

    assert left == {MARK}


async def _be(room: Room) -> None:
    async with room.alone():
        pass


@pytest.mark.parametrize("is_let_in", [False, True])
async def test_who_is_cancelled_at_the_door_keeps_nobody_out(
    world: World, *, is_let_in: bool
) -> None:
    """Also at the very moment it is let in."""
    room, order = world.room, list[str]()

    async def enter(name: str, *, alone: bool) -> None:
        async with room.alone() if alone else room.together():
            order.append(name)

    async with room.together():
        leaver = asyncio.create_task(enter("leaver", alone=True))
        behind = asyncio.create_task(enter("behind", alone=False))
        await turns()
        if not is_let_in:
            leaver.cancel()
            await turns()
            assert order == ["behind"]
    leaver.cancel()
    await asyncio.wait_for(behind, timeout=5)
    await asyncio.wait_for(enter("alone", alone=True), timeout=5)

    assert order == ["behind", "alone"]
    assert not room.is_alone
