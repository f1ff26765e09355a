"""A letter as a page shows it: bytes as far as they are text, attempts with what lay between."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from schemas.failure import Attempt

BYTES: Final = 64 * 1024
"""So many are shown at most."""
_ROW: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Bytes:
    """Bytes, to be read."""

    text: str
    size: int
    is_text: bool
    """False: in hexadecimal."""
    is_cut: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """One header of a message."""

    name: str
    value: Bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """One attempt, and how long after the one before it it failed."""

    attempt: Attempt
    after: timedelta | None


def bytes_of(value: bytes | None) -> Bytes | None:
    """Return bytes as text where they are UTF-8, else sixteen a line in hexadecimal."""
    if value is None:
        return None
    head = value[:BYTES]
    is_cut = len(value) > len(head)
    try:
        # A character may be cut in two at the end.
        text, is_text = head.decode(errors="strict" if not is_cut else "ignore"), True
    except UnicodeDecodeError:
        rows = range(0, len(head), _ROW)
        text = "\n".join(head[row : row + _ROW].hex(" ") for row in rows)
        is_text = False
    return Bytes(text=text, size=len(value), is_text=is_text, is_cut=is_cut)


def headers_of(headers: Iterable[tuple[str, bytes | None]]) -> list[Header]:
    """Return headers in their order."""
    return [Header(name=name, value=bytes_of(value)) for name, value in headers]


def tries_of(attempts: Iterable[Attempt]) -> list[Try]:
    """Return attempts, the oldest first."""
    found: list[Try] = []
    for attempt in attempts:
        after = attempt.failed_at - found[-1].attempt.failed_at if found else None
        found.append(Try(attempt=attempt, after=after))
    return found
