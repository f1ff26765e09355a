"""Laws of breaker, guard and limiter, over any history of requests."""

from dataclasses import dataclass, field
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from pipeline.failing import breaking, guarding
from pipeline.failing.breaking import IN_A_ROW, LAST_WAVE, Admission, Cooldowns, Free, Trial, Wait
from schemas.breaker import Breaker, BreakerPhase
from schemas.failure import Failure, FailureClass
from schemas.guard import Guard

COOLDOWNS = Cooldowns(
    passing=(timedelta(seconds=5), timedelta(seconds=30)), personal=(timedelta(minutes=2),)
)
WAVE_MS = 10_000
FRESH = Breaker(breaker_id="t")


def failure(failure_class: FailureClass, retry_after: float | None = None) -> Failure:
    return Failure(
        failure_class=failure_class,
        reason="r",
        exception="x",
        retry_after_seconds=retry_after,
    )


def failed(
    state: Breaker, failure_class: FailureClass, *, whose: str = "a", now_ms: int = 0
) -> Breaker:
    return breaking.failed(
        state,
        Free(),
        failure(failure_class),
        extraction_id=whose,
        now_ms=now_ms,
        cooldowns=COOLDOWNS,
    )


PASSING = st.sampled_from([FailureClass.NETWORK, FailureClass.UNAVAILABLE, FailureClass.TIMEOUT])
NOT_THE_TARGETS = [one for one in FailureClass if not breaking.breaks(failure(one))]


@given(st.lists(PASSING, max_size=40))
def test_one_extraction_alone_never_opens_it(classes: list[FailureClass]) -> None:
    state = FRESH
    for each in classes:
        state = failed(state, each)

    assert state.phase is BreakerPhase.CLOSED


@given(st.permutations(range(IN_A_ROW)), PASSING)
def test_several_in_a_row_open_it_and_one_answer_begins_anew(
    order: list[int], kind: FailureClass
) -> None:
    state = FRESH
    for whose in order[:-1]:
        state = failed(state, kind, whose=str(whose))
        assert state.phase is BreakerPhase.CLOSED
    rescued = breaking.answered(state, Free(), now_ms=0, wave_ms=WAVE_MS)

    assert failed(state, kind, whose=str(order[-1])).phase is BreakerPhase.OPEN
    assert failed(rescued, kind, whose=str(order[-1])).phase is BreakerPhase.CLOSED


@given(st.lists(st.tuples(st.sampled_from(NOT_THE_TARGETS), st.integers(0, 9)), max_size=60))
def test_no_content_and_no_bug_opens_it(history: list[tuple[FailureClass, int]]) -> None:
    state = FRESH
    for kind, whose in history:
        state = failed(state, kind, whose=str(whose))

    assert state.phase is BreakerPhase.CLOSED


def test_what_a_person_must_mend_opens_it_at_once_and_longer() -> None:
    state = failed(FRESH, FailureClass.CREDENTIALS)

    assert (state.phase, state.try_at_ms) == (BreakerPhase.OPEN, 120_000)


def test_a_vendor_that_asks_for_time_gets_it_from_everybody_up_to_a_minute() -> None:
    for asked, until in ((45.0, 45_000), (86_400.0, 60_000)):
        state = breaking.failed(
            FRESH,
            Free(),
            failure(FailureClass.RATE_LIMITED, asked),
            extraction_id="a",
            now_ms=0,
            cooldowns=COOLDOWNS,
        )
        decision, _ = breaking.admit(state, now_ms=1, wave_ms=WAVE_MS)

        assert decision == Wait(until_ms=until, reason="http_429")
        assert breaking.admit(state, now_ms=until, wave_ms=WAVE_MS)[0] == Free()


@dataclass
class Fleet:
    """Workers that pass one after the other; what they asked is on its way until it ends."""

    state: Breaker = FRESH
    now_ms: int = 0
    trials: list[int] = field(default_factory=list[int])
    """When each trial that is on its way began."""

    def admit(self) -> Admission | Wait:
        decision, self.state = breaking.admit(self.state, now_ms=self.now_ms, wave_ms=WAVE_MS)
        if isinstance(decision, Trial):
            self.trials.append(self.now_ms)
        return decision

    def end(self, *, well: bool) -> None:
        self.trials.pop(0)
        if well:
            self.state = breaking.answered(self.state, Trial(), now_ms=self.now_ms, wave_ms=WAVE_MS)
            return
        self.state = breaking.failed(
            self.state,
            Trial(),
            failure(FailureClass.UNAVAILABLE),
            extraction_id="a",
            now_ms=self.now_ms,
            cooldowns=COOLDOWNS,
        )


@given(st.lists(st.sampled_from(["ask", "well", "ill", "wait"]), max_size=120))
def test_of_an_open_one_no_more_are_asked_than_the_wave_and_never_before_its_time(
    acts: list[str],
) -> None:
    fleet = Fleet(state=failed(FRESH, FailureClass.QUOTA))
    for act in acts:
        if act == "ask":
            before = fleet.state
            decision = fleet.admit()
            if before.phase is BreakerPhase.OPEN and fleet.now_ms < before.try_at_ms:
                assert isinstance(decision, Wait)
            if isinstance(decision, Free):
                assert fleet.state.phase is BreakerPhase.CLOSED
        elif act == "wait":
            fleet.now_ms += 7_000
            fleet.trials = [at for at in fleet.trials if fleet.now_ms - at < WAVE_MS]
        elif fleet.trials:
            fleet.end(well=act == "well")
        if fleet.state.phase is BreakerPhase.TRYING:
            assert fleet.state.granted <= fleet.state.wave <= LAST_WAVE


