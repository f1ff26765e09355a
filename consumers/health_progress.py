"""Whether consumers move: work that waits for them, and nothing happens, is a process to restart.

A dependency that is down is no reason: a message that is held, a partition that waits until
something is due, or a Kafka that does not answer, would be no better after a restart.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Protocol

import structlog
from aiokafka import TopicPartition

from consumers.lag import PartitionLag
from pipeline.errors import BrokerUnavailableError
from schemas.topics import Topic

STALL_SESSIONS: Final = 4
"""Nothing moved for so many session timeouts: whatever was wrong with the group is over by then."""

log = structlog.get_logger(__name__)


class WatchedPool(Protocol):
    """What is looked at of a pool."""

    @property
    def progress(self) -> int:
        """How many steps have returned, ever."""
        ...

    @property
    def is_assigned(self) -> bool:
        """Whether it was given its partitions, be it none, since they were last taken."""
        ...

    def working(self) -> set[TopicPartition]:
        """Return its partitions that do not rest for a reason."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One subscription that must move."""

    name: str
    group: str
    topics: tuple[Topic, ...]
    pool: WatchedPool


@dataclass(slots=True, kw_only=True)
class _Seen:
    """What a subscription looked like when it last moved."""

    moved_at: float
    progress: int = -1
    is_assigned: bool = False
    committed: dict[TopicPartition, int | None] = field(
        default_factory=dict[TopicPartition, int | None]
    )


Lag = Callable[[str, Sequence[Topic]], Awaitable[Sequence[PartitionLag]]]
"""Returns how far a group is behind on topics."""


class ProgressWatch:
    """Looks at subscriptions again and again.

    Concurrency: one task calls `look`; `stalled` may be read from any thread.
    """

    def __init__(
        self,
        watched: Sequence[Watched],
        *,
        lag: Lag,
        patience: timedelta,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._watched = tuple(watched)
        self._lag = lag
        self._patience = patience.total_seconds()
        self._monotonic = monotonic
        self._seen = {each.name: _Seen(moved_at=monotonic()) for each in watched}
        self.stalled: tuple[str, ...] = ()
        """The subscriptions that have work and have not moved for as long as may be."""

    async def look(self) -> None:
        """Look once; Kafka is asked only about what has not moved since the last look."""
        stalled = tuple([each.name for each in self._watched if await self._is_stalled(each)])
        if set(stalled) - set(self.stalled):
            log.error("consumers_stalled", subscriptions=list(stalled), seconds=self._patience)
        self.stalled = stalled

    async def _is_stalled(self, watched: Watched) -> bool:
        seen, pool = self._seen[watched.name], watched.pool
        now = self._monotonic()
        if (pool.progress, pool.is_assigned) != (seen.progress, seen.is_assigned):
            seen.progress, seen.is_assigned, seen.moved_at = pool.progress, pool.is_assigned, now
            return False
        try:
            lags = await self._lag(watched.group, watched.topics)
        except BrokerUnavailableError:
            seen.moved_at = now
            return False
        behind = {
            TopicPartition(each.topic, each.partition): each.committed
            for each in lags
            if each.messages
        }
        working = pool.working() if pool.is_assigned else set(behind)
        waiting = {each: behind[each] for each in behind.keys() & working}
        if not waiting or waiting != seen.committed:
            seen.committed, seen.moved_at = waiting, now
            return False
        return now - seen.moved_at >= self._patience
