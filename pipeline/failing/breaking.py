"""When a target is asked, when it is left alone, and how it is tried again. Pure.

It opens after several extractions in a row failed by the environment, and at once where every
request must fail until a person acts. Never for one bad message: an extraction counts once however
often it fails, and what the content is to blame for is an answer. It is tried with one request,
then with waves of twice as many, and is closed when a whole large wave was answered. Whoever failed
at a trial lets others try first, and once others were answered its failures are its own: else one
that always fails would keep it open for everybody.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from pipeline.failing.reasons import Reason
from schemas.breaker import Breaker, BreakerPhase
from schemas.failure import Failure, FailureClass

IN_A_ROW: Final = 5
"""So many extractions that fail one after the other open it."""
LAST_WAVE: Final = 16
"""A wave of so many that is answered closes it."""
OTHERS_FIRST_MS: Final = 5000
"""For so long after it may be tried again, it is not by whom it was tried in vain."""
UNTRIED_MS: Final = 15 * 60_000
"""When nobody has tried for so long, nobody waits for it."""
TRIED_IN_VAIN: Final = 20
"""So many of those are remembered."""
LONGEST_SLOWDOWN: Final = timedelta(minutes=1)
"""What a vendor asks beyond that concerns the message it refused, not everybody."""

_COUNTS: Final = frozenset({FailureClass.NETWORK, FailureClass.UNAVAILABLE, FailureClass.TIMEOUT})
_OPENS: Final = frozenset(
    {
        FailureClass.QUOTA,
        FailureClass.CREDENTIALS,
        FailureClass.MODEL_UNKNOWN,
        FailureClass.PARAMETER_UNKNOWN,
    }
)
"""Nothing can succeed until a person has acted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """Ask: it is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Ask: by this it is found out whether it answers. A failure is nobody's attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Don't ask before a moment of server time."""

    until_ms: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooldowns:
    """How long a target is left alone after each opening in a row; the last for all further."""

    passing: Sequence[timedelta]
    """After what passes by itself."""
    personal: Sequence[timedelta]
    """After what a person must mend."""

    def after(self, failure: Failure, *, openings: int) -> timedelta:
        """Return how long after a failure, where it had opened so often before."""
        ladder = self.personal if failure.failure_class in _OPENS else self.passing
        return ladder[min(openings, len(ladder) - 1)]


Admission = Free | Trial
WAVE_POLL_MS: Final = 1000
"""How soon to look again whether a wave has ended."""


def admit(
    state: Breaker, *, now_ms: int, wave_ms: int, extraction_id: str | None = None
) -> tuple[Admission | Wait, Breaker]:
    """Return whether one more may ask, and the state that this makes.

    Args:
        state: As read.
        now_ms: Server time.
        wave_ms: How long an answer may take.
        extraction_id: Whose request it is; none is one that failed at no trial.
    """
    wait_until_ms = _closed_until(state, now_ms, others_first=extraction_id in state.failing)
    if wait_until_ms is not None:
        return Wait(until_ms=wait_until_ms, reason=state.reason or Reason.HTTP_429), state
    if state.phase is BreakerPhase.CLOSED:
        return Free(), state
    if state.phase is BreakerPhase.TRYING and state.granted < state.wave:
        return Trial(), _next(state, granted=state.granted + 1)
    size = state.wave if state.phase is BreakerPhase.TRYING else 1
    return Trial(), _wave(state, size, now_ms + wave_ms, granted=1)


def _closed_until(state: Breaker, now_ms: int, *, others_first: bool) -> int | None:
    """Return when it may be asked again; none if now."""
    if now_ms < state.slow_until_ms:
        return state.slow_until_ms
    try_at_ms = state.try_at_ms + OTHERS_FIRST_MS * others_first
    if state.phase is BreakerPhase.OPEN and now_ms < try_at_ms:
        return try_at_ms
    is_wave_out = state.phase is BreakerPhase.TRYING and state.granted >= state.wave
    if is_wave_out and now_ms < state.wave_until_ms:
        return now_ms + WAVE_POLL_MS
    return None


def answered(state: Breaker, admission: Admission, *, now_ms: int, wave_ms: int) -> Breaker:
    """Return the state after the target answered, whatever the answer was worth."""
    if state.phase is BreakerPhase.CLOSED:
        return _next(state, failing=()) if state.failing else state
    if state.phase is BreakerPhase.OPEN or isinstance(admission, Free):
        return state
    count = state.answered + 1
    if count < state.wave:
        return _next(state, answered=count)
    if state.wave >= LAST_WAVE:
        return Breaker(breaker_id=state.breaker_id, rev=state.rev + 1)
    return _wave(state, 2 * state.wave, now_ms + wave_ms, granted=0)


