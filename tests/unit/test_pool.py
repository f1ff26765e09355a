"""A pool works on so many messages at once, rests what must rest, and completes what is done."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import CommitFailedError
from structlog.testing import capture_logs

from consumers.due import DueTimes
from consumers.pool import RESTING_AHEAD, Pool, PoolLimits, SerialBy
from schemas.failure import Coordinates
from schemas.message import IncomingMessage
from schemas.topics import RetryTier, Topic

ONE, TWO = TopicPartition("topic", 0), TopicPartition("topic", 1)
NEVER = timedelta(hours=1)
NOT_DUE_MS = 10_000
TIER = RetryTier(
    topic=Topic(name="topic", partitions=2, retention=NEVER, is_log_append_time=True),
    delay=timedelta(seconds=1),
)


class NoTime:
    """A server whose time is 5 seconds, always."""

    async def now_ms(self) -> int:
        return 5000


class Consumer:
    """A consumer that notes what it is told."""

    def __init__(self) -> None:
        self.assigned = {ONE, TWO}
        self.paused: set[TopicPartition] = set()
        self.commits: list[dict[TopicPartition, int]] = []
        self.error: Exception | None = None

    def assignment(self) -> Collection[TopicPartition]:
        return self.assigned

    def pause(self, *partitions: TopicPartition) -> None:
        self.paused |= set(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self.paused -= set(partitions)

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self.error is not None:
            raise self.error
        self.commits.append(dict(offsets))


class Gated:
    """A step whose every run ends when a test says so."""

    def __init__(self) -> None:
        self.runs: dict[tuple[int, int], asyncio.Future[None]] = {}
        self.begun: list[tuple[int, int]] = []

    async def __call__(self, message: IncomingMessage) -> None:
        place = (message.at.partition, message.at.offset)
        self.begun.append(place)
        self.runs[place] = asyncio.get_running_loop().create_future()
        await self.runs[place]

    async def end(self, partition: int, offset: int, error: Exception | None = None) -> None:
        """End a run, and let the pool turn."""
        if error is None:
            self.runs[partition, offset].set_result(None)
        else:
            self.runs[partition, offset].set_exception(error)
        await turns()


@asynccontextmanager
async def pooled(
    consumer: Consumer,
    step: Gated,
    *,
    concurrency: int = 2,
    first_hold: timedelta = NEVER,
    longest_hold: timedelta = NEVER,
    due: DueTimes | None = None,
    serial_by: SerialBy | None = None,
) -> AsyncGenerator[Pool]:
    """Run a pool that has both partitions."""
    limits = PoolLimits(
        concurrency=concurrency,
        drain_timeout=timedelta(milliseconds=20),
        commit_timeout=timedelta(seconds=1),
        commit_interval=timedelta(milliseconds=1),
        first_hold=first_hold,
        longest_hold=longest_hold,
        serial_by=serial_by,
    )
    pool = Pool(step, limits, name="pool", consumer=lambda: consumer, due=due)
    pool.start()
    await pool.on_partitions_assigned([ONE, TWO])
    try:
        yield pool
    finally:
        await pool.stop()


def message(partition: int, offset: int, *, timestamp_ms: int = 0) -> IncomingMessage:
    """Return the message of a place."""
    at = Coordinates(
        topic="topic",
        partition=partition,
        offset=offset,
        timestamp_ms=timestamp_ms,
        group="group",
    )
    return IncomingMessage(at=at, key=None, value=b"", headers=())


async def turns() -> None:
    """Let everything that can happen now happen."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
def consumer() -> Consumer:
    """A consumer."""
    return Consumer()


@pytest.fixture
def step() -> Gated:
    """A step."""
    return Gated()


async def test_a_full_pool_pauses_and_a_half_empty_one_resumes(
    consumer: Consumer, step: Gated
) -> None:
    """As many may wait as may run; then nothing more is fetched, of any partition."""
    async with pooled(consumer, step) as pool:
        seen: list[set[TopicPartition]] = []
        for offset in range(4):
            pool.submit(message(0, offset))
            await turns()
            seen.append(set(consumer.paused))
        for offset in range(2):
            await step.end(0, offset)
            seen.append(set(consumer.paused))

    assert seen == [set(), set(), set(), {ONE, TWO}, set(), set()]
    assert step.begun[:2] == [(0, 0), (0, 1)]


async def test_a_partition_given_to_a_full_pool_is_paused(consumer: Consumer, step: Gated) -> None:
    """Its assignment knows of no pause yet."""
    async with pooled(consumer, step, concurrency=1) as pool:
        for offset in range(2):
            pool.submit(message(0, offset))
        await turns()
        consumer.paused.clear()
        await pool.on_partitions_assigned({TWO})

        assert consumer.paused == {TWO}


