"""What was forgotten, so that nothing brings it back: no word of it is kept here."""

from datetime import datetime
from enum import StrEnum

from schemas.base import Frozen
from schemas.identity import Scope


class BarredTurns(Frozen):
    """Turns that are no evidence any more."""

    session: str
    seqs: tuple[int, ...]


class Bar(Frozen):
    """What a slot may not hold any more, kept with its record."""

    as_of: datetime
    """What was said at or before this moment, by its source, is forgotten."""
    spared: frozenset[str] = frozenset()
    """The assertions of the memories that stood beside what was forgotten: they stay."""
    evidence: tuple[BarredTurns, ...] = ()
    """Whatever rests on one of these turns is forgotten, too."""


class TombstoneLevel(StrEnum):
    """How much was forgotten."""

    RECORD = "record"


class TombstoneState(StrEnum):
    """How far a forgetting is."""

    WRITTEN = "written"
    BARRED = "barred"
    """Readers find nothing of it any more."""
    REMOVED = "removed"
    """What was there is gone; what others wrote meanwhile is looked for once more."""
    DONE = "done"


class Tombstone(Frozen):
    """That a memory of a slot is forgotten, written before anything is removed."""

    tombstone_id: str
    level: TombstoneLevel
    scope: Scope
    slot: str
    memory_id: str
    """The memory that was deleted; those that stood beside it stay."""
    as_of: datetime
    evidence: tuple[BarredTurns, ...]
    state: TombstoneState
