"""Figures that are slow to read: read once for all who look, and not again while they are fresh."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Generic, TypeVar

from pymongo.errors import PyMongoError

from consumers.status import broker_status, ledger_status
from consumers.wiring import Installation
from pipeline.ending import end
from pipeline.stores.figures import Flow, MongoFigures, Totals

FRESH: Final = timedelta(seconds=3)
"""So old may be what is shown."""
PATIENCE: Final = timedelta(seconds=2)
"""So long a page waits for Kafka; it shows what was known before, or that nothing is."""
HOUR: Final = timedelta(hours=1)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What MongoDB told."""

    status: dict[str, Any]
    totals: Totals
    flow: Flow
    """Of the last hour."""


class Lately(Generic[T]):
    """Something that is read by one at a time, and kept for a while.

    Concurrency: who asks while it is read waits for that reading.
    """

    def __init__(
        self, read: Callable[[], Awaitable[T]], *, monotonic: Callable[[], float], name: str
    ) -> None:
        self._read = read
        self._monotonic = monotonic
        self._name = name
        self._known: T | None = None
        self._known_at: float | None = None
        self._reading: asyncio.Task[T] | None = None

    async def value(self, patience: timedelta | None = None) -> T | None:
        """Return it; after so much patience as it was, none where it was never read.

        Raises:
            Exception: What reading raises.
        """
        if self._known_at is not None and (
            self._monotonic() - self._known_at < FRESH.total_seconds()
        ):
            return self._known
        if self._reading is None:
            self._reading = asyncio.create_task(self._once(), name=self._name)
            self._reading.add_done_callback(_heard)
        within = None if patience is None else patience.total_seconds()
        reading = self._reading
        done, _ = await asyncio.wait((reading,), timeout=within)
        return reading.result() if done else self._known

    def is_stale(self) -> None:
        """Read anew when it is asked for next."""
        self._known_at = None

    async def close(self) -> None:
        """Read no more."""
        if self._reading is not None:
            await end([self._reading])

    async def _once(self) -> T:
        try:
            self._known = await self._read()
            self._known_at = self._monotonic()
            return self._known
        finally:
            self._reading = None


class Figures:
    """What the overview shows of an installation."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._stored = MongoFigures(installation.database)
        self._ledger = Lately(self._read_ledger, monotonic=time.monotonic, name="console.ledger")
        self._broker = Lately(
            lambda: broker_status(installation.settings),
            monotonic=time.monotonic,
            name="console.broker",
        )

    @property
    def stored(self) -> MongoFigures:
        """What reads figures afresh."""
        return self._stored

    async def ledger(self) -> Ledger:
        """Return what MongoDB knows.

        Raises:
            pymongo.errors.PyMongoError: It does not answer.
        """
        found = await self._ledger.value()
        if found is None:
            raise PyMongoError("nothing was read")
        return found

    async def broker(self) -> dict[str, Any] | None:
        """Return what Kafka knows; none where it takes long and was never asked before."""
        return await self._broker.value(PATIENCE)

    def something_was_done(self) -> None:
        """Read MongoDB anew for the next page."""
        self._ledger.is_stale()

    async def close(self) -> None:
        """Read no more."""
        await self._ledger.close()
        await self._broker.close()

    async def _read_ledger(self) -> Ledger:
        now_ms = await self._installation.server_time.now_ms()
        since = datetime.fromtimestamp(now_ms / 1000, UTC) - HOUR
        return Ledger(
            status=await ledger_status(self._installation),
            totals=await self._stored.totals(),
            flow=await self._stored.flow(since),
        )


def _heard(reading: asyncio.Task[T]) -> None:
    """Take note of a failure that nobody may wait for any more."""
    if not reading.cancelled():
        reading.exception()
