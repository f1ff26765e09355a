"""When a turn counts as said: never after it was recorded, nor before the turn before it."""

from collections.abc import Iterable
from datetime import datetime

from schemas.turn import Turn


def effective_times(turns: Iterable[Turn]) -> dict[int, datetime]:
    """Return the effective time of each turn by its seq.

    It is the running maximum, along seq, of the earlier of `created_at` and `recorded_at`. Give
    all turns of a snapshot, whichever part of it is looked at, so that a split changes nothing.
    """
    times: dict[int, datetime] = {}
    latest: datetime | None = None
    for turn in sorted(turns, key=lambda turn: turn.seq):
        said = min(turn.created_at, turn.recorded_at)
        latest = said if latest is None else max(latest, said)
        times[turn.seq] = latest
    return times
