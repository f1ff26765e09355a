"""When a failed message is tried again, if at all: the ladders, as data, and the decision.

The law (I6): no more attempts than the ladder of a class has rungs, and none due after the age cap.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

from pipeline.failing.reasons import Reason
from schemas.failure import Attempt, Failure, FailureClass
from schemas.topics import DELAYS, RetryTier

TierName = Literal["5s", "30s", "2m", "10m", "1h"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """The waits of a class: one rung after each failure of that class."""

    rungs: tuple[TierName, ...]
    """Names of tiers; what they wait is a setting."""
    repeats_last: bool = False
    """The last rung again and again, until the age cap."""


NO_RETRY: Final = Ladder(rungs=())
_PATIENT: Final = Ladder(rungs=("10m", "1h"), repeats_last=True)

LADDERS: Final[dict[FailureClass, Ladder]] = {
    FailureClass.NETWORK: Ladder(rungs=("5s", "30s", "2m", "10m", "10m", "1h")),
    FailureClass.UNAVAILABLE: Ladder(rungs=("30s", "2m", "10m", "10m", "1h", "1h", "1h")),
    FailureClass.RATE_LIMITED: Ladder(rungs=("30s", "30s", "2m", "2m", "10m", "10m", "1h")),
    FailureClass.QUOTA: _PATIENT,
    FailureClass.CREDENTIALS: _PATIENT,
    FailureClass.TIMEOUT: Ladder(rungs=("30s", "10m")),
    FailureClass.MISSING: Ladder(rungs=("5s", "30s", "2m")),
    FailureClass.UNCLASSIFIED: Ladder(rungs=("30s", "2m")),
}
"""Every class that is tried again; a class without a ladder is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryIn:
    """Send it to a tier."""

    tier: RetryTier


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """Make it a letter."""

    failure: Failure
    """The last one; `env.timeout` is `content.too_slow` by then."""
    disposition: Literal["content", "exhausted"]
    """`exhausted`: send it back when the fault is gone; `content`: it needs a change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Keep the message where it is: it is no message's fault. Spends neither attempt nor age."""

    failure: Failure


Decision = RetryIn | GiveUp | Hold


def decide(
    attempts: Sequence[Attempt],
    *,
    first_seen_ms: int,
    now_ms: int,
    tiers: Sequence[RetryTier],
    age_cap: timedelta,
    is_model_answering_others: bool = True,
) -> Decision:
    """Return what becomes of a message after its latest failure.

    Args:
        attempts: Every failed one, oldest first; the last is the one to decide on. Each class has
            its own count, so a class that changes midway starts its own ladder.
        first_seen_ms: When the message came first; time it was held is not counted by the caller.
        now_ms: Now, by the same clock.
        tiers: The tiers of the stage with their delays as configured, in the order of `DELAYS`.
        age_cap: No attempt is due later than this after `first_seen_ms`.
        is_model_answering_others: Whether repeated silence is this message's own doing.
    """
    failure = attempts[-1].failure
    failure_class = failure.failure_class
    if failure_class.startswith(("config.", "infra.")):
        return Hold(failure=failure)
    ladder = LADDERS.get(failure_class, NO_RETRY)
    count = sum(attempt.failure.failure_class is failure_class for attempt in attempts)
    if count > len(ladder.rungs) and not ladder.repeats_last:
        if failure_class is FailureClass.TIMEOUT and is_model_answering_others:
            failure = failure.model_copy(
                update={"failure_class": FailureClass.TOO_SLOW, "reason": Reason.TOO_SLOW}
            )
        return _give_up(failure)
    tier = _tier(failure, ladder.rungs[min(count, len(ladder.rungs)) - 1], tiers)
    age = timedelta(milliseconds=now_ms - first_seen_ms)
    if age + tier.delay > age_cap:
        return _give_up(failure)
    return RetryIn(tier=tier)


def longest_within(tiers: Sequence[RetryTier], left: timedelta) -> RetryTier:
    """Return the tier that waits longest and yet not beyond what is left; else the shortest.

    Who looks again each time, comes at most the shortest delay after the end.
    """
    fitting = [tier for tier in tiers if tier.delay <= left]
    if not fitting:
        return min(tiers, key=lambda tier: tier.delay)
    return max(fitting, key=lambda tier: tier.delay)


def _give_up(failure: Failure) -> GiveUp:
    of_content = failure.failure_class.startswith("content.")
    return GiveUp(failure=failure, disposition="content" if of_content else "exhausted")


def _tier(failure: Failure, rung: TierName, tiers: Sequence[RetryTier]) -> RetryTier:
    """Return the tier of a rung, or the one that `Retry-After` asks for.

    Where requests are too many, the other side knows best when there may be more, even sooner
    than the ladder; elsewhere what it asks can only make the wait longer.
    """
    by_name = dict(zip(DELAYS, tiers, strict=True))
    if failure.retry_after_seconds is None:
        return by_name[rung]
    longest = max(tiers, key=lambda tier: tier.delay)
    # A vendor may ask for more seconds than a timedelta holds.
    wanted = timedelta(seconds=min(failure.retry_after_seconds, longest.delay.total_seconds()))
    if failure.failure_class is not FailureClass.RATE_LIMITED:
        wanted = max(wanted, by_name[rung].delay)
    return min((tier for tier in tiers if tier.delay >= wanted), key=lambda tier: tier.delay)