async def test_an_unreadable_record_and_a_full_pool_each_keep_a_partition_paused(
    consumer: Consumer, step: Gated
) -> None:
    """It is fetched from again only when both are over, in whichever order they end."""
    async with pooled(
        consumer, step, concurrency=1, longest_hold=timedelta(milliseconds=20)
    ) as pool:
        pool.rest(ONE)
        for offset in range(2):
            pool.submit(message(1, offset))
        await turns()
        seen = [set(consumer.paused)]
        await step.end(1, 0)
        await step.end(1, 1)
        seen.append(set(consumer.paused))
        for offset in range(2, 4):
            pool.submit(message(1, offset))
        await turns()
        await asyncio.sleep(0.05)
        seen.append(set(consumer.paused))
        await step.end(1, 2)
        await step.end(1, 3)
        seen.append(set(consumer.paused))

    assert seen == [{ONE, TWO}, {ONE}, {ONE, TWO}, set()]


async def test_a_partition_is_unreadable_until_something_of_it_is_read(
    consumer: Consumer, step: Gated
) -> None:
    """Not only while it rests: every try that fails again would else look like a recovery."""
    async with pooled(
        consumer, step, concurrency=1, longest_hold=timedelta(milliseconds=1)
    ) as pool:
        pool.rest(ONE)
        async with asyncio.timeout(10):
            while consumer.paused:  # noqa: ASYNC110 (a double has no event)
                await asyncio.sleep(0)
        rested = pool.unreadable(), pool.held
        pool.submit(message(0, 0))
        read = pool.unreadable(), pool.held
        await turns()
        await step.end(0, 0)

    assert rested == ({ONE}, 1)
    assert read == (set(), 0)


async def test_a_held_message_rests_its_partition_only(consumer: Consumer, step: Gated) -> None:
    """Nothing of it is fetched or begun; the slot is free for others; a success ends the rest."""
    async with pooled(consumer, step, first_hold=timedelta(milliseconds=30)) as pool:
        for offset in range(2):
            pool.submit(message(0, offset))
        await turns()
        await step.end(0, 0, OSError())
        while_held = set(consumer.paused), pool.held, pool.in_flight
        pool.submit(message(0, 2))
        pool.submit(message(1, 0))
        await turns()
        begun_while_held = list(step.begun)
        await asyncio.sleep(0.05)
        await step.end(0, 1)
        begun_again = list(step.begun)
        paused_while_tried = set(consumer.paused)
        await step.end(0, 0)
        after = set(consumer.paused), pool.held
        await step.end(1, 0)
        await step.end(0, 2)

    assert while_held == ({ONE}, 1, 1)
    assert begun_while_held == [(0, 0), (0, 1), (1, 0)]
    assert begun_again == [(0, 0), (0, 1), (1, 0), (0, 0)]
    assert paused_while_tried == {ONE}
    assert after == (set(), 0)
    assert step.begun[-1] == (0, 2)


async def test_partitions_take_turns(consumer: Consumer, step: Gated) -> None:
    """A backlog on one does not starve another."""
    async with pooled(consumer, step, concurrency=1) as pool:
        for place in ((0, 0), (0, 1), (0, 2), (1, 0)):
            pool.submit(message(*place))
        await turns()
        await step.end(0, 0)
        await step.end(*step.begun[-1])

        assert (1, 0) in step.begun[:3]


async def test_what_is_not_due_takes_no_room(consumer: Consumer, step: Gated) -> None:
    """A tier that waits long holds up no other, and is read ahead only so far."""
    async with pooled(consumer, step, concurrency=1, due=DueTimes([TIER], NoTime())) as pool:
        for offset in range(RESTING_AHEAD - 1):
            pool.submit(message(0, offset, timestamp_ms=NOT_DUE_MS))
        await turns()
        paused_before = set(consumer.paused)
        pool.submit(message(0, RESTING_AHEAD - 1, timestamp_ms=NOT_DUE_MS))
        pool.submit(message(1, 0))
        await turns()

        assert paused_before == set()
        assert consumer.paused == {ONE}
        assert step.begun == [(1, 0)]
        assert pool.next_due_ms() == {ONE: NOT_DUE_MS + 1000}


async def test_what_is_not_ours_is_left_to_others(consumer: Consumer, step: Gated) -> None:
    """A record of a partition that was taken away, or that is in work, is not begun."""
    async with pooled(consumer, step) as pool:
        pool.submit(message(0, 0))
        pool.submit(message(0, 0))
        await pool.on_partitions_revoked({TWO})
        pool.submit(message(1, 0))
        await turns()

        assert step.begun == [(0, 0)]


async def test_a_late_completion_moves_nothing(consumer: Consumer, step: Gated) -> None:
    """Not of the assignment that is gone, and not of the one that came after it."""
    async with pooled(consumer, step) as pool:
        pool.submit(message(0, 0))
        pool.submit(message(0, 1))
        await turns()
        late = step.runs[0, 1]
        await step.end(0, 0)
        await pool.on_partitions_revoked({ONE})
        after_revoke = consumer.commits[-1]
        await pool.on_partitions_assigned({ONE})
        pool.submit(message(0, 1))
        await turns()
        late.set_result(None)
        await asyncio.sleep(0.02)
        commits = consumer.commits[consumer.commits.index(after_revoke) + 1 :]

    assert after_revoke == {ONE: 1}
    assert all(offsets.get(ONE, 1) == 1 for offsets in commits)
    assert step.begun.count((0, 1)) == 2


