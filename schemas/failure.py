"""What can go wrong, by class, and what is kept of a failure that was set aside."""

from datetime import datetime
from enum import StrEnum
from typing import Literal

from schemas.base import Frozen
from schemas.topics import Stage


class FailureClass(StrEnum):
    """Whose fault it is. The prefix decides the way: `env` waits, the others do not."""

    NETWORK = "env.network"
    UNAVAILABLE = "env.unavailable"
    RATE_LIMITED = "env.rate_limited"
    QUOTA = "env.quota"
    CREDENTIALS = "env.credentials"
    TIMEOUT = "env.timeout"
    MISSING = "env.missing"
    UNDECODABLE = "content.undecodable"
    UNKNOWN_VERSION = "content.unknown_version"
    BAD_REQUEST = "content.bad_request"
    CONTEXT_LENGTH = "content.context_length"
    REFUSED = "content.refused"
    FILTERED = "content.filtered"
    TRUNCATED = "content.truncated"
    INVALID_OUTPUT = "content.invalid_output"
    TOO_SLOW = "content.too_slow"
    MODEL_UNKNOWN = "config.model_unknown"
    PARAMETER_UNKNOWN = "config.parameter_unknown"
    UNCLASSIFIED = "bug.unclassified"
    CRASH_LOOP = "bug.crash_loop"
    FATE_UNWRITTEN = "infra.fate_unwritten"

    @property
    def is_environmental(self) -> bool:
        """Whether the condition could change without the request changing."""
        return self.value.startswith("env.")

    @property
    def is_content(self) -> bool:
        """Whether the content itself is the cause: another try can't help, a change may."""
        return self.value.startswith("content.")


class Failure(Frozen):
    """One failed attempt, classified; it holds no word of a conversation and no secret."""

    failure_class: FailureClass
    reason: str
    """A stable code, e.g. `http_429` or `two_tool_calls`."""
    exception: str
    """The type of the error at the root, e.g. `openai.RateLimitError`."""
    retry_after_seconds: float | None = None
    """What the other side asked us to wait, if it did."""
    request_id: str | None = None
    """The vendor's id of the failed request."""
    finish_reason: str | None = None
    """Why the model stopped, in its vendor's word, if it answered."""
    frame: str | None = None
    """Our innermost frame, `module:function`; part of the fingerprint."""


class Attempt(Frozen):
    """A failure and when it was."""

    failure: Failure
    failed_at: datetime


class Coordinates(Frozen):
    """Where a message lies in Kafka."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    group: str


class LetterState(StrEnum):
    """How a letter stands."""

    DEAD = "dead"
    WAITING = "waiting"
    """Sent back, and under way."""
    RESOLVED = "resolved"
    """What it was about has been done; of a message that could not be read: it was sent back."""
    DISCARDED = "discarded"


class Letter(Frozen):
    """A dead letter: a failure set aside with everything known of it."""

    letter_id: str
    stage: Literal["snapshot", "extraction", "embedding"]
    failure_class: FailureClass
    reason: str
    disposition: Literal["content", "exhausted"]
    """`exhausted`: send it back when the fault is gone; `content`: it needs a change."""
    fingerprint: str
    action: str
    """The recommended action, in a sentence."""
    attempts: tuple[Attempt, ...]
    original: Coordinates | None
    key: bytes | None = None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    session: str | None = None
    project_id: str | None = None
    snapshot_id: str | None = None
    extraction_id: str | None = None
    part: int | None = None
    record_id: str | None = None
    """Of the record that can't be embedded."""
    turn_id: str | None = None
    """Of the turn that can't be embedded."""
    model: str | None = None
    """The model that is configured, where one was to be asked."""
    created_at: datetime
    """When it died first."""
    died_at: datetime | None = None
    """When it died last, if more than once."""
    deaths: int = 1
    """How often it died: sent back and failed again, it is the same letter."""
    state: LetterState = LetterState.DEAD
    discarded_for: str | None = None
    """Why nobody will send it back: a code an operator chose."""
    job_id: str | None = None
    """The job that sent it back last."""

    @property
    def owner_id(self) -> str | None:
        """Of the record or turn that can't be embedded, where it is about one."""
        return self.record_id or self.turn_id

    @property
    def last_death(self) -> datetime:
        """When it died last."""
        return self.died_at or self.created_at


class LetterQuery(Frozen):
    """Which letters: what is given must be so, what is none may be anything."""

    letter_id: str | None = None
    state: LetterState | None = None
    stage: Stage | None = None
    failure_class: FailureClass | None = None
    reason: str | None = None
    fingerprint: str | None = None
    disposition: Literal["content", "exhausted"] | None = None
    project_id: str | None = None
    projects: tuple[str | None, ...] | None = None
    """It is of one of these, where none is "of no project"."""
    session: str | None = None
    """The opaque key of one."""
    model: str | None = None
    topic: str | None = None
    """Where the message lay that failed."""
    since: datetime | None = None
    """It died first then or later."""
    until: datetime | None = None
    """It died first before then."""
    deaths: int | None = None
    """It died at least so often."""
