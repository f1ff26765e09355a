"""How much a project may store in a day, counted without a command for each turn.

A process counts by itself and adds what it has counted to the sum of all when that is `BATCH`, or
`EVERY` after it last did; with twice a `BATCH` it waits until that is done. So a project stores
more than its quota by less than `2 * BATCH` a process, and a little more where a process is killed:
what it had not added is forgotten.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import structlog
from pymongo.errors import PyMongoError

from pipeline.errors import QuotaExceededError
from pipeline.ports.accounts import Usage
from pipeline.ports.clocks import ServerTime

BATCH: Final = 50
EVERY: Final = timedelta(seconds=10)
_DAY_MS: Final = 24 * 60 * 60 * 1000

log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class _Count:
    """What this process knows of a project's day."""

    day: int
    added: int
    """The sum of all processes, when it was last read."""
    own: int = 0
    """Counted here and not added yet."""
    at: float
    adding: asyncio.Task[None] | None = field(default=None)


class Quota:
    """Counts what projects store.

    Concurrency: any number of callers on one event loop; other processes through `usage`.
    """

    def __init__(
        self,
        limit: int | None,
        *,
        usage: Usage,
        server_time: ServerTime,
        monotonic: Callable[[], float],
    ) -> None:
        self._limit = limit
        self._usage = usage
        self._server_time = server_time
        self._monotonic = monotonic
        self._counts: dict[str, _Count] = {}

    @asynccontextmanager
    async def one_more(self, project_id: str) -> AsyncGenerator["Counted"]:
        """Count what the body stores for a project, unless it fails or says that it is nothing new.

        Raises:
            QuotaExceededError: The project has stored what it may; the day ends with UTC's.
        """
        counted = Counted()
        if self._limit is None:
            yield counted
            return
        now_ms = await self._server_time.now_ms()
        count = await self._count(project_id, now_ms // _DAY_MS)
        while count.adding is not None and count.own >= 2 * BATCH:
            await asyncio.wait([count.adding])
        if count.added + count.own >= self._limit:
            raise QuotaExceededError(
                f"the project has stored the {self._limit} turns and memories it may in a day",
                (_DAY_MS - now_ms % _DAY_MS) / 1000,
            )
        count.own += 1
        self._add_when_due(project_id, count)
        is_stored = False
        try:
            yield counted
            is_stored = counted.is_new
        finally:
            if not is_stored:
                count.own -= 1

    async def close(self) -> None:
        """Add what is not added yet."""
        for project_id, count in self._counts.items():
            if count.adding is not None:
                await asyncio.wait([count.adding])
            await self._add(project_id, count)

    async def _count(self, project_id: str, day: int) -> _Count:
        count = self._counts.get(project_id)
        if count is not None and count.day >= day:
            return count
        added = await self._usage.of(project_id, day)
        # Whoever else waited for the same may have been first.
        count = self._counts.get(project_id)
        if count is None or count.day < day:
            count = _Count(day=day, added=added, at=self._monotonic())
            self._counts[project_id] = count
        return count

    def _add_when_due(self, project_id: str, count: _Count) -> None:
        age = self._monotonic() - count.at
        is_due = count.own >= BATCH or age >= EVERY.total_seconds()
        if is_due and count.own > 0 and count.adding is None:
            count.adding = asyncio.create_task(self._add(project_id, count), name="quota")
            count.adding.add_done_callback(lambda _: _forget(count))

    async def _add(self, project_id: str, count: _Count) -> None:
        """Add what was counted here; if that fails, it is kept and tried again later."""
        own = count.own
        count.at = self._monotonic()
        if own <= 0:
            return
        try:
            await self._usage.add(project_id, count.day, own)
            count.own -= own
            count.added += own
            count.added = max(count.added, await self._usage.of(project_id, count.day))
        except PyMongoError as error:
            log.warning("usage_not_added", exception=type(error).__qualname__)


@dataclass(slots=True)
class Counted:
    """What is being stored."""

    is_new: bool = True
    """Whether it counts in the end."""


def _forget(count: _Count) -> None:
    count.adding = None
