"""What the embedding consumer does with the news that a record changed or a turn was recorded.

The field `embedding` of the record, or of the turn, is the ledger of this stage: what is pending
there is found by an index, so a message is no more than a reason to look, and may go once the
ledger says what is to become of it. Of messages for one owner one is live: the ticket tells which.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

import structlog

from pipeline.crash_points import CrashPoint, reached
from pipeline.embedding import ledger as steps
from pipeline.embedding.filling import Filler, Outlook
from pipeline.embedding.naming import owner_in, owner_named, subject_of, wake_up
from pipeline.embedding.ports import ActiveModel, Embedded, EmbeddingLedger, Refused
from pipeline.errors import BrokerUnavailableError, MessageError
from pipeline.failing.crash_loops import crash_loop
from pipeline.failing.dead_letters import DeadLetters
from pipeline.failing.failures import classify, is_infrastructure
from pipeline.failing.gating import Gate, HeldError, Passage
from pipeline.failing.retry import GiveUp, Hold, RetryIn, decide
from pipeline.ids import OpaqueIds
from pipeline.messages import decode, encode, forward
from pipeline.metrics import NO_METRICS, EmbeddingOutcome, Metrics
from pipeline.ports.clocks import Clock, ServerTime
from pipeline.ports.publisher import Publisher
from pipeline.sweeping import mend_each
from schemas.embedding import Embedding, EmbeddingState
from schemas.failure import Attempt, Failure
from schemas.message import TICKET_HEADER, IncomingMessage
from schemas.topics import RetryTier, Stage

NOT_ACTIVE: Final = "embedding_model_not_active"
LOOK_AGAIN_AFTER: Final = timedelta(seconds=10)
"""How soon to look again whether the configured model is the one whose vectors are searched."""
_COUNTED: Final[dict[EmbeddingState, EmbeddingOutcome]] = {
    EmbeddingState.EMBEDDED: "embedded",
    EmbeddingState.REFUSED: "refused",
    EmbeddingState.DEAD: "dead",
}

log = structlog.get_logger()


class EmbeddingStep:
    """The step of the embedding consumers and of their retry tiers.

    Concurrency: safe to run for the same message in any number of tasks and processes.
    """

    def __init__(
        self,
        *,
        ledger: EmbeddingLedger,
        filler: Filler,
        active: ActiveModel,
        gate: Gate,
        dead_letters: DeadLetters,
        publisher: Publisher,
        ids: OpaqueIds,
        server_time: ServerTime,
        clock: Clock,
        new_ticket: Callable[[], str],
        tiers: Sequence[RetryTier],
        age_cap: timedelta,
        metrics: Metrics = NO_METRICS,
    ) -> None:
        self._ledger = ledger
        self._filler = filler
        self._active = active
        self._gate = gate
        self._dead_letters = dead_letters
        self._publisher = publisher
        self._ids = ids
        self._server_time = server_time
        self._clock = clock
        self._new_ticket = new_ticket
        self._tiers = tuple(tiers)
        self._age_cap = age_cap
        self._metrics = metrics

    async def __call__(self, message: IncomingMessage) -> None:
        """Bring the embedding of what a message names to its end or a recorded wait.

        Raises:
            HeldError: The embedder can't be asked now, or is not the one whose vectors count.
            pymongo.errors.PyMongoError: The fate could not be written.
        """
        try:
            owner_id = owner_in(decode(message), self._ids)
        except MessageError as error:
            await self._dead_letters.settle(message, Stage.EMBEDDING, error)
            return
        while owner_id is not None and not await self._is_settled(message, owner_id):
            pass

    def subject(self, message: IncomingMessage) -> str | None:
        """Return what names its owner: every message of that embeds the same texts."""
        return subject_of(message)

    async def bury(self, message: IncomingMessage) -> bool:
        """Give up what has a message that kills the process, which is not decoded. Idempotent.

        Raises:
            pymongo.errors.PyMongoError: The fate could not be written.
        """
        owner_id = owner_named(message, self._ids)
        while owner_id is not None:
            found = await self._ledger.get(owner_id)
            if found is None:
                break
            if found.embedding.state is not EmbeddingState.PENDING:
                return True
            attempt = Attempt(failure=crash_loop(), failed_at=self._clock.now())
            if await self._is_dead(message, found, attempt, is_exhausted=False):
                return True
        await self._dead_letters.bury(message, Stage.EMBEDDING)
        return True

    async def _is_settled(self, message: IncomingMessage, owner_id: str) -> bool:
        """Go through it once; false if somebody changed the ledger meanwhile."""
        found = await self._ledger.get(owner_id)
        if found is None or found.embedding.state is not EmbeddingState.PENDING:
            self._metrics.duplicate_suppressed("settled")
            return True
        if message.header(TICKET_HEADER) != found.embedding.ticket:
            log.info("stale_message", owner=owner_id)
            self._metrics.duplicate_suppressed("stale")
            return True
        if await self._active.active() not in (None, self._filler.model):
            raise HeldError(NOT_ACTIVE, LOOK_AGAIN_AFTER)
        outlook = await self._filler.look(found)
        async with self._gate.enter(
            found.session, asks=bool(outlook.missing), is_replay=False
        ) as passage:
            return await self._attempt(message, outlook, passage)

    async def _attempt(self, message: IncomingMessage, outlook: Outlook, passage: Passage) -> bool:
        """Fill it; whatever goes wrong becomes a recorded fate here, or is raised."""
        owner_id = outlook.found.owner_id

        async def answered(refused: Sequence[Refused]) -> None:
            await passage.answered()
            for one in refused:
                await passage.admit_letter(_refusal(one), session=outlook.found.session)

        try:
            done = await self._filler.fill(outlook, answered)
        except HeldError:
            raise
        except Exception as error:  # whatever it is becomes a fate, or is raised again
            if is_infrastructure(error):
                raise
            return await self._has_fate(message, outlook.found, passage, classify(error))
        if done is None:
            log.info("owner_gone", owner=owner_id)
            return True
        if done.state is EmbeddingState.PENDING:
            log.info("embedded_beside_others", owner=owner_id)
            return True
        if done.state is EmbeddingState.EMBEDDED:
            await passage.ended_well()
        if done.deaths:
            letter_id = self._dead_letters.letter_of_owner(owner_id)
            await self._dead_letters.resolve(letter_id, deaths=done.deaths)
        log.info("embedded", owner=owner_id, state=done.state, reason=done.reason)
        self._metrics.record_embedded(_COUNTED[done.state])
        return True

    async def _has_fate(
        self, message: IncomingMessage, found: Embedded, passage: Passage, failure: Failure
    ) -> bool:
        """Decide what becomes of a failure, and write it; false if the ledger has changed.

        Raises:
            HeldError: No message can succeed like this.
        """
        self._metrics.attempt_failed(failure.failure_class)
        log.warning(
            "attempt_failed",
            owner=found.owner_id,
            failure_class=failure.failure_class,
            reason=failure.reason,
            exception=failure.exception,
        )
        if not await passage.failed(failure):
            # What is behind it must come to try, too: it may be the only one that fails.
            return await self._waits(message, found, self._tiers[0], None)
        failed = Attempt(failure=failure, failed_at=self._clock.now())
        now_ms = await self._server_time.now_ms()
        first_ms = found.embedding.first_failed_ms
        decision = decide(
            (*found.embedding.attempts, failed),
            first_seen_ms=now_ms if first_ms is None else first_ms,
            now_ms=now_ms,
            tiers=self._tiers,
            age_cap=self._age_cap,
            is_model_answering_others=await passage.answers_others(),
        )
        match decision:
            case RetryIn(tier=tier):
                return await self._waits(message, found, tier, failed)
            case Hold():
                raise HeldError(failure.reason)
            case GiveUp(failure=last, disposition=disposition):
                await passage.admit_letter(last, session=found.session)
                return await self._is_dead(
                    message,
                    found,
                    Attempt(failure=last, failed_at=failed.failed_at),
                    is_exhausted=disposition == "exhausted",
                )

    async def _waits(
        self, message: IncomingMessage, found: Embedded, tier: RetryTier, attempt: Attempt | None
    ) -> bool:
        """Record that it waits, then send it to its tier; what is not sent the waker sends."""
        owner_id, ticket = found.owner_id, self._new_ticket()
        now_ms = await self._server_time.now_ms()
        after = steps.waiting(
            found.embedding,
            ticket,
            due_ms=now_ms + tier.delay // timedelta(milliseconds=1),
            now_ms=now_ms,
            attempt=attempt,
        )
        if not await self._ledger.swap(owner_id, found.embedding, after):
            return False
        reached(CrashPoint.EMBEDDING_WAITS)
        failure = attempt.failure if attempt else None
        log.info("embedding_waits", owner=owner_id, topic=tier.topic.name)
        try:
            await self._publisher.publish(
                forward(
                    message,
                    topic=tier.topic.name,
                    ticket=ticket,
                    failure=failure,
                    stage=Stage.EMBEDDING,
                )
            )
        except BrokerUnavailableError:
            log.warning("fate_unsent", owner=owner_id)
            return True
        reached(CrashPoint.FATE_PUBLISHED)
        return True

    async def _is_dead(
        self, message: IncomingMessage, found: Embedded, attempt: Attempt, *, is_exhausted: bool
    ) -> bool:
        """Set it aside: first the letter, which is the same however often it is written."""
        await self._dead_letters.keep(
            self._dead_letters.of_owner(
                message,
                found.owner,
                (*found.embedding.attempts, attempt),
                deaths=found.embedding.deaths + 1,
                model=self._filler.model,
                is_exhausted=is_exhausted,
            )
        )
        after = steps.dead(found.embedding, attempt.failure.reason, model=self._filler.model)
        if not await self._ledger.swap(found.owner_id, found.embedding, after):
            return False
        reached(CrashPoint.EMBEDDING_DEAD)
        self._metrics.record_embedded("dead")
        return True


class PendingEmbeddings:
    """Finds records and turns whose message must have been lost, and sends it again."""

    def __init__(
        self,
        *,
        ledger: EmbeddingLedger,
        publisher: Publisher,
        server_time: ServerTime,
        clock: Clock,
        lost_after: timedelta,
        metrics: Metrics = NO_METRICS,
    ) -> None:
        self._ledger = ledger
        self._publisher = publisher
        self._server_time = server_time
        self._clock = clock
        self._lost_after_ms = lost_after // timedelta(milliseconds=1)
        self._metrics = metrics

    async def sweep(self, limit: int) -> int:
        """Wake what was due long ago and is pending still; return how many there were.

        Raises:
            BrokerUnavailableError: Kafka is gone; the next sweep tries again.
        """
        before_ms = await self._server_time.now_ms() - self._lost_after_ms
        due = await self._ledger.due(before_ms, limit)
        return await mend_each(due, self._wake, sweep="pending_embeddings", metrics=self._metrics)

    async def _wake(self, found: Embedded) -> None:
        topic, event = wake_up(found.owner, self._clock.now())
        await self._publisher.publish(encode(topic.name, event, ticket=found.embedding.ticket))
        reached(CrashPoint.EMBEDDING_WOKEN)
        now_ms = await self._server_time.now_ms()
        after: Embedding = steps.awake(found.embedding, now_ms=now_ms)
        await self._ledger.swap(found.owner_id, found.embedding, after)
        reached(CrashPoint.EMBEDDING_POSTPONED)


def _refusal(refused: Refused) -> Failure:
    return Failure(
        failure_class=refused.failure_class,
        reason=refused.reason,
        exception=f"{Refused.__module__}.{Refused.__qualname__}",
    )
