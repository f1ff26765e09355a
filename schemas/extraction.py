"""One run of extraction over one snapshot: its parts, its claim and its outcome."""

from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from schemas.base import Frozen
from schemas.failure import Attempt, Letter
from schemas.memory import Kind

FORGOTTEN: Final = "forgotten"
"""Why an item is set aside whose slot may not hold it any more."""
BLANK: Final[dict[str, Any]] = {FORGOTTEN: True}
"""What stands in a stored answer in the place of an item that was forgotten."""


class Outcome(StrEnum):
    """What became of an extraction; until then it is pending."""

    RECORDS = "records"
    NOTHING_FOUND = "nothing_found"
    SET_ASIDE = "set_aside"
    PARTIAL = "partial"
    DEAD = "dead"
    GONE = "gone"
    NOT_ASKED = "not_asked"
    """Its project extracts nothing, so no model was asked; a replay can."""


class SetAside(Frozen):
    """An item that became no assertion, and why. Its words stay in the stored answer only."""

    kind: Kind
    index: int
    reason: str
    """A stable code, e.g. `quote_not_found`."""


class Reply(Frozen):
    """What the model answered for a part, as stored: secrets are out already."""

    answer: dict[str, Any]
    """A `schemas.memory.Answer` as JSON."""
    model: str
    finish_reason: str | None
    request_id: str | None
    calls: int
    """Requests made for this answer, re-asks included."""
    prompt_tokens: int | None
    completion_tokens: int | None
    secrets_removed: int = 0
    answered_at: datetime


class PartState(StrEnum):
    """How far a part is."""

    WAITING = "waiting"
    ANSWERED = "answered"
    SPLIT = "split"
    """Replaced by two smaller parts."""
    DEAD = "dead"
    """Its failure is a letter."""


class Part(Frozen):
    """One call's worth of an extraction."""

    first_seq: int
    last_seq: int
    kinds: tuple[Kind, ...]
    """What it may be asked for; once it is answered, what it was asked for."""
    state: PartState = PartState.WAITING
    max_tokens: int | None = None
    """A larger limit than the configured one, after a truncated answer."""
    reply: Reply | None = None
    version: str | None = None
    """Of the extractor that answered: another one may have finished what the first began."""
    set_aside: tuple[SetAside, ...] = ()
    letter_id: str | None = None
    """Of its failure; kept when it is sent back, so that its next failure is the same letter."""
    redrives: int = 0
    """How often an operator sent it back."""
    left_out: tuple[int, ...] = ()
    """Turns that the model is not shown, by their seq."""


class Claim(Frozen):
    """Who works on an extraction, and until when it is his."""

    fence: int
    owner: str
    lease_until_ms: int
    """Server time."""
    message: str
    """`topic/partition/offset` of the message that is being worked on."""
    ticket: str
    """The one it carries; where it is not the live one any more, that message is stale."""


class NextMessage(Frozen):
    """The one live message of an extraction; copies with another ticket are stale."""

    ticket: str
    topic: str
    scheduled_ms: int
    """Server time at which it was decided."""
    due_ms: int
    """Server time at which it may arrive; what is much later is lost and sent again."""
    sent: bool
    taken: bool = False
    """Whether anybody has claimed the extraction for it; what it waited until then is no age."""


class Difference(Frozen):
    """What a run makes otherwise than the one before it, in contents of slots."""

    added: int
    gone: int
    kept: int


class Extraction(Frozen):
    """One run over one snapshot; run 0 is the live one."""

    extraction_id: str
    """snapshot:run"""
    snapshot_id: str
    session: str
    run: int
    version: str | None = None
    """The extractor's version, fixed with the first stored answer."""
    revision: int | None = None
    """Of its project's settings, fixed with the version."""
    parts: tuple[Part, ...] = ()
    fence: int = 0
    claim: Claim | None = None
    crashes: int = 0
    """Claims that ended without a recorded end, in a row."""
    attempts: tuple[Attempt, ...] = ()
    """Every failed one, oldest first; the ladder counts them by class."""
    attempts_before: int = 0
    """How many of them were before the last redrive: ladders begin anew with it."""
    first_seen_ms: int
    """When its age began; time that it was held is not counted."""
    held_since_ms: int | None = None
    next: NextMessage
    unsent_letters: tuple[Letter, ...] = ()
    job_id: str | None = None
    """The replay that began it; none for the live run."""
    difference: Difference | None = None
    """To what counted when a replay's answers were all there."""
    took_over: bool = False
    """Whether it counts, or did, in the place of an earlier run."""
    outcome: Outcome | None = None
    settled_at: datetime | None = None