def unused(state: Breaker) -> Breaker:
    """Return the state after a trial that asked nothing: another may have its place."""
    if state.phase is not BreakerPhase.TRYING or state.granted <= state.answered:
        return state
    return _next(state, granted=state.granted - 1)


def failed(
    state: Breaker,
    admission: Admission,
    failure: Failure,
    *,
    extraction_id: str,
    now_ms: int,
    cooldowns: Cooldowns,
) -> Breaker:
    """Return the state after a request failed.

    Args:
        state: As read.
        admission: What the request was admitted as.
        failure: What became of it.
        extraction_id: Whose it was.
        now_ms: Server time.
        cooldowns: How long it is left alone when it opens.
    """
    if failure.failure_class is FailureClass.RATE_LIMITED:
        return _slowed(state, failure, now_ms)
    is_trial = state.phase is BreakerPhase.TRYING and isinstance(admission, Trial)
    if not breaks(failure) or not (is_trial or state.phase is BreakerPhase.CLOSED):
        return state
    if is_trial:
        if is_own(state, admission, failure, extraction_id=extraction_id):
            return unused(state)
        in_vain = dict.fromkeys((*state.failing, extraction_id))
        return _open(state, failure, now_ms, cooldowns, failing=tuple(in_vain)[-TRIED_IN_VAIN:])
    failing = tuple(dict.fromkeys((*state.failing, extraction_id)))
    if failure.failure_class in _OPENS or len(failing) >= IN_A_ROW:
        return _open(state, failure, now_ms, cooldowns)
    return state if failing == state.failing else _next(state, failing=failing)


def is_own(state: Breaker, admission: Admission, failure: Failure, *, extraction_id: str) -> bool:
    """Return whether a failure is an attempt of whoever failed, and no finding about the target.

    It is where the target was closed, and where others were answered since it failed at a trial.
    """
    if isinstance(admission, Free):
        return True
    are_others_answered = state.phase is BreakerPhase.TRYING and (
        state.wave > 1 or state.answered > 0
    )
    return (
        failure.failure_class in _COUNTS and extraction_id in state.failing and are_others_answered
    )


def shown_phase(state: Breaker, *, now_ms: int) -> BreakerPhase:
    """Return the phase to alert by: an open one that nobody tries when he may holds nobody back.

    Such as that of a key that was replaced: whatever waited for it would have come to try.
    """
    is_left = state.phase is BreakerPhase.OPEN and now_ms - state.try_at_ms > UNTRIED_MS
    return BreakerPhase.TRYING if is_left else state.phase


def resumed(state: Breaker, *, now_ms: int) -> Breaker:
    """Return the state in which the target may be tried at once."""
    return _next(state, try_at_ms=now_ms, slow_until_ms=0, wave_until_ms=now_ms)


def breaks(failure: Failure) -> bool:
    """Return whether a failure speaks against the target."""
    return failure.failure_class in _COUNTS | _OPENS


def _slowed(state: Breaker, failure: Failure, now_ms: int) -> Breaker:
    if failure.retry_after_seconds is None:
        return state
    seconds = min(failure.retry_after_seconds, LONGEST_SLOWDOWN.total_seconds())
    until_ms = now_ms + int(seconds * 1000)
    return _next(state, slow_until_ms=until_ms) if until_ms > state.slow_until_ms else state


def _open(
    state: Breaker,
    failure: Failure,
    now_ms: int,
    cooldowns: Cooldowns,
    *,
    failing: tuple[str, ...] = (),
) -> Breaker:
    cooldown = cooldowns.after(failure, openings=state.openings)
    return _next(
        state,
        phase=BreakerPhase.OPEN,
        failing=failing,
        openings=state.openings + 1,
        try_at_ms=now_ms + int(cooldown.total_seconds() * 1000),
        failure_class=failure.failure_class,
        reason=failure.reason,
    )


def _wave(state: Breaker, size: int, until_ms: int, *, granted: int) -> Breaker:
    return _next(
        state,
        phase=BreakerPhase.TRYING,
        wave=size,
        granted=granted,
        answered=0,
        wave_until_ms=until_ms,
    )


def _next(state: Breaker, **changes: object) -> Breaker:
    return state.model_copy(update={**changes, "rev": state.rev + 1})
