"""Work that waits and does not move is a stall; what rests, or is nobody's fault, is none."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from aiokafka import TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from consumers.health_progress import ProgressWatch, Watched
from consumers.lag import PartitionLag
from pipeline.errors import BrokerUnavailableError
from schemas.topics import Topic
from tests.unit.test_pool import Consumer, Gated, message, pooled, turns

ONE, TWO = TopicPartition("topic", 0), TopicPartition("topic", 1)
PATIENCE = timedelta(seconds=100)
LOOK_SECONDS = 10


class World:
    """A pool, Kafka's view of its group, and a clock."""

    def __init__(self) -> None:
        self.progress = 0
        self.is_assigned = True
        self.partitions = {ONE}
        self.committed: dict[TopicPartition, int] = {ONE: 3}
        self.ends: dict[TopicPartition, int] = {ONE: 3}
        self.is_reachable = True
        self.asked = 0
        self.now = 0.0
        self.watch = ProgressWatch(
            [Watched(name="main", group="group", topics=(), pool=self)],
            lag=self.lag,
            patience=PATIENCE,
            monotonic=lambda: self.now,
        )

    def working(self) -> set[TopicPartition]:
        return self.partitions

    async def lag(self, _group: str, _topics: Sequence[Topic]) -> Sequence[PartitionLag]:
        self.asked += 1
        if not self.is_reachable:
            raise BrokerUnavailableError
        return [
            PartitionLag(
                topic=each.topic,
                partition=each.partition,
                committed=self.committed.get(each),
                end=end,
                messages=end - self.committed.get(each, 0),
            )
            for each, end in self.ends.items()
        ]

    async def look(self, times: int = 30) -> tuple[str, ...]:
        """Look for three times as long as may be; return what is stalled at the end."""
        for _ in range(times):
            self.now += LOOK_SECONDS
            await self.watch.look()
        return self.watch.stalled


async def test_work_that_waits_while_nothing_moves_is_a_stall_after_its_time() -> None:
    world = World()
    world.ends[ONE] = 4
    await world.look(11)
    before = world.watch.stalled
    await world.look(2)

    assert before == ()
    assert world.watch.stalled == ("main",)


async def test_what_moves_again_is_no_stall_any_more() -> None:
    world = World()
    world.ends[ONE] = 4
    assert await world.look() == ("main",)
    world.progress += 1

    assert await world.look(1) == ()


async def test_a_member_that_never_gets_its_partitions_back_is_a_stall() -> None:
    world = World()
    await world.look(2)
    world.is_assigned, world.partitions = False, set()
    world.ends[TWO] = 9

    assert await world.look() == ("main",)


async def test_a_member_that_was_given_none_is_none() -> None:
    world = World()
    world.partitions = set()
    world.ends[TWO] = 9

    assert await world.look() == ()


@pytest.mark.parametrize("why", ["no work", "rests", "commits", "returns", "Kafka is gone"])
async def test_these_are_no_stall(why: str) -> None:
    world = World()
    world.ends[ONE] = 3 if why == "no work" else 1000
    if why == "rests":
        world.partitions = set()
    for _ in range(30):
        world.is_reachable = why != "Kafka is gone"
        world.committed[ONE] += why == "commits"
        world.progress += why == "returns"
        await world.look(1)

        assert world.watch.stalled == ()


async def test_kafka_is_not_asked_while_steps_return() -> None:
    world = World()
    for _ in range(10):
        world.progress += 1
        await world.look(1)

    assert world.asked == 0


@given(moves=st.lists(st.booleans(), max_size=60))
async def test_it_is_a_stall_exactly_if_the_last_move_is_too_long_ago(moves: list[bool]) -> None:
    world = World()
    world.ends[ONE] = 10_000
    world.watch.stalled = ()
    quiet = 0
    for moved in [True, *moves]:
        world.progress += moved
        await world.look(1)
        quiet = 0 if moved else quiet + 1

        # The first quiet look sees what was committed; patience counts from there.
        is_over = (quiet - 1) * LOOK_SECONDS >= PATIENCE.total_seconds()
        assert (world.watch.stalled == ("main",)) == is_over


async def test_a_pool_says_whether_it_has_its_partitions_and_which_of_them_work() -> None:
    step = Gated()
    async with pooled(Consumer(), step) as pool:
        pool.submit(message(0, 0))
        await turns()
        await step.end(0, 0, OSError())

        assert pool.is_assigned
        assert pool.working() == {TWO}
        await pool.on_partitions_revoked([ONE, TWO])

        assert not pool.is_assigned
        assert pool.working() == set()
        await pool.on_partitions_assigned([])

        assert pool.is_assigned
