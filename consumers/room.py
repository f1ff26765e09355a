"""Many together, or one alone: who may run in this process at the same time."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class Room:
    """Lets in whoever comes, or one alone.

    Order: as they come. Who waits to be alone holds up all who come after, so that it gets its
    turn; whoever is inside must therefore never wait for one who is not.

    Concurrency: of one event loop; nothing here gives way between a look and what follows it.
    """

    def __init__(self) -> None:
        self.is_alone = False
        """Whether the one inside is alone on purpose."""
        self._inside = 0
        self._waiting: deque[tuple[asyncio.Future[None], bool]] = deque()

    @asynccontextmanager
    async def together(self) -> AsyncGenerator[None]:
        """Be inside beside others."""
        await self._enter(alone=False)
        try:
            yield
        finally:
            self._leave()

    @asynccontextmanager
    async def alone(self) -> AsyncGenerator[None]:
        """Be the only one inside."""
        await self._enter(alone=True)
        try:
            yield
        finally:
            self.is_alone = False
            self._leave()

    async def _enter(self, *, alone: bool) -> None:
        entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (entered, alone)
        self._waiting.append(place)
        self._let_in()
        try:
            await entered
        except asyncio.CancelledError:
            if place in self._waiting:
                self._waiting.remove(place)
                self._let_in()
            else:
                self.is_alone = self.is_alone and not alone
                self._leave()
            raise

    def _leave(self) -> None:
        self._inside -= 1
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting and not self.is_alone:
            entered, alone = self._waiting[0]
            if alone and self._inside:
                return
            self._waiting.popleft()
            self._inside += 1
            self.is_alone = alone
            if not entered.done():
                entered.set_result(None)
