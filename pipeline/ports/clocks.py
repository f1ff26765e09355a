"""The clocks the steps go by."""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """This process's idea of time; never used for leases or due times."""

    def now(self) -> datetime:
        """Return the aware UTC time, cut to milliseconds."""
        ...


class ServerTime(Protocol):
    """The database server's time, the one clock that all processes share."""

    async def now_ms(self) -> int:
        """Return it in epoch milliseconds; an offset measured at most half a minute ago."""
        ...
