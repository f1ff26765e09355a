"""What becomes of an extraction that can't go on now: F1 to F5 of the design.

A fate is one update of the ledger: the attempt, its class, the next message and every letter. Only
then is anything published. What was decided and not published is found by an index and sent.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import structlog

from pipeline.crash_points import CrashPoint, reached
from pipeline.errors import BrokerUnavailableError
from pipeline.extracting.planning import (
    extraction_id,
    new_extraction,
    ready_data,
    ready_event,
    summary_of,
)
from pipeline.failing.dead_letters import DeadLetters, LetterSubject
from pipeline.failing.retry import longest_within
from pipeline.messages import encode, forward
from pipeline.metrics import NO_METRICS, Metrics
from pipeline.ports.clocks import Clock, ServerTime
from pipeline.ports.extractions import Extractions
from pipeline.ports.publisher import Publisher
from pipeline.ports.snapshots import Snapshots
from pipeline.sweeping import mend_each
from schemas.event import SnapshotReadyData
from schemas.extraction import Extraction, NextMessage
from schemas.failure import Attempt
from schemas.message import IncomingMessage
from schemas.snapshot import Snapshot
from schemas.topics import SNAPSHOT_READY, RetryTier, Stage

log = structlog.get_logger()


class ClaimLostError(Exception):
    """Somebody else works on the extraction now; it never leaves the extraction step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The message an extraction is worked on for, and whose it is."""

    message: IncomingMessage
    project_id: str | None
    model: str


class Fates:
    """Writes and sends the fates of extractions."""

    def __init__(
        self,
        *,
        extractions: Extractions,
        snapshots: Snapshots,
        dead_letters: DeadLetters,
        publisher: Publisher,
        server_time: ServerTime,
        clock: Clock,
        new_ticket: Callable[[], str],
        tiers: Sequence[RetryTier],
        lost_after: timedelta,
        metrics: Metrics = NO_METRICS,
    ) -> None:
        self._metrics = metrics
        self._extractions = extractions
        self._snapshots = snapshots
        self._dead_letters = dead_letters
        self._publisher = publisher
        self._server_time = server_time
        self._clock = clock
        self._new_ticket = new_ticket
        self._tiers = tuple(tiers)
        self._lost_after_ms = _milliseconds(lost_after)

    async def retry(
        self, context: Context, extraction: Extraction, tier: RetryTier, attempt: Attempt
    ) -> None:
        """Record a failed attempt and send the extraction to a tier; the claim ends.

        Raises:
            ClaimLostError: Nothing was written.
        """
        await self._schedule(context, extraction, tier, attempt=attempt, ends_claim=True)

    async def go_on_later(self, context: Context, extraction: Extraction) -> None:
        """Let the extraction go on in another attempt; nothing is spent, the claim ends.

        Raises:
            ClaimLostError: Nothing was written.
        """
        await self._schedule(context, extraction, self._tiers[0], attempt=None, ends_claim=True)

    async def defer(self, context: Context, extraction: Extraction) -> None:
        """Come back when the lease of whoever holds the extraction has ended, if it has to be.

        For the redelivery of the very message the holder works on: should he be dead, no other
        message would be left. The claim stays his.
        """
        held = extraction.claim
        left_ms = 0 if held is None else held.lease_until_ms - await self._server_time.now_ms()
        tier = longest_within(self._tiers, timedelta(milliseconds=left_ms))
        await self._schedule(context, extraction, tier, attempt=None, ends_claim=False)

    async def park(self, context: Context, extraction: Extraction, wait: timedelta) -> None:
        """Come back later though nothing went wrong with it: neither attempt nor age is spent.

        Raises:
            ClaimLostError: Nothing was written.
        """
        tier = longest_within(self._tiers, wait)
        await self._schedule(
            context, extraction, tier, attempt=None, ends_claim=False, waits_free=True
        )

    async def bury(
        self,
        context: Context,
        extraction: Extraction,
        parts: Sequence[int],
        attempt: Attempt,
        *,
        is_exhausted: bool,
    ) -> None:
        """Set parts aside as letters, with all that failed before.

        Raises:
            ClaimLostError: Nothing was written.
        """
        attempts = (*extraction.attempts, attempt)
        letters = {
            part: self._dead_letters.of_part(
                context.message,
                LetterSubject(
                    extraction=extraction,
                    project_id=context.project_id,
                    part=part,
                    model=context.model,
                ),
                attempts,
                is_exhausted=is_exhausted,
            )
            for part in parts
        }
        if not await self._extractions.bury(extraction, letters, attempt):
            raise ClaimLostError
        reached(CrashPoint.PART_BURIED)

    async def send_pending(self, extraction: Extraction) -> None:
        """Send the letters and the message that were decided and not sent yet.

        Idempotent: copies carry the same ticket, and only one of them is ever worked on.
        """
        for letter in extraction.unsent_letters:
            await self._dead_letters.keep(letter)
        if extraction.unsent_letters:
            await self._extractions.drop_letters(
                extraction.extraction_id,
                [letter.letter_id for letter in extraction.unsent_letters],
            )
            reached(CrashPoint.LETTER_MOVED)
        if extraction.next.sent:
            return
        if extraction.outcome is None:
            await self._announce(extraction, topic=extraction.next.topic)
        await self._extractions.mark_sent(extraction.extraction_id, extraction.next.ticket)
        reached(CrashPoint.FATE_MARKED_SENT)

    async def sweep_unsent(self, limit: int) -> int:
        """Send what has been unsent for longer than its sender can need; return how many."""
        before_ms = await self._server_time.now_ms() - self._lost_after_ms
        unsent = await self._extractions.unsent(before_ms, limit)
        mended = await mend_each(
            unsent, self.send_pending, sweep="unsent_fates", metrics=self._metrics
        )
        return mended + await self._dead_letters.resend(before_ms, limit)

    async def send_again(self, extraction: Extraction) -> bool:
        """Send what is unsent, or the live message again if it must have been lost; whether it was.

        While somebody holds the extraction, or it waits in a tier, it is not lost. Idempotent.
        """
        if not extraction.next.sent:
            await self.send_pending(extraction)
            return True
        if self._is_due_by(extraction) > await self._server_time.now_ms():
            return False
        await self._announce(extraction, topic=extraction.next.topic)
        return True

    async def resend(self, snapshot: Snapshot) -> None:
        """Send the live message of an unsettled snapshot again, if it must have been lost.

        While somebody holds it, or it waits in a tier, it is looked at again afterwards; while it
        stays unsettled, after twice its age each time, so that a long queue gets few copies.
        """
        extraction = await self._extractions.get(
            extraction_id(snapshot.snapshot_id, snapshot.active_run)
        )
        now_ms = await self._server_time.now_ms()
        if extraction is not None and extraction.outcome is not None:
            await self._snapshots.settle(
                snapshot.snapshot_id, run=extraction.run, summary=summary_of(extraction)
            )
            reached(CrashPoint.SNAPSHOT_SETTLED)
            return
        wait_until_ms = 0 if extraction is None else self._is_due_by(extraction)
        if wait_until_ms > now_ms:
            await self._snapshots.wake_later(snapshot.snapshot_id, wait_until_ms)
            reached(CrashPoint.SNAPSHOT_WOKEN)
            return
        live = extraction or new_extraction(ready_data(snapshot, snapshot.active_run), now_ms)
        await self._announce(live, topic=SNAPSHOT_READY.name)
        age_ms = now_ms - int(snapshot.created_at.timestamp() * 1000)
        await self._snapshots.wake_later(
            snapshot.snapshot_id, now_ms + max(self._lost_after_ms, age_ms)
        )
        reached(CrashPoint.SNAPSHOT_WOKEN)

    def _is_due_by(self, extraction: Extraction) -> int:
        lease_ms = extraction.claim.lease_until_ms if extraction.claim else 0
        return max(lease_ms, extraction.next.due_ms + self._lost_after_ms)

    async def _announce(self, extraction: Extraction, *, topic: str) -> None:
        data = SnapshotReadyData(
            session=extraction.session,
            snapshot=extraction.snapshot_id,
            first_seq=extraction.parts[0].first_seq,
            last_seq=extraction.parts[0].last_seq,
            run=extraction.run,
        )
        event = ready_event(data, self._clock.now())
        await self._publisher.publish(encode(topic, event, ticket=extraction.next.ticket))
        reached(CrashPoint.FATE_PUBLISHED)

    async def _schedule(
        self,
        context: Context,
        extraction: Extraction,
        tier: RetryTier,
        *,
        attempt: Attempt | None,
        ends_claim: bool,
        waits_free: bool = False,
    ) -> None:
        now_ms = await self._server_time.now_ms()
        following = NextMessage(
            ticket=self._new_ticket(),
            topic=tier.topic.name,
            scheduled_ms=now_ms,
            due_ms=now_ms + _milliseconds(tier.delay),
            sent=False,
        )
        if not await self._extractions.schedule(
            extraction,
            following,
            attempt=attempt,
            ends_claim=ends_claim,
            waits_free=waits_free,
        ):
            raise ClaimLostError
        reached(CrashPoint.FATE_WRITTEN)
        failure = attempt.failure if attempt else None
        log.info(
            "extraction_waits",
            extraction=extraction.extraction_id,
            topic=tier.topic.name,
            failure_class=failure.failure_class if failure else None,
            reason=failure.reason if failure else None,
        )
        message = forward(
            context.message,
            topic=tier.topic.name,
            ticket=following.ticket,
            failure=failure,
            stage=Stage.EXTRACTION,
        )
        try:
            await self._publisher.publish(message)
        except BrokerUnavailableError:
            log.warning("fate_unsent", extraction=extraction.extraction_id)
            return
        reached(CrashPoint.FATE_PUBLISHED)
        await self._extractions.mark_sent(extraction.extraction_id, following.ticket)
        reached(CrashPoint.FATE_MARKED_SENT)


def _milliseconds(span: timedelta) -> int:
    return int(span.total_seconds() * 1000)
