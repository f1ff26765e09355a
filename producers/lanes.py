"""One lane a session: its turns are placed one after the other, and what is known of it is kept."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from pipeline.errors import RecordingUnavailableError
from pipeline.ports.turns import NewestTurn, SessionState
from schemas.identity import SessionIdentity

_Place = tuple[str, str | None, str, str]


@dataclass(slots=True, kw_only=True)
class Lane:
    """What this process knows of a session, and the lock that whoever adds to it holds."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
    state: SessionState | None = None
    read_at: float = 0.0
    """When `state` was read, on the monotonic clock."""
    newest: NewestTurn | None = None
    """The newest turn as read, or as acknowledged to this process."""
    is_known: bool = False
    """Whether `newest` says how the session stands; else it is to be read."""

    def forget(self) -> None:
        """Know nothing more: read before anything else is written."""
        self.state = None
        self.newest = None
        self.is_known = False


class Lanes:
    """The lanes in use, and of the idle ones the most recent.

    Args:
        idle: How many idle ones are remembered.
        patience: How long to wait for those who came before.
    """

    def __init__(self, *, idle: int, patience: timedelta) -> None:
        self._idle_capacity = idle
        self._patience_seconds = patience.total_seconds()
        self._in_use: dict[_Place, Lane] = {}
        self._idle: OrderedDict[_Place, Lane] = OrderedDict()

    def __len__(self) -> int:
        return len(self._in_use) + len(self._idle)

    @asynccontextmanager
    async def enter(self, identity: SessionIdentity) -> AsyncGenerator[Lane]:
        """Hold the lane of a session, first come first served.

        Raises:
            RecordingUnavailableError: Those before it take too long; nothing was stored.
        """
        place = (identity.project_id, identity.org_id, identity.user_id, identity.session_id)
        lane = self._in_use.get(place)
        if lane is None:
            lane = self._in_use[place] = self._idle.pop(place, None) or Lane()
        lane.users += 1
        try:
            try:
                async with asyncio.timeout(self._patience_seconds):
                    await lane.lock.acquire()
            except TimeoutError as error:
                raise RecordingUnavailableError("others of this session still wait") from error
            try:
                yield lane
            finally:
                lane.lock.release()
        finally:
            lane.users -= 1
            if lane.users == 0:
                self._rest(place, lane)

    def _rest(self, place: _Place, lane: Lane) -> None:
        del self._in_use[place]
        self._idle[place] = lane
        if len(self._idle) > self._idle_capacity:
            self._idle.popitem(last=False)
