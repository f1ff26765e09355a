"""Who may ask the model now, and whether a letter may be written: breaker, limiter, mass guard.

What they decide is in `breaking`, `guarding` and `limiting`; here it is read, stored and told.
Waiting at the gate spends nothing: no attempt, no lease, no age.
"""

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from datetime import timedelta
from typing import Final, Generic, Protocol, TypeVar

import structlog

from pipeline.failing import breaking, guarding
from pipeline.failing.breaking import Admission, Cooldowns, Free, Trial, Wait
from pipeline.failing.limiting import Limiter, Permit
from pipeline.ports.clocks import ServerTime
from pipeline.ports.switches import Breakers, Guards
from schemas.breaker import Breaker, BreakerPhase
from schemas.failure import Failure, FailureClass
from schemas.guard import Guard
from schemas.topics import Stage

FRESH_MS: Final = 1000
"""How old what is known of a shared state may be while nothing is wrong."""
SWAPS: Final = 20
"""How often others may be faster before a change is left to the next one."""
GUARD_REASON: Final = "mass_guard"
GUARD_WAIT: Final = timedelta(seconds=30)
"""How soon to look again whether an operator has resumed."""
SHARE_REASON: Final = "share_taken"
SHARE_WAIT: Final = timedelta(seconds=5)
"""How soon to look again whether there is a place."""

State = TypeVar("State", Breaker, Guard)

log = structlog.get_logger()


