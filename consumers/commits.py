"""Commits of explicit offsets: coalesced, bounded in time, never past a watermark."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Protocol

import structlog
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from consumers.watermark import Watermark
from pipeline.crash_points import CrashPoint, reached

COMMIT_INTERVAL: Final = timedelta(milliseconds=200)
"""How long completions gather before they are committed together."""
COMMIT_COUNT: Final = 100
"""How many are not waited for."""
FAILURE_BACKOFF: Final = timedelta(seconds=1)

log = structlog.get_logger(__name__)


class PartitionConsumer(Protocol):
    """What is needed of a consumer."""

    def assignment(self) -> Collection[TopicPartition]:
        """Return what it has."""
        ...

    def pause(self, *partitions: TopicPartition) -> None:
        """Fetch nothing of these."""
        ...

    def resume(self, *partitions: TopicPartition) -> None:
        """Fetch of these again."""
        ...

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Store where the group resumes."""
        ...


@dataclass(eq=False, slots=True)
class Progress:
    """How far one assignment of a partition is worked on and committed."""

    partition: TopicPartition
    watermark: Watermark = field(default_factory=Watermark)
    committed: int = -1


class Commits:
    """Commits the progress of partitions, soon after it is made.

    Concurrency: one commit at a time, so that none overtakes another.
    """

    def __init__(
        self,
        consumer: Callable[[], PartitionConsumer | None],
        *,
        timeout: timedelta,
        interval: timedelta = COMMIT_INTERVAL,
        count: int = COMMIT_COUNT,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self._consumer = consumer
        self._timeout = timeout
        self._interval = interval
        self._count = count
        self._on_failure = on_failure
        self._lock = asyncio.Lock()
        self._completions = 0
        self._is_wanted = asyncio.Event()
        self._is_urgent = asyncio.Event()
        self.failures = 0
        """How often Kafka did not take one; what it held is delivered again."""

    def note_completion(self) -> None:
        """Let a commit follow."""
        self._completions += 1
        self._is_wanted.set()
        if self._completions >= self._count:
            self._is_urgent.set()

    async def run(self, progresses: Callable[[], Collection[Progress]]) -> None:
        """Commit whenever there is something to, until cancelled."""
        while True:
            await self._is_wanted.wait()
            try:
                async with asyncio.timeout(self._interval.total_seconds()):
                    await self._is_urgent.wait()
            except TimeoutError:
                pass
            self._is_wanted.clear()
            self._is_urgent.clear()
            self._completions = 0
            if not await self.commit(progresses()):
                self._is_wanted.set()
                await asyncio.sleep(FAILURE_BACKOFF.total_seconds())

    async def commit(self, progresses: Collection[Progress]) -> bool:
        """Return whether all that may be committed is."""
        async with self._lock:
            offsets = {
                progress: offset
                for progress in progresses
                if (offset := progress.watermark.committable()) is not None
                and offset > progress.committed
            }
            if not offsets:
                return True
            reached(CrashPoint.BEFORE_COMMIT)
            if not await self._commit({each.partition: at for each, at in offsets.items()}):
                return False
            for progress, offset in offsets.items():
                progress.committed = offset
            return True

    async def _commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        consumer = self._consumer()
        if consumer is None:
            return False
        try:
            async with asyncio.timeout(self._timeout.total_seconds()):
                await consumer.commit(offsets)
        except (KafkaError, TimeoutError, OSError) as error:
            self.failures += 1
            self._on_failure()
            log.warning(
                "commit_failed",
                exception=type(error).__name__,
                partitions=[f"{each.topic}:{each.partition}" for each in offsets],
                failures=self.failures,
            )
            return False
        return True
