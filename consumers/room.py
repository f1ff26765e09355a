"""Many together, or one alone: who may run in this process at the same time."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class Room:
    """Lets in whoever comes, or one alone.

    Order: while somebody waits to be alone, nobody else is let in, so that it gets its turn; after
    it, all who waited are, so that they wait for one only. Whoever is inside must never wait for
    one who is not.

    Concurrency: of one event loop; nothing here gives way between a look and what follows it.
    """

    def __init__(self) -> None:
        self.is_alone = False
        """Whether the one inside is alone on purpose."""
        self.moves = 0
        """How many have left while somebody was alone or waited to be. While this rises, who waits
        outside is held up and not stuck."""
        self._inside = 0
        self._is_turn_of_many = False
        self._many: deque[asyncio.Future[None]] = deque()
        self._ones: deque[asyncio.Future[None]] = deque()
        """Who waits to be alone."""

    @asynccontextmanager
    async def together(self) -> AsyncGenerator[None]:
        """Be inside beside others."""
        await self._enter(self._many)
        try:
            yield
        finally:
            self._leave()

    @asynccontextmanager
    async def alone(self) -> AsyncGenerator[None]:
        """Be the only one inside."""
        await self._enter(self._ones)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, waiting: deque[asyncio.Future[None]]) -> None:
        entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(entered)
        self._let_in()
        try:
            await entered
        except asyncio.CancelledError:
            if entered in waiting:
                waiting.remove(entered)
                self._let_in()
            else:
                self._leave()
            raise

    def _leave(self) -> None:
        self._inside -= 1
        self.moves += self.is_alone or bool(self._ones)
        self._is_turn_of_many |= self.is_alone
        self.is_alone = False
        self._let_in()

    def _let_in(self) -> None:
        if self.is_alone:
            return
        if self._is_turn_of_many or not self._ones:
            self._is_turn_of_many = False
            while self._many:
                self._admit(self._many)
        if self._ones and self._inside == 0:
            self.is_alone = True
            self._admit(self._ones)

    def _admit(self, waiting: deque[asyncio.Future[None]]) -> None:
        entered = waiting.popleft()
        self._inside += 1
        if not entered.done():
            entered.set_result(None)
