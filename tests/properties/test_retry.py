"""Laws of retrying, for any failures in any order at any time (I6)."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from pipeline.failing.retry import LADDERS, NO_RETRY, GiveUp, Hold, RetryIn, decide, longest_within
from schemas.failure import Attempt, Failure, FailureClass
from schemas.topics import RETRY_TIERS, RetryTier, Stage

AT = datetime(2026, 3, 1, tzinfo=UTC)
AGE_CAP = timedelta(hours=36)
HELD = ("config.", "infra.")

delays = st.lists(st.integers(1, 10_000_000), min_size=5, max_size=5).map(
    lambda numbers: [timedelta(milliseconds=number) for number in sorted(numbers)]
)
failures = st.builds(
    Failure,
    failure_class=st.sampled_from(FailureClass),
    reason=st.just("http_500"),
    exception=st.just("x"),
    retry_after_seconds=st.none() | st.floats(0, allow_nan=False, allow_infinity=False),
)
histories = st.lists(failures, min_size=1, max_size=60)


def tiers_of(waits: list[timedelta]) -> list[RetryTier]:
    """Return the tiers of a stage with these delays."""
    tiers = zip(RETRY_TIERS[Stage.EXTRACTION], waits, strict=True)
    return [tier.model_copy(update={"delay": wait}) for tier, wait in tiers]


@given(histories, delays)
def test_a_message_is_tried_no_more_than_its_ladders_say(
    history: list[Failure], waits: list[timedelta]
) -> None:
    """Followed as a consumer would: attempts by class within the rungs, age within the cap."""
    tiers = tiers_of(waits)
    attempts: list[Attempt] = []
    now_ms = 0
    for failure in history:
        attempts.append(Attempt(failure=failure, failed_at=AT))
        made = decide(attempts, first_seen_ms=0, now_ms=now_ms, tiers=tiers, age_cap=AGE_CAP)
        if not isinstance(made, RetryIn):
            break
        now_ms += round(made.tier.delay / timedelta(milliseconds=1))

    for failure_class in FailureClass:
        ladder = LADDERS.get(failure_class, NO_RETRY)
        tried = sum(attempt.failure.failure_class is failure_class for attempt in attempts)
        assert ladder.repeats_last or tried <= len(ladder.rungs) + 1
    assert timedelta(milliseconds=now_ms) <= AGE_CAP


@given(histories, delays, st.integers(-(10**9), 10**9))
def test_a_decision_is_total_and_honours_what_was_asked(
    history: list[Failure], waits: list[timedelta], now_ms: int
) -> None:
    """No history raises; a wait is below Retry-After only where no tier is as long."""
    attempts = [Attempt(failure=failure, failed_at=AT) for failure in history]
    last = history[-1]
    made = decide(attempts, first_seen_ms=0, now_ms=now_ms, tiers=tiers_of(waits), age_cap=AGE_CAP)

    assert isinstance(made, Hold) == last.failure_class.startswith(HELD)
    if isinstance(made, RetryIn) and last.retry_after_seconds is not None:
        assert (
            made.tier.delay.total_seconds() >= last.retry_after_seconds
            or made.tier.delay == waits[-1]
        )
    if last.failure_class.is_content:
        assert made == GiveUp(failure=last, disposition="content")


@given(st.sampled_from(sorted(LADDERS)), delays)
def test_waits_never_grow_shorter(failure_class: FailureClass, waits: list[timedelta]) -> None:
    """Without a word of the other side, each wait of a class is at least the one before."""
    failure = Failure(failure_class=failure_class, reason="r", exception="x")
    attempts: list[Attempt] = []
    waited: list[timedelta] = []
    for _ in range(12):
        attempts.append(Attempt(failure=failure, failed_at=AT))
        made = decide(attempts, first_seen_ms=0, now_ms=0, tiers=tiers_of(waits), age_cap=AGE_CAP)
        if isinstance(made, RetryIn):
            waited.append(made.tier.delay)

    assert waited == sorted(waited)


@given(histories, delays, st.integers(0, 10**9), st.integers(0, 10**9))
def test_age_never_brings_back_what_was_given_up(
    history: list[Failure], waits: list[timedelta], earlier: int, later: int
) -> None:
    """The older a message, the less it is tried."""
    attempts = [Attempt(failure=failure, failed_at=AT) for failure in history]

    def at(now_ms: int) -> object:
        return decide(
            attempts, first_seen_ms=0, now_ms=now_ms, tiers=tiers_of(waits), age_cap=AGE_CAP
        )

    sooner, after = at(min(earlier, later)), at(max(earlier, later))

    assert sooner == after or isinstance(after, GiveUp)


@given(st.integers(0, 100_000), delays)
def test_nobody_waits_longer_for_a_lease_than_it_lasts_and_the_shortest_tier(
    thousandths: int, waits: list[timedelta]
) -> None:
    """However often what is redelivered looks again whether the lease of a dead worker is over."""
    left = waits[0] * thousandths / 1000
    tiers = tiers_of(waits)
    waited = timedelta(0)
    while True:
        waited += longest_within(tiers, left - waited).delay
        if waited >= left:
            break

    assert waited <= left + waits[0]