async def test_a_revoke_begins_nothing_and_forgets_what_is_held(
    consumer: Consumer, step: Gated
) -> None:
    """What waits or is held is read again by whoever comes next."""
    # Long enough that a machine that is busy revokes before it is over.
    hold = timedelta(milliseconds=500)
    async with pooled(consumer, step, first_hold=hold) as pool:
        pool.submit(message(0, 0))
        await turns()
        await step.end(0, 0, OSError())
        await pool.on_partitions_revoked({ONE})
        await asyncio.sleep(1.2 * hold.total_seconds())

        assert step.begun == [(0, 0)]
        assert pool.held == 0


async def test_a_commit_that_fails_is_tried_again(
    consumer: Consumer, step: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is counted; the offsets are committed when Kafka takes them."""
    monkeypatch.setattr("consumers.commits.FAILURE_BACKOFF", timedelta(milliseconds=1))
    async with pooled(consumer, step) as pool:
        consumer.error = CommitFailedError()
        pool.submit(message(0, 0))
        await turns()
        await step.end(0, 0)
        await asyncio.sleep(0.02)
        failures, commits = pool.commit_failures, list(consumer.commits)
        consumer.error = None
        await asyncio.sleep(0.02)

        assert failures > 0
        assert commits == []
        assert consumer.commits == [{ONE: 1}]


async def test_a_cancelled_step_completes_nothing(consumer: Consumer, step: Gated) -> None:
    """Neither is it held: its partition is on its way out."""
    async with pooled(consumer, step) as pool:
        pool.submit(message(0, 0))
        await turns()
    await turns()

    assert step.runs[0, 0].cancelled()
    assert {offset for offsets in consumer.commits for offset in offsets.values()} <= {0}
    assert pool.in_flight == 0
    assert pool.held == 0


async def test_the_log_names_the_type_of_what_holds_a_message_and_no_word_of_it(
    consumer: Consumer, step: Gated
) -> None:
    async with pooled(consumer, step) as pool:
        pool.submit(message(0, 0))
        await turns()
        with capture_logs() as logs:
            await step.end(0, 0, OSError("words of a conversation"))

    (held,) = [each for each in logs if each["event"] == "message_held"]
    assert held["exception"] == "builtins.OSError"
    assert "words of a conversation" not in repr(logs)


async def test_a_log_that_began_anew_is_committed_from_its_own_start(
    consumer: Consumer, step: Gated
) -> None:
    """A topic that is made again starts at 0: what was committed of the old one says nothing."""
    async with pooled(consumer, step, concurrency=4) as pool:
        for offset in range(3):
            pool.submit(message(0, offset))
        await turns()
        for offset in range(2):
            await step.end(0, offset)
        await until(lambda: consumer.commits == [{ONE: 2}])
        old = step.runs[0, 2]
        for offset in range(2):
            pool.submit(message(0, offset))
        await turns()
        old.set_result(None)
        await step.end(0, 0)
        await until(lambda: consumer.commits == [{ONE: 2}, {ONE: 1}])
        await step.end(0, 1)
        await until(lambda: consumer.commits == [{ONE: 2}, {ONE: 1}, {ONE: 2}])

    assert step.begun == [(0, 0), (0, 1), (0, 2), (0, 0), (0, 1)]


async def test_a_log_that_began_anew_is_read_on_when_the_old_one_rested(
    consumer: Consumer, step: Gated
) -> None:
    async with pooled(consumer, step) as pool:
        pool.submit(message(0, 5))
        await turns()
        await step.end(0, 5, OSError())
        resting = set(consumer.paused)
        pool.submit(message(0, 0))
        await turns()

        assert resting == {ONE}
        assert consumer.paused == set()
        assert pool.held == 0


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 (a commit comes by a timer)
            await asyncio.sleep(0.001)


async def test_a_copy_waits_for_what_it_is_a_copy_of_and_its_neighbours_do_not() -> None:
    """As the turns of a session are embedded: one that takes long may be told of again."""
    said = {0: "one", 1: "one", 2: "two", 3: None, 4: None}
    consumer, step = Consumer(), Gated()
    async with pooled(
        consumer, step, concurrency=5, serial_by=lambda message: said[message.at.offset]
    ) as pool:
        for offset in said:
            pool.submit(message(0, offset))
        await turns()
        beside = step.begun[:]
        await step.end(0, 0)

        assert beside == [(0, 0), (0, 2), (0, 3), (0, 4)]
        assert step.begun[4:] == [(0, 1)]
        for place in ((0, 1), (0, 2), (0, 3), (0, 4)):
            await step.end(*place)
