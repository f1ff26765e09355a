"""One accepted item of an extraction, or one direct save: immutable, with its source."""

from datetime import datetime

from pydantic import JsonValue

from schemas.base import Frozen
from schemas.identity import Scope
from schemas.memory import Content, RecordKind, Relation


class Evidence(Frozen):
    """What an assertion rests on: turns of a session and the words quoted from one of them."""

    session: str
    seqs: tuple[int, ...]
    quote: str


class SourcePosition(Frozen):
    """Where an assertion stands among all others; fold sorts by it, never by arrival."""

    effective_at: datetime
    session: str
    seq: int
    item: int

    def key(self) -> tuple[datetime, str, int, int]:
        """Return what to sort by; the assertion's id breaks what ties are left."""
        return (self.effective_at, self.session, self.seq, self.item)


class RestsOn(Frozen):
    """The last assertion of a memory when it was read to be corrected or ended."""

    assertion_id: str
    said_at: datetime


class DirectSave(Frozen):
    """What is known of an assertion that an agent made itself, beside its content."""

    memory_id: str
    """The id that the memory goes by: its own, or that of the memory it corrects or replaces."""
    target: str | None = None
    """The one memory of the slot that it corrects or ends; none: all that its relation closes."""
    source: str
    metadata: dict[str, JsonValue] | None = None
    """The caller's own; it replaces what the memory had."""
    fields: dict[str, JsonValue] | None = None
    """What the caller gave beside the content's own fields; part of what makes it the same."""
    execution_id: str | None = None
    rests_on: RestsOn | None = None
    """What it corrects or ends within its slot: forgotten with that."""


class Assertion(Frozen):
    """Something said, once; removed only by forgetting or by a replay that replaces it."""

    assertion_id: str
    slot: str
    """The opaque id of scope + kind + key; also the id of the record it is folded into."""
    scope: Scope
    kind: RecordKind
    key: str
    """The slot's normalized key in plain words, e.g. `user/home`."""
    subject: str
    content: Content
    relation: Relation
    holds_now: bool
    """False for a statement about a time that is over."""
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    is_time_assumed: bool = False
    """True where a time was given that is no date, so that the turn's own time stands."""
    confidence: float = 1.0
    evidence: Evidence | None
    position: SourcePosition
    extraction_id: str | None
    snapshot_id: str | None
    run: int | None
    part: int | None
    session: str | None
    session_id: str | None = None
    """The conversation by its own name, where it rests on one or was saved for one."""
    agent_id: str | None = None
    saved: DirectSave | None = None
    """None for what was extracted."""
    model: str | None = None
    version: str | None = None
    """The extractor's version."""