class HeldError(Exception):
    """The message stays where it is, in nobody's count, until something else has changed.

    Args:
        reason: A stable code.
        again_in: When to try again; none where whoever holds it decides.
    """

    def __init__(self, reason: str, again_in: timedelta | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.again_in = again_in


class Share:
    """How many extractions may be at some gates at once, waiting there included.

    So what hangs there leaves room at the others.
    """

    def __init__(self, places: int) -> None:
        self._left = places

    @contextmanager
    def place(self) -> Generator[None]:
        """Take a place, and give it back.

        Raises:
            HeldError: There is none.
        """
        if self._left == 0:
            raise HeldError(SHARE_REASON, SHARE_WAIT)
        self._left -= 1
        try:
            yield
        finally:
            self._left += 1


class Gate:
    """The gate of one process to one target, for one version of the extractor.

    Concurrency: any number of tasks here, and of gates to the same target elsewhere: what they
    share is changed by compare-and-set.
    """

    def __init__(
        self,
        *,
        breakers: Breakers,
        guards: Guards,
        server_time: ServerTime,
        target: str,
        version: str,
        limiter: Limiter,
        cooldowns: Cooldowns,
        answer_within: timedelta,
        share: Share | None = None,
        stage: Stage = Stage.EXTRACTION,
    ) -> None:
        """Stand before a target.

        Args:
            breakers: Where its breaker is.
            guards: Where the mass guards of the version are.
            server_time: The clock of both.
            target: Its name: the breaker's.
            version: The extractor's.
            limiter: This process's for the target, whatever the version.
            cooldowns: How long it is left alone.
            answer_within: How long an answer may take.
            share: What it shares with other gates; none where it may take all there is.
            stage: Whose letters the guards count.
        """
        self._share = share
        self._breaker = _Shared[Breaker](breakers, server_time, target)
        self._guards = {
            is_replay: _Shared[Guard](
                guards, server_time, f"{stage}:{version}:{'job' if is_replay else 'live'}"
            )
            for is_replay in (False, True)
        }
        self._good = {False: 0, True: 0}
        """Outcomes that are no letters and not told yet."""
        self._limiter = limiter
        self._server_time = server_time
        self._cooldowns = cooldowns
        self._answer_ms = int(answer_within.total_seconds() * 1000)

    @asynccontextmanager
    async def enter(
        self, extraction_id: str, *, asks: bool, is_replay: bool
    ) -> AsyncGenerator["Passage"]:
        """Wait for a permit, then pass if the target may be asked.

        Args:
            extraction_id: What passes.
            asks: Whether it will ask anything; what has its answers passes a closed gate.
            is_replay: Whether it is no live work: replays have fewer permits and a guard of their
                own.

        Raises:
            HeldError: It may not, or letters are being held back; nothing was spent.
            pymongo.errors.PyMongoError: That could not be read.
        """
        place = self._share.place() if self._share is not None and asks else nullcontext()
        with place:
            async with self._limiter.permit(is_replay=is_replay) as permit:
                admission: Admission = Free()
                if asks:
                    admission = await self._admitted(extraction_id, is_replay=is_replay)
                passage = Passage(self, permit, admission, extraction_id, is_replay=is_replay)
                try:
                    yield passage
                finally:
                    await passage.leave()

    async def is_closed_to_none(self) -> bool:
        """Return whether nothing is known against the target."""
        return (await self._breaker.view()).phase is BreakerPhase.CLOSED

    async def _admitted(self, extraction_id: str, *, is_replay: bool) -> Admission:
        guard = await self._guards[is_replay].view()
        if guard.tripped_at_ms is not None:
            raise HeldError(GUARD_REASON, GUARD_WAIT)
        decisions: list[Admission | Wait] = []

        def admit(state: Breaker, now_ms: int) -> Breaker:
            decision, after = breaking.admit(
                state, now_ms=now_ms, wave_ms=self._answer_ms, extraction_id=extraction_id
            )
            decisions.append(decision)
            return after

        known = await self._breaker.view()
        is_slow = known.slow_until_ms > await self._server_time.now_ms()
        if known.phase is BreakerPhase.CLOSED and not is_slow:
            return Free()
        await self._breaker.change(admit)
        match decisions[-1]:
            case Wait(until_ms=until_ms, reason=reason):
                left_ms = until_ms - await self._server_time.now_ms()
                raise HeldError(reason, timedelta(milliseconds=max(1, left_ms)))
            case Free() | Trial() as admission:
                return admission

    async def note_answer(self, admission: Admission) -> None:
        """The target answered."""
        if isinstance(admission, Free) and not (await self._breaker.view()).failing:
            return
        await self._breaker.change(
            lambda state, now_ms: breaking.answered(
                state, admission, now_ms=now_ms, wave_ms=self._answer_ms
            )
        )

    async def note_failure(
        self, admission: Admission, failure: Failure, extraction_id: str
    ) -> bool:
        """The target failed; return whether that is the extraction's own attempt."""
        before = (await self._breaker.view()).openings
        is_own = isinstance(admission, Free)

        def fail(state: Breaker, now_ms: int) -> Breaker:
            nonlocal is_own
            is_own = breaking.is_own(state, admission, failure, extraction_id=extraction_id)
            return breaking.failed(
                state,
                admission,
                failure,
                extraction_id=extraction_id,
                now_ms=now_ms,
                cooldowns=self._cooldowns,
            )

        after = await self._breaker.change(fail)
        if after.openings > before:
            log.error(
                "breaker_open",
                breaker=after.breaker_id,
                failure_class=after.failure_class,
                reason=after.reason,
                openings=after.openings,
            )
        return is_own

    async def note_unused(self) -> None:
        """A trial asked nothing."""
        await self._breaker.change(lambda state, _now_ms: breaking.unused(state))

    async def answers_others(self, extraction_id: str) -> bool:
        """Return whether the target fails this extraction and no other."""
        state = await self._breaker.view()
        return state.phase is BreakerPhase.CLOSED and set(state.failing) <= {extraction_id}

    async def admit_letter(self, failure: Failure, *, session: str, is_replay: bool) -> None:
        """Count a letter that is to be written.

        Raises:
            HeldError: It must not be: it would be one of too many.
        """
        if failure.failure_class.is_environmental:
            return
        good, self._good[is_replay] = self._good[is_replay], 0

        def count(state: Guard, now_ms: int) -> Guard:
            if state.tripped_at_ms is not None:
                return state
            state = guarding.with_good(state, good) if good else state
            return guarding.with_letter(
                state, session=session, reason=failure.reason, now_ms=now_ms
            )

        after = await self._guards[is_replay].change(count)
        if after.tripped_at_ms is not None:
            log.error("mass_guard_tripped", guard=after.guard_id, reason=after.reason)
            raise HeldError(GUARD_REASON, GUARD_WAIT)

    async def note_good(self, *, is_replay: bool) -> None:
        """An outcome was no letter."""
        self._good[is_replay] += 1
        guard = self._guards[is_replay]
        if not (await guard.view()).row:
            return
        good, self._good[is_replay] = self._good[is_replay], 0
        await guard.change(lambda state, _now_ms: guarding.with_good(state, good))


class Passage:
    """One extraction's way through the gate."""

    def __init__(
        self,
        gate: Gate,
        permit: Permit,
        admission: Admission,
        extraction_id: str,
        *,
        is_replay: bool,
    ) -> None:
        self._gate = gate
        self._permit = permit
        self._admission: Admission = admission
        self._extraction_id = extraction_id
        self._is_replay = is_replay

    async def answered(self) -> None:
        """The model answered, whatever the answer was worth."""
        self._permit.answered()
        await self._note_answer()

    async def failed(self, failure: Failure) -> bool:
        """The model did not answer; return whether that is the extraction's own attempt."""
        is_own = await self._gate.note_failure(self._admission, failure, self._extraction_id)
        if failure.failure_class is FailureClass.RATE_LIMITED:
            self._permit.refused()
            # Whoever says that it is too much is there.
            await self._note_answer()
        elif breaking.breaks(failure):
            self._admission = Free()
            return is_own
        return True

    async def answers_others(self) -> bool:
        """Return whether the model fails this extraction and no other."""
        return await self._gate.answers_others(self._extraction_id)

    async def admit_letter(self, failure: Failure, *, session: str) -> None:
        """Count a letter that is to be written.

        Raises:
            HeldError: It must not be.
        """
        await self._gate.admit_letter(failure, session=session, is_replay=self._is_replay)

    async def ended_well(self) -> None:
        """The outcome is no letter."""
        await self._gate.note_good(is_replay=self._is_replay)

    async def _note_answer(self) -> None:
        admission, self._admission = self._admission, Free()
        await self._gate.note_answer(admission)

    async def leave(self) -> None:
        """Give back a trial that asked nothing."""
        if isinstance(self._admission, Trial):
            self._admission = Free()
            await self._gate.note_unused()


class _Store(Protocol[State]):
    async def get(self, name: str) -> State: ...
    async def swap(self, before: State, after: State) -> bool: ...


class _Shared(Generic[State]):
    """One shared state, and what this process last knew of it."""

    def __init__(self, store: _Store[State], server_time: ServerTime, name: str) -> None:
        self._store = store
        self._server_time = server_time
        self._name = name
        self._known: State | None = None
        self._read_ms = 0

    async def view(self) -> State:
        """Return the state as it was at most a moment ago."""
        now_ms = await self._server_time.now_ms()
        # A server's clock may be set back, or another server's be asked.
        if self._known is None or not 0 <= now_ms - self._read_ms < FRESH_MS:
            return await self._read(now_ms)
        return self._known

    async def change(self, change: Callable[[State, int], State]) -> State:
        """Change it as it is now; return it as it then is, or is still where others were faster."""
        for _ in range(SWAPS):
            now_ms = await self._server_time.now_ms()
            before = await self._read(now_ms)
            after = change(before, now_ms)
            if after == before:
                return before
            if await self._store.swap(before, after):
                self._known = after
                return after
        log.warning("shared_state_busy", name=self._name)
        return await self._read(await self._server_time.now_ms())

    async def _read(self, now_ms: int) -> State:
        self._known = await self._store.get(self._name)
        self._read_ms = now_ms
        return self._known
