"""Work of operators that takes long: what is selected, how far it is, who runs it."""

from datetime import datetime
from enum import StrEnum

from schemas.base import Frozen
from schemas.identity import Name


class JobState(StrEnum):
    """How a job stands."""

    OPEN = "open"
    """To be run, or being run."""
    PAUSED = "paused"
    """An operator or a limit of its own stopped it; it goes on when it is resumed."""
    CANCELLED = "cancelled"
    DONE = "done"


class Selection(Frozen):
    """Which snapshots: what is given must be so; nothing given is everything."""

    project_id: Name | None = None
    user_id: Name | None = None
    session_id: Name | None = None
    since: datetime | None = None
    """Cut then or later."""
    until: datetime | None = None
    """Cut before then."""


class Replay(Frozen):
    """How a replay is done."""

    selection: Selection
    is_forced: bool = False
    """Also where the version that extracts now is the one that did."""
    token_budget: int | None = None
    """So many tokens of turns at most; then it pauses."""
    stops_at_letter: bool = False
    """Pause as soon as one of its runs makes a letter."""


class JobLease(Frozen):
    """Who runs a job, and until when it is his."""

    owner: str
    until_ms: int
    """Server time."""


class Job(Frozen):
    """A replay, and how far it is."""

    job_id: str
    replay: Replay
    by: str
    """Who asked for it."""
    created_at: datetime
    state: JobState = JobState.OPEN
    reason: str | None = None
    """Why it is paused."""
    cursor: str | None = None
    """The last snapshot that was looked at."""
    begun: int = 0
    """Runs that were begun."""
    skipped: int = 0
    """Snapshots that need none: the same version, or nothing to extract."""
    tokens: int = 0
    """Of the turns of the runs that were begun."""
    lease: JobLease | None = None
    ended_at: datetime | None = None
    rev: int = 0
