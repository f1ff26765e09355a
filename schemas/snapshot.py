"""A contiguous run of turns of one session, cut once, handed to extraction."""

from datetime import datetime
from enum import StrEnum

from schemas.base import Frozen
from schemas.identity import SessionIdentity


class CutReason(StrEnum):
    """Why the open turns of a session became a snapshot."""

    FULL = "full"
    IDLE = "idle"
    CLOSED = "closed"


class Snapshot(Frozen):
    """One tile of a session. Snapshots of a session tile it from turn 1 to the cut (I1)."""

    snapshot_id: str
    session: str
    identity: SessionIdentity
    incarnation: int
    first_seq: int
    last_seq: int
    reason: CutReason
    created_at: datetime
    active_run: int = 0
    """The run whose assertions count; 0 is the live one."""
    settled: bool = False
    summary: str | None = None
