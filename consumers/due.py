"""When a message of a retry tier is due: never before its tier's delay has passed.

Due is the broker's append time plus the delay, on the database server's clock, which all processes
share; this machine's clock is not asked. Whatever any clock says, a message that lay here for the
whole delay is due, because it was appended before it was read: so no skew makes anybody wait
longer than the delay from then on.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

import structlog
from pymongo.errors import PyMongoError

from pipeline.ports.clocks import ServerTime
from schemas.message import IncomingMessage
from schemas.topics import RetryTier

LONGEST_SLEEP: Final = timedelta(seconds=30)
"""How long a clock is trusted before it is read again."""

log = structlog.get_logger(__name__)


class DueTimes:
    """Tells how long messages of retry tiers must wait still."""

    def __init__(
        self,
        tiers: Sequence[RetryTier],
        server_time: ServerTime,
        *,
        longest_sleep: timedelta = LONGEST_SLEEP,
    ) -> None:
        self._delay_by_topic: Mapping[str, timedelta] = {
            tier.topic.name: tier.delay for tier in tiers
        }
        self._server_time = server_time
        self._longest_sleep = longest_sleep.total_seconds()

    def due_ms(self, message: IncomingMessage) -> int:
        """Return when it is due, in epoch milliseconds of the broker."""
        return message.at.timestamp_ms + round(self._delay(message) * 1000)

    async def wait(self, message: IncomingMessage, *, read_at: float) -> None:
        """Return when it is due.

        Args:
            message: From a topic of the tiers; of another one, it is due.
            read_at: When it was read, by the event loop's clock.
        """
        while (seconds := await self.remaining(message, read_at=read_at)) > 0:  # noqa: ASYNC110 (time)
            await asyncio.sleep(min(seconds, self._longest_sleep))

    async def remaining(self, message: IncomingMessage, *, read_at: float) -> float:
        """Return how many seconds it must wait still; 0 or less when it is due."""
        at_most = self._delay(message) - (asyncio.get_running_loop().time() - read_at)
        if at_most <= 0:
            return at_most
        try:
            now_ms = await self._server_time.now_ms()
        except PyMongoError as error:
            log.warning("server_time_unknown", exception=type(error).__name__)
            return at_most
        return min(at_most, (self.due_ms(message) - now_ms) / 1000)

    def _delay(self, message: IncomingMessage) -> float:
        return self._delay_by_topic.get(message.at.topic, timedelta(0)).total_seconds()