def tried_in_vain(state: Breaker, *, whose: str, now_ms: int) -> Breaker:
    return breaking.failed(
        state,
        Trial(),
        failure(FailureClass.UNAVAILABLE),
        extraction_id=whose,
        now_ms=now_ms,
        cooldowns=COOLDOWNS,
    )


def test_who_failed_at_a_trial_lets_others_try_and_reopens_nothing_once_they_are_answered() -> None:
    state = failed(FRESH, FailureClass.CREDENTIALS)
    at_ms = state.try_at_ms
    _, state = breaking.admit(state, now_ms=at_ms, wave_ms=WAVE_MS, extraction_id="bad")
    state = tried_in_vain(state, whose="bad", now_ms=at_ms)
    at_ms = state.try_at_ms
    ours, _ = breaking.admit(state, now_ms=at_ms, wave_ms=WAVE_MS, extraction_id="bad")
    others, state = breaking.admit(state, now_ms=at_ms, wave_ms=WAVE_MS, extraction_id="good")

    assert (state.failing, isinstance(ours, Wait), others) == (("bad",), True, Trial())

    state = breaking.answered(state, Trial(), now_ms=at_ms, wave_ms=WAVE_MS)
    _, state = breaking.admit(state, now_ms=at_ms, wave_ms=WAVE_MS, extraction_id="bad")
    again = tried_in_vain(state, whose="bad", now_ms=at_ms)

    assert (again.phase, again.openings, again.granted) == (BreakerPhase.TRYING, 2, 0)
    assert tried_in_vain(state, whose="another", now_ms=at_ms).phase is BreakerPhase.OPEN


@given(st.integers(1, 40))
def test_who_is_alone_is_tried_again_however_often_it_was_in_vain(times: int) -> None:
    """While nobody else is answered it may be the target, so nothing of it is spent."""
    state = failed(FRESH, FailureClass.CREDENTIALS)
    for _ in range(times):
        now_ms = state.try_at_ms + breaking.OTHERS_FIRST_MS
        decision, state = breaking.admit(
            state, now_ms=now_ms, wave_ms=WAVE_MS, extraction_id="alone"
        )
        is_own = breaking.is_own(
            state, Trial(), failure(FailureClass.TIMEOUT), extraction_id="alone"
        )
        assert (decision, is_own) == (Trial(), False)
        state = tried_in_vain(state, whose="alone", now_ms=now_ms)
        assert (state.phase, state.failing) == (BreakerPhase.OPEN, ("alone",))


def test_it_closes_after_waves_that_double() -> None:
    fleet = Fleet(state=failed(FRESH, FailureClass.QUOTA), now_ms=120_000)
    sizes: list[int] = []
    while fleet.state.phase is not BreakerPhase.CLOSED:
        size = 0
        while isinstance(fleet.admit(), Trial):
            size += 1
        sizes.append(size)
        for _ in range(size):
            fleet.end(well=True)

    assert sizes == [1, 2, 4, 8, 16]
    assert fleet.state.openings == 0


def test_a_wave_that_died_is_followed_by_another_and_one_that_asked_nothing_gives_its_place() -> (
    None
):
    fleet = Fleet(state=failed(FRESH, FailureClass.QUOTA), now_ms=120_000)
    assert isinstance(fleet.admit(), Trial)
    assert isinstance(fleet.admit(), Wait)
    fleet.state = breaking.unused(fleet.state)
    assert isinstance(fleet.admit(), Trial)
    fleet.now_ms += WAVE_MS
    assert isinstance(fleet.admit(), Trial)


@given(st.lists(st.integers(0, 9) | st.none(), max_size=300))
def test_no_more_letters_are_written_than_the_guard_allows(history: list[int | None]) -> None:
    """A number is a letter of that session, none a good outcome."""
    state = Guard(guard_id="g")
    row = 0
    for session in history:
        if state.tripped_at_ms is not None:
            break
        if session is None:
            row = 0
            state = guarding.with_good(state, 1)
            continue
        row += 1
        state = guarding.with_letter(state, session=str(session), reason="r", now_ms=1)
        assert state.letters <= guarding.WINDOW_LETTERS + 1 or len(state.sessions) < 5
        if state.tripped_at_ms is None and len(state.row_sessions) >= guarding.SESSIONS:
            assert row <= guarding.ROW


def test_a_bad_deploy_trips_it_and_a_bad_session_does_not() -> None:
    deploy, session = Guard(guard_id="g"), Guard(guard_id="g")
    for number in range(guarding.ROW + 1):
        assert deploy.tripped_at_ms is None
        deploy = guarding.with_letter(deploy, session=str(number % 5), reason="r", now_ms=7)
        session = guarding.with_letter(session, session="one", reason="r", now_ms=7)

    assert (deploy.tripped_at_ms, deploy.reason) == (7, "r")
    assert session.tripped_at_ms is None
    assert guarding.resumed(deploy).tripped_at_ms is None


def test_letters_between_good_outcomes_trip_it_by_their_share() -> None:
    state = Guard(guard_id="g")
    letters = 0
    while state.tripped_at_ms is None:
        letters += 1
        state = guarding.with_letter(
            guarding.with_good(state, 1), session=str(letters % 7), reason="r", now_ms=1
        )

    assert letters == guarding.WINDOW_LETTERS + 1
