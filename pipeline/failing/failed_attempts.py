"""A failed attempt: what becomes of it is decided and recorded here, F1 and F2 of the design."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import structlog

from pipeline.crash_points import CrashPoint, reached
from pipeline.extracting.fates import ClaimLostError, Fates
from pipeline.extracting.planning import halves, parts_to_bury
from pipeline.extracting.settling import Claimed, Settler
from pipeline.failing.crash_loops import crash_loop
from pipeline.failing.failures import classify
from pipeline.failing.gating import HeldError
from pipeline.failing.retry import GiveUp, Hold, RetryIn, decide
from pipeline.metrics import Metrics
from pipeline.ports.clocks import Clock, ServerTime
from pipeline.ports.extractions import Extractions
from pipeline.ports.turns import Turns
from schemas.extraction import Outcome
from schemas.failure import Attempt, Failure, FailureClass
from schemas.topics import RetryTier

log = structlog.get_logger()

_SPLITTABLE: Final = (FailureClass.TRUNCATED, FailureClass.CONTEXT_LENGTH)


class FailedAttempts:
    """Turns the failure of an attempt into a retry, a different question or letters.

    Concurrency: each writes only while its claim is held.
    """

    def __init__(
        self,
        *,
        extractions: Extractions,
        turns: Turns,
        fates: Fates,
        settler: Settler,
        clock: Clock,
        server_time: ServerTime,
        tiers: Sequence[RetryTier],
        age_cap: timedelta,
        metrics: Metrics,
    ) -> None:
        self._extractions = extractions
        self._turns = turns
        self._fates = fates
        self._settler = settler
        self._clock = clock
        self._server_time = server_time
        self._tiers = tiers
        self._age_cap = age_cap
        self._metrics = metrics

    async def goes_on_after(self, claimed: Claimed, error: BaseException) -> bool:
        """F1 and F2: decide what becomes of a failure; true if the attempt goes on.

        Raises:
            ClaimLostError: Nothing was written.
            HeldError: No message can succeed like this, or its letter is held back.
        """
        failure = classify(error)
        self._metrics.attempt_failed(failure.failure_class)
        part, claimed.part = claimed.part, None
        log.warning(
            "attempt_failed",
            extraction=claimed.extraction.extraction_id,
            part=part,
            failure_class=failure.failure_class,
            reason=failure.reason,
            exception=failure.exception,
        )
        if part is not None and failure.failure_class.is_content:
            await claimed.passage.answered()
            await self._shrink_or_bury(claimed, failure, part)
            return True
        if part is not None and not await claimed.passage.failed(failure):
            # What is behind it must come to try, too: it may be the only one that fails.
            await self._fates.go_on_later(claimed.context, claimed.extraction)
            return False
        failed = Attempt(failure=failure, failed_at=self._clock.now())
        decision = decide(
            (*claimed.extraction.attempts[claimed.extraction.attempts_before :], failed),
            first_seen_ms=claimed.extraction.first_seen_ms,
            now_ms=await self._server_time.now_ms(),
            tiers=self._tiers,
            age_cap=self._age_cap,
            is_model_answering_others=await claimed.passage.answers_others(),
        )
        match decision:
            case RetryIn(tier=tier):
                await self._fates.retry(claimed.context, claimed.extraction, tier, failed)
                return False
            case Hold():
                raise HeldError(failure.reason)
            case GiveUp(failure=last, disposition=disposition):
                parts = parts_to_bury(claimed.extraction)
                if part is not None and disposition == "content":
                    parts = [part]
                if not parts:
                    # Whatever fails still has its letters; it must not fail for ever.
                    await self._settler.settle(claimed, Outcome.DEAD, {})
                    return False
                await self._give_up(claimed, last, parts, is_exhausted=disposition == "exhausted")
                return True

    async def _shrink_or_bury(self, claimed: Claimed, failure: Failure, part: int) -> None:
        """Ask for a part differently if that can help, else set it aside."""
        extraction = claimed.extraction
        asked = extraction.parts[part]
        if failure.failure_class is FailureClass.TRUNCATED and asked.max_tokens is None:
            limit = 2 * claimed.extractor.model.max_tokens
            is_mine = await self._extractions.enlarge(extraction, part, limit)
            reached(CrashPoint.PART_ENLARGED)
        elif failure.failure_class in _SPLITTABLE and (
            smaller := halves(
                asked, await self._turns.read(extraction.session, asked.first_seq, asked.last_seq)
            )
        ):
            is_mine = await self._extractions.split(extraction, part, smaller)
            reached(CrashPoint.PART_SPLIT)
        else:
            await self._give_up(claimed, failure, [part], is_exhausted=False)
            return
        if not is_mine:
            raise ClaimLostError
        await self._read_again(claimed)

    async def _give_up(
        self, claimed: Claimed, failure: Failure, parts: Sequence[int], *, is_exhausted: bool
    ) -> None:
        await claimed.passage.admit_letter(failure, session=claimed.extraction.session)
        failed = Attempt(failure=failure, failed_at=self._clock.now())
        await self._fates.bury(
            claimed.context, claimed.extraction, parts, failed, is_exhausted=is_exhausted
        )
        await self._read_again(claimed)

    async def _read_again(self, claimed: Claimed) -> None:
        current = await self._extractions.get(claimed.extraction.extraction_id)
        if current is None or current.fence != claimed.extraction.fence:
            raise ClaimLostError
        claimed.extraction = current

    async def goes_on_after_crashes(self, claimed: Claimed) -> bool:
        """Set aside what waits, else what was answered; with neither left, end without either."""
        claimed.is_crash_loop = False
        parts = parts_to_bury(claimed.extraction)
        if not parts:
            await self._settler.settle(claimed, Outcome.DEAD, {})
            return False
        self._metrics.attempt_failed(FailureClass.CRASH_LOOP)
        await self._give_up(claimed, crash_loop(), parts, is_exhausted=False)
        return True
