"""Announcing after the answer: best effort, in the background, never in a caller's way.

What is dropped here, because Kafka is slow or gone, is found by the waker, since the turns it was
about are open.
"""

import asyncio
from datetime import timedelta
from typing import Final

import structlog

from pipeline.crash_points import CrashPoint, reached
from pipeline.ending import end
from pipeline.errors import BrokerUnavailableError
from pipeline.messages import encode
from pipeline.ports.publisher import Publisher
from schemas.event import SessionClosed, TurnRecorded
from schemas.topics import TURN_RECORDED

CAPACITY: Final = 256
TIMEOUT: Final = timedelta(seconds=5)

log = structlog.get_logger(__name__)


class Announcer:
    """Publishes wake-ups in tasks of its own.

    Args:
        publisher: Where they go.
        capacity: How many may be on their way at once; what comes then is dropped.
        timeout: How long one may take.
    """

    def __init__(
        self, publisher: Publisher, *, capacity: int = CAPACITY, timeout: timedelta = TIMEOUT
    ) -> None:
        self._publisher = publisher
        self._capacity = capacity
        self._timeout = timeout
        self._on_their_way: set[asyncio.Task[None]] = set()
        self._is_stopped = False
        self.dropped = 0
        """How many were not even tried, and wait for the waker."""

    def announce(self, event: TurnRecorded | SessionClosed) -> None:
        """Send an event some time after this call; never waits and never raises."""
        if self._is_stopped or len(self._on_their_way) >= self._capacity:
            self.dropped += 1
            return
        task = asyncio.create_task(self._publish(event), name="announce")
        self._on_their_way.add(task)
        task.add_done_callback(self._on_their_way.discard)

    async def drain(self, timeout: timedelta) -> bool:
        """Wait for what is on its way; return whether all of it ended in time."""
        if not self._on_their_way:
            return True
        _, left = await asyncio.wait(self._on_their_way, timeout=timeout.total_seconds())
        return not left

    async def stop(self, timeout: timedelta) -> None:
        """Take nothing more, wait for what is on its way, cancel what takes longer."""
        self._is_stopped = True
        await self.drain(timeout)
        await end(self._on_their_way)

    async def _publish(self, event: TurnRecorded | SessionClosed) -> None:
        try:
            async with asyncio.timeout(self._timeout.total_seconds()):
                await self._publisher.publish(encode(TURN_RECORDED.name, event))
                reached(CrashPoint.TURN_ANNOUNCED)
        except (BrokerUnavailableError, TimeoutError):
            log.debug("wake_up_unsent", session=event.subject)
        except Exception as error:
            # Nobody awaits this task, and the turn is safe: it is open until the waker finds it.
            log.warning("wake_up_failed", session=event.subject, exception=type(error).__qualname__)
