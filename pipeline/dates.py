"""Dates as models write them, as aware UTC moments."""

import re
from datetime import UTC, datetime
from typing import Final

from schemas.event import moment

_YEARS: Final = range(1000, 3000)
"""Beyond them a date is a slip, and arithmetic on it may leave the calendar."""
_REDUCED: Final = re.compile(r"([0-9]{4})(?:-([0-9]{2}))?")
"""A year, or a month of a year."""


def moment_of(text: str) -> datetime | None:
    """Return the moment of an ISO 8601 date; none if it is no such date.

    A date is its first moment; without an offset it is UTC, because nothing says where it was
    said. A year or a month is its first day.
    """
    written = text.strip()
    reduced = _REDUCED.fullmatch(written)
    if reduced is not None:
        written = f"{reduced[1]}-{reduced[2] or '01'}-01"
    try:
        read = datetime.fromisoformat(written)
    except ValueError:
        return None
    if read.year not in _YEARS:
        return None
    return moment(read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC))
