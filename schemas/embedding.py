"""What became of a record's embedding: kept with the record, and the ledger of that stage."""

from enum import StrEnum
from typing import Literal

from schemas.base import Frozen
from schemas.failure import Attempt


class EmbeddingState(StrEnum):
    """Whether the vectors of a record are those of its texts."""

    PENDING = "pending"
    EMBEDDED = "embedded"
    REFUSED = "refused"
    """They are, and there are texts that the model won't take."""
    DEAD = "dead"
    """They may not be: it was tried in vain until nothing was left to try; a letter tells why."""


class Writer(Frozen):
    """A process that may write vectors of a record at this moment."""

    name: str
    """Its own alone, and for this one time."""
    since_ms: int
    """Server time."""


class Embedding(Frozen):
    """How far a record's embedding is. Times are epoch milliseconds of server time."""

    state: EmbeddingState
    rev: int = 0
    """Raised by whatever changes it, and by each change of what the record says."""
    model: str | None = None
    """Whose vectors it ended with."""
    refused: tuple[str, ...] = ()
    """The content hashes of the texts that model won't take."""
    reason: str | None = None
    """A stable code: why the first of them was refused, or why it is dead."""
    writers: tuple[Writer, ...] = ()
    """Who has begun and not ended; while somebody else may write, nobody says it is done."""
    since_ms: int = 0
    """When it became pending."""
    due_ms: int = 0
    """While it is pending: when it is to be tried next."""
    ticket: str | None = None
    """Of its one live message; none where that is the first one."""
    attempts: tuple[Attempt, ...] = ()
    """The failed ones since it became pending."""
    first_failed_ms: int | None = None
    deaths: int = 0
    """How often it was given up, ever: its letter counts them."""


class Reembedding(Frozen):
    """How far the way to the vectors of another model is."""

    model: str
    phase: Literal["building", "switched"] = "building"
    """`building`: beside the vectors that are searched; `switched`: they are searched, and what
    others did meanwhile is made up for."""
    cursor: str = ""
    """The last record of the pass that is done with."""
