"""One piece of long-term memory: the fold of the assertions of its slot."""

from datetime import datetime
from enum import StrEnum

from pydantic import JsonValue

from schemas.assertion import Evidence
from schemas.base import Frozen
from schemas.identity import Scope
from schemas.memory import Content, RecordKind
from schemas.tombstone import Bar


class RunState(StrEnum):
    """How a run of one content stands."""

    CURRENT = "current"
    REPLACED = "replaced"
    """It was so; a later assertion closed it."""
    WRONG = "wrong"
    """It never was so; a later assertion corrected it."""
    ENDED = "ended"
    """It was so and is over."""
    PAST = "past"
    """It was over when it was said."""


class ContentRun(Frozen):
    """One content of a record, from the first assertion that says it to the one that ends it."""

    memory_id: str
    """What readers know it by: it stays when a direct save corrects or replaces the content."""
    content: Content
    state: RunState
    assertions: tuple[str, ...]
    """Their ids, in source order; how often it was said is their number."""
    evidence: tuple[Evidence, ...]
    confidence: float
    first_at: datetime
    last_at: datetime
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    closed_at: datetime | None = None
    closed_by: str | None = None
    """The assertion that closed it."""
    metadata: dict[str, JsonValue] | None = None
    """Of the direct save that was the last to say it."""
    fields: dict[str, JsonValue] | None = None
    source: str | None = None
    """What the last direct save named as its source; none where all was extracted."""
    agents: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    """Whose and which conversations' assertions it rests on, by their own names, each once."""


class Record(Frozen):
    """One record a slot; one without runs is a shell, kept so that its `rev` only ever grows."""

    record_id: str
    """The slot's opaque id."""
    scope: Scope
    kind: RecordKind
    key: str = ""
    """Empty, as the subject is, in a shell whose content was forgotten."""
    subject: str = ""
    runs: tuple[ContentRun, ...]
    """In source order of their first assertion."""
    rev: int
    bar: Bar | None = None
    """What its slot may not hold any more, if anything of it was forgotten."""
