"""Work on messages in parallel: bounded, with back-pressure, held where their fate is unwritten.

One law: an offset is completed only when the step returned, which it does once a durable record
says what became of the message. A step that raises holds its message: it is tried again, for ever,
and its partition rests meanwhile. Nothing here counts attempts, and nothing is skipped.

What is read goes to a pool at once, so that the loop that reads is always reading and the group's
`max_poll_interval` measures that loop only. A full pool pauses its partitions instead of blocking.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import structlog
from aiokafka import TopicPartition
from aiokafka.abc import ConsumerRebalanceListener

from consumers.commits import COMMIT_INTERVAL, Commits, PartitionConsumer, Progress
from consumers.due import DueTimes
from consumers.isolation import Isolation
from pipeline.clock import SystemClock
from pipeline.ending import end
from pipeline.failing.gating import HeldError
from pipeline.metrics import NO_METRICS, Metrics
from pipeline.ports.clocks import Clock
from pipeline.ports.step import Step
from schemas.message import IncomingMessage

FIRST_HOLD: Final = timedelta(seconds=1)
LONGEST_HOLD: Final = timedelta(seconds=30)
RESTING_AHEAD: Final = 100
"""How many messages of a partition may be read before they are due."""
CANCEL_TIMEOUT: Final = timedelta(seconds=5)
"""How long work that was cancelled may take to give back what it holds."""

SerialBy = Callable[[IncomingMessage], Hashable | None]
"""Names what a message may not share with another that runs; none: it may run beside any."""

log = structlog.get_logger(__name__)


def key_of(message: IncomingMessage) -> bytes | None:
    """Return a message's key, so that those of one key run one after another."""
    return message.key


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """How much, how long."""

    concurrency: int
    """Steps at once; as many messages again may wait for one."""
    drain_timeout: timedelta
    """How long work may go on when its partition, or everything, is taken away."""
    commit_timeout: timedelta
    commit_interval: timedelta = COMMIT_INTERVAL
    first_hold: timedelta = FIRST_HOLD
    longest_hold: timedelta = LONGEST_HOLD
    serial_by: SerialBy | None = None
    """Messages of a partition for which it returns the same run one after another."""


@dataclass(eq=False, slots=True)
class _Lane:
    """One assignment of one partition, from `assign` to `revoke`; never used again after."""

    progress: Progress
    waiting: deque["_Work"] = field(default_factory=deque["_Work"])
    held: set["_Work"] = field(default_factory=set["_Work"])
    tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    """Attempts that run."""
    delays: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    """Waits until something is due."""
    busy: set[Hashable] = field(default_factory=set[Hashable])
    """What runs, by what only one may have."""
    is_unreadable: bool = False
    """Its next record can't be read; after a while it is tried again."""
    is_broken: bool = False
    """Nothing was read since it came to a record that can't be."""
    is_closing: bool = False
    """Nothing is begun any more; what runs may still complete."""
    is_gone: bool = False
    """Completions change nothing any more."""
    is_paused: bool = False

    def close(self) -> None:
        """Begin nothing any more: what waits or is held is read again by whoever comes next."""
        self.is_closing = True
        self.waiting.clear()
        for work in self.held:
            work.cancel_timer()
        self.held.clear()
        for delay in self.delays:
            delay.cancel()


@dataclass(eq=False, slots=True)
class _Work:
    """A message on its way through the pool."""

    lane: _Lane
    message: IncomingMessage
    alone_of: Hashable | None
    """What no other may run with; none: any may run beside it."""
    is_due: bool = True
    is_resting: bool = False
    """It is known not to be due yet."""
    holds: int = 0
    timer: asyncio.TimerHandle | None = None

    @property
    def offset(self) -> int:
        return self.message.at.offset

    def cancel_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()


