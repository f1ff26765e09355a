"""What all processes know of a target: a model as one vendor serves it under one credential."""

from enum import StrEnum

from schemas.base import Frozen
from schemas.failure import FailureClass


class BreakerPhase(StrEnum):
    """Whether a target is asked."""

    CLOSED = "closed"
    OPEN = "open"
    """It is left alone."""
    TRYING = "trying"
    """It is asked in waves, each twice as large as the one before that went well."""


class Breaker(Frozen):
    """The shared state of one target. Moments are epoch milliseconds of server time."""

    breaker_id: str
    rev: int = 0
    phase: BreakerPhase = BreakerPhase.CLOSED
    failing: tuple[str, ...] = ()
    """Closed: the extractions that failed in a row since the last answer, each once. Else: those
    that failed at a trial since it opened."""
    openings: int = 0
    """How often it opened since it was last closed."""
    try_at_ms: int = 0
    """When the next one may try."""
    slow_until_ms: int = 0
    """Until then the vendor wants to be asked nothing."""
    wave: int = 0
    """How many may try side by side."""
    granted: int = 0
    answered: int = 0
    wave_until_ms: int = 0
    """What was granted and not answered by then is lost."""
    failure_class: FailureClass | None = None
    """Of the failure that opened it."""
    reason: str | None = None
