"""The ladders of the design, row by row, and what a decision does with them."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from pipeline.failing.reasons import Reason
from pipeline.failing.retry import LADDERS, Decision, GiveUp, Hold, RetryIn, decide
from schemas.failure import Attempt, Failure, FailureClass
from schemas.topics import DELAYS, RETRY_TIERS, Stage

TIERS = RETRY_TIERS[Stage.EXTRACTION]
AT = datetime(2026, 3, 1, tzinfo=UTC)
AGE_CAP = timedelta(hours=36)
HOUR_MS = 3_600_000


def attempt(failure_class: FailureClass, retry_after: float | None = None) -> Attempt:
    """Return a failed attempt."""
    failure = Failure(
        failure_class=failure_class,
        reason="http_500",
        exception="openai.InternalServerError",
        retry_after_seconds=retry_after,
    )
    return Attempt(failure=failure, failed_at=AT)


def decided(
    *attempts: Attempt, age_ms: int = 0, is_model_answering_others: bool = True
) -> Decision:
    """Return the decision after these attempts."""
    return decide(
        attempts,
        first_seen_ms=1_000_000,
        now_ms=1_000_000 + age_ms,
        tiers=TIERS,
        age_cap=AGE_CAP,
        is_model_answering_others=is_model_answering_others,
    )


def waits(attempts: Sequence[Attempt]) -> list[str]:
    """Return the waits after each of these attempts, as the design writes them."""
    names = {delay: name for name, delay in DELAYS.items()}
    decisions = [decided(*attempts[: number + 1]) for number in range(len(attempts))]
    return [names[made.tier.delay] if isinstance(made, RetryIn) else "end" for made in decisions]


DESIGN = {
    FailureClass.NETWORK: "5s 30s 2m 10m 10m 1h end",
    FailureClass.UNAVAILABLE: "30s 2m 10m 10m 1h 1h 1h end",
    FailureClass.RATE_LIMITED: "30s 30s 2m 2m 10m 10m 1h end",
    FailureClass.QUOTA: "10m 1h 1h 1h 1h",
    FailureClass.CREDENTIALS: "10m 1h 1h 1h 1h",
    FailureClass.TIMEOUT: "30s 10m end",
    FailureClass.MISSING: "5s 30s 2m end",
    FailureClass.UNCLASSIFIED: "30s 2m end",
    FailureClass.CRASH_LOOP: "end",
    FailureClass.REFUSED: "end",
    FailureClass.INVALID_OUTPUT: "end",
}


@pytest.mark.parametrize(("failure_class", "ladder"), DESIGN.items())
def test_a_ladder_is_the_designs(failure_class: FailureClass, ladder: str) -> None:
    """Rung by rung, to its end."""
    rungs = ladder.split()

    assert waits([attempt(failure_class)] * len(rungs)) == rungs


@pytest.mark.parametrize("failure_class", list(FailureClass))
def test_every_class_has_an_end_or_is_held(failure_class: FailureClass) -> None:
    """Content ends at once as `content`, everything else as `exhausted`; config and infra hold."""
    made = decided(*[attempt(failure_class)] * 50, age_ms=35 * HOUR_MS + 1)

    if failure_class.startswith(("config.", "infra.")):
        assert isinstance(made, Hold)
        return
    assert isinstance(made, GiveUp)
    is_content = failure_class.is_content or failure_class is FailureClass.TIMEOUT
    assert made.disposition == ("content" if is_content else "exhausted")


def test_silence_for_one_message_alone_is_that_messages_doing() -> None:
    """It becomes `too_slow`; where the model answers nobody it stays a timeout."""
    attempts = [attempt(FailureClass.TIMEOUT)] * 3
    slow = decided(*attempts)
    down = decided(*attempts, is_model_answering_others=False)

    assert isinstance(slow, GiveUp)
    assert (slow.failure.failure_class, slow.failure.reason, slow.disposition) == (
        FailureClass.TOO_SLOW,
        Reason.TOO_SLOW,
        "content",
    )
    assert isinstance(down, GiveUp)
    assert (down.failure.failure_class, down.disposition) == (FailureClass.TIMEOUT, "exhausted")


def test_a_class_that_changes_midway_starts_its_own_ladder() -> None:
    """And the one before goes on where it was."""
    mixed = [
        FailureClass.NETWORK,
        FailureClass.RATE_LIMITED,
        FailureClass.UNAVAILABLE,
        FailureClass.NETWORK,
        FailureClass.UNAVAILABLE,
    ]

    assert waits([attempt(failure_class) for failure_class in mixed]) == [
        "5s",
        "30s",
        "30s",
        "30s",
        "2m",
    ]


@pytest.mark.parametrize(
    ("asked", "wait"),
    [(0, "5s"), (5, "5s"), (5.1, "30s"), (45, "2m"), (121, "10m"), (3600, "1h"), (1e300, "1h")],
)
def test_retry_after_is_rounded_up_to_a_tier(asked: float, wait: str) -> None:
    """Sooner than the ladder where too many requests were made; the longest tier is the limit."""
    assert waits([attempt(FailureClass.RATE_LIMITED, asked)]) == [wait]


@pytest.mark.parametrize(("asked", "wait"), [(1, "30s"), (45, "2m"), (7200, "1h")])
def test_elsewhere_retry_after_only_makes_a_wait_longer(asked: float, wait: str) -> None:
    """A server that is down does not know when it is up."""
    assert waits([attempt(FailureClass.UNAVAILABLE, asked)]) == [wait]


def test_nothing_is_due_after_the_age_cap() -> None:
    """The last attempt is before it; what outlives it is a letter, not a loss."""
    quota = [attempt(FailureClass.QUOTA)] * 9

    assert isinstance(decided(*quota, age_ms=35 * HOUR_MS), RetryIn)
    made = decided(*quota, age_ms=35 * HOUR_MS + 1)

    assert isinstance(made, GiveUp)
    assert made.disposition == "exhausted"


def test_what_is_configured_wrongly_is_held_however_long() -> None:
    """It is no message's fault, so neither attempts nor age are spent."""
    made = decided(*[attempt(FailureClass.MODEL_UNKNOWN)] * 9, age_ms=999 * HOUR_MS)

    assert isinstance(made, Hold)


def test_delays_are_as_configured() -> None:
    """A rung is the name of a tier, and what it waits is a setting."""
    quick = [
        tier.model_copy(update={"delay": timedelta(milliseconds=number + 1)})
        for number, tier in enumerate(TIERS)
    ]
    made = decide(
        [attempt(FailureClass.MISSING)] * 2,
        first_seen_ms=0,
        now_ms=0,
        tiers=quick,
        age_cap=AGE_CAP,
    )

    assert made == RetryIn(tier=quick[1])


def test_every_rung_names_a_tier() -> None:
    """A misspelt one would be found in production only."""
    assert {rung for ladder in LADDERS.values() for rung in ladder.rungs} <= set(DELAYS)