class Pool(ConsumerRebalanceListener):
    """Works on what one subscriber reads; also the listener of its rebalances.

    Concurrency: everything happens on one event loop; `submit` never waits and never raises.
    """

    def __init__(
        self,
        step: Step,
        limits: PoolLimits,
        *,
        name: str,
        consumer: Callable[[], PartitionConsumer | None],
        due: DueTimes | None = None,
        clock: Clock | None = None,
        metrics: Metrics = NO_METRICS,
        isolation: Isolation | None = None,
    ) -> None:
        self.name = name
        self._isolation = isolation
        self._metrics = metrics
        self._step = step
        self._limits = limits
        self._consumer = consumer
        self._due = due
        self._clock = clock or SystemClock()
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._again: deque[_Work] = deque()
        """Held ones whose wait is over."""
        self._running = 0
        self._is_full = False
        self._is_draining = False
        self._commits = Commits(
            consumer,
            timeout=limits.commit_timeout,
            interval=limits.commit_interval,
            on_failure=lambda: metrics.commit_failed(name),
        )
        self._committing: asyncio.Task[None] | None = None
        self.last_progress_at: datetime | None = None
        """When a step last returned, or a partition was last given."""
        self._returned = 0
        self.is_assigned = False
        """Whether it was given its partitions, be it none, since they were last taken."""

    # What happens to a message

    def submit(self, message: IncomingMessage) -> None:
        """Take a message that was read; it is worked on when there is room and it is due.

        One of a partition we don't have (any more) is left for whoever has it.
        """
        partition = TopicPartition(message.at.topic, message.at.partition)
        lane = self._lanes.get(partition)
        if lane is None or lane.is_closing or self._is_draining:
            return
        lane.is_broken = False
        if lane.progress.watermark.is_behind(message.at.offset):
            lane = self._begun_anew(lane, message)
        if not lane.progress.watermark.register(message.at.offset):
            return
        by = self._limits.serial_by
        work = _Work(lane, message, None if by is None else by(message))
        lane.waiting.append(work)
        if self._due is not None:
            self._delay(work, self._due)
        self._turn()

    def _begun_anew(self, lane: _Lane, message: IncomingMessage) -> _Lane:
        """Start anew with a partition that is read from an earlier offset than it was.

        While it is ours, offsets only grow: this is another log of the same name, of a topic that
        was made again. What was read of the old one says nothing about it.
        """
        partition = lane.progress.partition
        log.warning(
            "log_began_anew",
            topic=partition.topic,
            partition=partition.partition,
            offset=message.at.offset,
        )
        lane.close()
        lane.is_gone = True
        fresh = self._lanes[partition] = _Lane(Progress(partition), is_paused=lane.is_paused)
        return fresh

    def rest(self, partition: TopicPartition) -> None:
        """Read nothing of a partition for a while: its next record can't be read."""
        lane = self._lanes.get(partition)
        if lane is None:
            return
        lane.is_unreadable = lane.is_broken = True
        self._turn()
        asyncio.get_running_loop().call_later(
            self._limits.longest_hold.total_seconds(), self._rested, lane
        )

    def _rested(self, lane: _Lane) -> None:
        lane.is_unreadable = False
        self._turn()

    def _delay(self, work: _Work, due: DueTimes) -> None:
        work.is_due = False
        read_at = asyncio.get_running_loop().time()

        async def wait() -> None:
            if await due.remaining(work.message, read_at=read_at) > 0:
                work.is_resting = True
                self._turn()
                await due.wait(work.message, read_at=read_at)
            work.is_due, work.is_resting = True, False
            self._turn()

        delay = asyncio.create_task(wait())
        work.lane.delays.add(delay)
        delay.add_done_callback(work.lane.delays.discard)

    def _turn(self) -> None:
        """Begin what can begin, then pause and resume."""
        while self._running < self._limits.concurrency and (work := self._next()) is not None:
            self._begin(work)
        waiting = sum(not work.is_resting for lane in self._lanes.values() for work in lane.waiting)
        if waiting >= self._limits.concurrency:
            self._is_full = True
        elif waiting <= self._limits.concurrency // 2:
            self._is_full = False
        for lane in self._lanes.values():
            self._pause(lane, self._is_full or self._is_draining or _rests(lane))
        self._metrics.holding(self.name, self.held)

    def _next(self) -> _Work | None:
        while self._again:
            work = self._again.popleft()
            if work in work.lane.held:
                return work
        for partition, lane in self._lanes.items():
            if lane.held or lane.is_closing:
                continue
            work = self._first_ready(lane)
            if work is not None:
                lane.waiting.remove(work)
                # The next turn is another partition's.
                self._lanes[partition] = self._lanes.pop(partition)
                return work
        return None

    def _first_ready(self, lane: _Lane) -> _Work | None:
        for work in lane.waiting:
            if work.is_due and (work.alone_of is None or work.alone_of not in lane.busy):
                return work
        return None

    def _begin(self, work: _Work) -> None:
        self._running += 1
        if work.alone_of is not None:
            work.lane.busy.add(work.alone_of)
        task = asyncio.create_task(self._attempt(work))
        work.lane.tasks.add(task)
        task.add_done_callback(lambda ended: self._attempt_ended(work, ended))

    async def _attempt(self, work: _Work) -> None:
        try:
            await self._step(work.message)
        except Exception as error:  # whatever it is: the fate is not written, so it is held
            self._hold(work, error)
        else:
            self._complete(work)

    def _attempt_ended(self, work: _Work, task: asyncio.Task[None]) -> None:
        self._running -= 1
        work.lane.tasks.discard(task)
        if work.alone_of is not None and work not in work.lane.held:
            work.lane.busy.discard(work.alone_of)
        self._turn()

    def _complete(self, work: _Work) -> None:
        work.lane.held.discard(work)
        self._returned += 1
        self.last_progress_at = self._clock.now()
        if work.lane.is_gone:
            log.info("late_completion_ignored", **_where(work))
            return
        work.lane.progress.watermark.complete(work.offset)
        self._commits.note_completion()

    def _hold(self, work: _Work, error: Exception) -> None:
        if work.lane.is_closing:
            return
        work.lane.held.add(work)
        seconds = min(
            self._limits.first_hold.total_seconds() * 2 ** min(work.holds, 16),
            self._limits.longest_hold.total_seconds(),
        )
        if isinstance(error, HeldError) and error.again_in is not None:
            seconds = min(error.again_in.total_seconds(), self._limits.longest_hold.total_seconds())
        work.holds += 1
        self._metrics.message_held(self.name)
        log.warning(
            "message_held",
            **_where(work),
            exception=f"{type(error).__module__}.{type(error).__qualname__}",
            reason=error.reason if isinstance(error, HeldError) else None,
            holds=work.holds,
            again_in_seconds=seconds,
        )
        work.timer = asyncio.get_running_loop().call_later(seconds, self._try_again, work)

    def _try_again(self, work: _Work) -> None:
        self._again.append(work)
        self._turn()

    def _pause(self, lane: _Lane, is_paused: bool) -> None:
        consumer = self._consumer()
        partition = lane.progress.partition
        if lane.is_paused == is_paused or consumer is None:
            return
        if partition not in consumer.assignment():
            return
        lane.is_paused = is_paused
        if is_paused:
            consumer.pause(partition)
        else:
            consumer.resume(partition)

    # What happens to partitions

    def start(self) -> None:
        """Commit what will be completed, from now until `stop`."""
        self._is_draining = False
        if self._committing is None:
            self._committing = asyncio.create_task(self._commits.run(self._progresses))

    async def on_partitions_assigned(  # pyright: ignore[reportIncompatibleMethodOverride] (may be either)
        self, assigned: Collection[TopicPartition]
    ) -> None:
        """Start anew with these."""
        for partition in assigned:
            if partition in self._lanes:
                self._lanes[partition].close()
                self._lanes[partition].is_gone = True
            self._lanes[partition] = _Lane(Progress(partition))
            if self._isolation is not None:
                self._isolation.assigned(partition)
        self.is_assigned = True
        self.last_progress_at = self._clock.now()
        self._turn()

    async def on_partitions_revoked(  # pyright: ignore[reportIncompatibleMethodOverride] (may be either)
        self, revoked: Collection[TopicPartition]
    ) -> None:
        """Let what runs finish within the drain, commit it, and let go."""
        self.is_assigned = False
        await self._give_up([self._lanes[each] for each in revoked if each in self._lanes])

    async def stop(self) -> None:
        """Drain within the limit, cancel what is left, commit. The consumer is still there."""
        self._is_draining = True
        self._turn()
        lanes = list(self._lanes.values())
        await self._give_up(lanes, cancels=True)
        if self._committing is not None:
            await end([self._committing])
            self._committing = None

    async def _give_up(self, lanes: Iterable[_Lane], *, cancels: bool = False) -> None:
        given_up = list(lanes)
        for lane in given_up:
            lane.close()
        self._turn()
        tasks = {task for lane in given_up for task in lane.tasks}
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=self._limits.drain_timeout.total_seconds())
            if left:
                log.warning("drain_timed_out", pool=self.name, left=len(left), cancels=cancels)
            if left and cancels:
                await end(left, within=CANCEL_TIMEOUT)
        await self._commits.commit([lane.progress for lane in given_up])
        if self._isolation is not None:
            ended = [lane for lane in given_up if all(task.done() for task in lane.tasks)]
            await self._isolation.given_back([lane.progress.partition for lane in ended])
        for lane in given_up:
            lane.is_gone = True
            if self._lanes.get(lane.progress.partition) is lane:
                del self._lanes[lane.progress.partition]

    def _progresses(self) -> list[Progress]:
        return [lane.progress for lane in self._lanes.values() if not lane.is_gone]

    # What may be seen from outside

    @property
    def in_flight(self) -> int:
        """How many steps run."""
        return self._running

    @property
    def held(self) -> int:
        """How many messages are held because their fate can't be written or they can't be read."""
        return sum(len(lane.held) + lane.is_broken for lane in self._lanes.values())

    def unreadable(self) -> set[TopicPartition]:
        """Return the partitions whose next record can't be read, as far as was tried."""
        return {partition for partition, lane in self._lanes.items() if lane.is_broken}

    @property
    def commit_failures(self) -> int:
        """How many commits Kafka did not take."""
        return self._commits.failures

    @property
    def progress(self) -> int:
        """How many steps have returned, ever, here or elsewhere while these had to wait for it."""
        return self._returned + (0 if self._isolation is None else self._isolation.moves)

    def working(self) -> set[TopicPartition]:
        """Return the partitions that neither rest nor wait for something to be due."""
        return {
            partition
            for partition, lane in self._lanes.items()
            if not _rests(lane)
            and (lane.tasks or not lane.waiting or not lane.waiting[0].is_resting)
        }

    def next_due_ms(self) -> dict[TopicPartition, int]:
        """Return when the first message of each partition that waits is due."""
        if self._due is None:
            return {}
        return {
            partition: self._due.due_ms(lane.waiting[0].message)
            for partition, lane in self._lanes.items()
            if lane.waiting and lane.waiting[0].is_resting
        }


def _rests(lane: _Lane) -> bool:
    resting = sum(work.is_resting for work in lane.waiting)
    return lane.is_unreadable or bool(lane.held) or resting >= RESTING_AHEAD


def _where(work: _Work) -> dict[str, str | int]:
    at = work.message.at
    return {"topic": at.topic, "partition": at.partition, "offset": at.offset, "group": at.group}
