"""How many model calls one process makes at once: fewer when the vendor says it is too many.

Additive increase, multiplicative decrease (Chiu and Jain, 1989): half as many after a refusal, and
for each answer a little more, up to what is configured.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

REPLAY_SHARE: Final = 4
"""Replays have one in so many of the permits, and one at least."""


class Limiter:
    """Hands out permits.

    Concurrency: of one event loop; nothing here gives way between a look and what follows it.
    """

    def __init__(self, permits: int) -> None:
        self._permits = permits
        self._limit = float(permits)
        self._running = 0
        self._replaying = 0
        self._cuts = 0
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def limit(self) -> int:
        """How many may run at once now."""
        return int(self._limit)

    @asynccontextmanager
    async def permit(self, *, is_replay: bool) -> AsyncGenerator["Permit"]:
        """Wait for a permit, and hold it."""
        while not self._has_room(is_replay=is_replay):
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            finally:
                self._waiters.remove(waiter)
        self._running += 1
        self._replaying += is_replay
        try:
            yield Permit(self, self._cuts)
        finally:
            self._running -= 1
            self._replaying -= is_replay
            self._wake()

    def answered(self) -> None:
        """Allow a little more."""
        self._limit = min(float(self._permits), self._limit + 1 / self._limit)
        self._wake()

    def refused(self, cuts_before: int) -> None:
        """Allow half as much; requests that were on their way together count once.

        Args:
            cuts_before: How often it had been cut when the request was made.
        """
        if cuts_before == self._cuts:
            self._cuts += 1
            self._limit = max(1.0, self._limit / 2)

    def _has_room(self, *, is_replay: bool) -> bool:
        if self._running >= self.limit:
            return False
        return not is_replay or self._replaying < max(1, self.limit // REPLAY_SHARE)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


class Permit:
    """The right to make one call at a time."""

    def __init__(self, limiter: Limiter, cuts: int) -> None:
        self._limiter = limiter
        self._cuts = cuts

    def answered(self) -> None:
        """The vendor answered."""
        self._limiter.answered()

    def refused(self) -> None:
        """The vendor said that it was one too many."""
        self._limiter.refused(self._cuts)
