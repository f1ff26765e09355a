"""The system's clock."""

from datetime import UTC, datetime

from schemas.event import moment


class SystemClock:
    """Time as this machine has it."""

    def now(self) -> datetime:
        """Return the aware UTC time, cut to milliseconds."""
        return moment(datetime.now(UTC))
