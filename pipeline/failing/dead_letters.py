"""Dead letters: in MongoDB first, then on the dead topic, then marked as sent.

A letter is never lost between the two: one that is stored and not on its topic is found by an
index and sent again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import structlog

from pipeline.crash_points import CrashPoint, reached
from pipeline.embedding.ports import Owner
from pipeline.errors import BrokerUnavailableError, MessageError, MessageTooLargeError
from pipeline.failing.crash_loops import crash_loop
from pipeline.failing.failures import action, classify, fingerprint
from pipeline.ids import OpaqueIds
from pipeline.messages import LETTER_HEADER, by_reference, forward
from pipeline.metrics import NO_METRICS, Metrics
from pipeline.ports.clocks import Clock
from pipeline.ports.letters import Letters
from pipeline.ports.publisher import Publisher
from pipeline.sweeping import mend_each
from schemas.extraction import Extraction
from schemas.failure import Attempt, Failure, Letter, LetterState
from schemas.message import IncomingMessage
from schemas.record import Record
from schemas.topics import DEAD, Stage

_SENT_BACK: Final = (LetterState.WAITING, LetterState.RESOLVED)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterSubject:
    """What a letter is about, beside the message it came from."""

    extraction: Extraction
    project_id: str | None
    part: int
    model: str


class DeadLetters:
    """Writes letters and sees to it that they arrive."""

    def __init__(
        self,
        *,
        letters: Letters,
        publisher: Publisher,
        ids: OpaqueIds,
        clock: Clock,
        metrics: Metrics = NO_METRICS,
    ) -> None:
        self._letters = letters
        self._publisher = publisher
        self._ids = ids
        self._clock = clock
        self._metrics = metrics

    async def settle(self, message: IncomingMessage, stage: Stage, error: MessageError) -> None:
        """Set a message aside that can't be read, with its exact bytes and headers.

        Idempotent: the same message has the same letter.
        """
        await self._keep_whole(message, stage, classify(error))

    async def bury(self, message: IncomingMessage, stage: Stage) -> None:
        """Set a message aside that kills its process, with its exact bytes and headers.

        Nothing of it is decoded. Idempotent: the same message has the same letter.
        """
        await self._keep_whole(message, stage, crash_loop())

    async def _keep_whole(self, message: IncomingMessage, stage: Stage, failure: Failure) -> None:
        at = message.at
        self._metrics.attempt_failed(failure.failure_class)
        earlier = await self._sent_back(message)
        now = self._clock.now()
        letter_id = self._ids.letter(
            at.topic, at.partition, at.offset, at.timestamp_ms, (message.value or b"").hex()
        )
        await self.keep(
            Letter(
                letter_id=letter_id if earlier is None else earlier.letter_id,
                stage=stage.value,
                failure_class=failure.failure_class,
                reason=failure.reason,
                disposition="content",
                fingerprint=fingerprint(failure),
                action=action(failure),
                attempts=(
                    *(() if earlier is None else earlier.attempts),
                    Attempt(failure=failure, failed_at=now),
                ),
                original=at,
                key=message.key,
                value=message.value,
                headers=message.headers,
                created_at=now if earlier is None else earlier.created_at,
                died_at=None if earlier is None else now,
                deaths=1 if earlier is None else earlier.deaths + 1,
            )
        )

    async def _sent_back(self, message: IncomingMessage) -> Letter | None:
        """Return the letter that a message was sent back from, if it is really that one's."""
        letter_id = message.header(LETTER_HEADER)
        letter = None if letter_id is None else await self._letters.get(letter_id)
        if letter is None or (letter.key, letter.value) != (message.key, message.value):
            return None
        return letter if letter.state in _SENT_BACK else None

    def of_part(
        self,
        message: IncomingMessage,
        subject: LetterSubject,
        attempts: Sequence[Attempt],
        *,
        is_exhausted: bool,
    ) -> Letter:
        """Return the letter of a part of an extraction; nothing is stored yet."""
        extraction = subject.extraction
        death = _death(
            message,
            attempts,
            letter_id=self._ids.letter(extraction.extraction_id, subject.part),
            stage=Stage.EXTRACTION,
            deaths=extraction.parts[subject.part].redrives + 1,
            is_exhausted=is_exhausted,
        )
        about = {
            "session": extraction.session,
            "project_id": subject.project_id,
            "snapshot_id": extraction.snapshot_id,
            "extraction_id": extraction.extraction_id,
            "part": subject.part,
            "model": subject.model,
        }
        return death.model_copy(update=about)

    def of_owner(
        self,
        message: IncomingMessage,
        owner: Owner,
        attempts: Sequence[Attempt],
        *,
        deaths: int,
        model: str,
        is_exhausted: bool,
    ) -> Letter:
        """Return the letter of what can't be embedded; nothing is stored yet.

        A record or turn has one, which counts how often it was given up: `deaths`, with this time.
        """
        if isinstance(owner, Record):
            owner_id = owner.record_id
            about = {"record_id": owner_id, "project_id": owner.scope.project_id}
        else:
            owner_id = owner.turn_id
            project_id = owner.identity.project_id
            about = {"turn_id": owner_id, "project_id": project_id, "session": owner.session}
        death = _death(
            message,
            attempts,
            letter_id=self.letter_of_owner(owner_id),
            stage=Stage.EMBEDDING,
            deaths=deaths,
            is_exhausted=is_exhausted,
        )
        return death.model_copy(update={**about, "model": model})

    def letter_of_owner(self, owner_id: str) -> str:
        """Return the id of a record's or turn's letter, whether it has one or not."""
        return self._ids.letter(Stage.EMBEDDING, owner_id)

    async def keep(self, letter: Letter) -> None:
        """Store a letter, publish it, mark it as sent.

        Idempotent. Without Kafka it stays stored as unsent, and `resend` finds it.
        """
        await self._letters.put(letter)
        reached(CrashPoint.LETTER_STORED)
        log.warning(
            "letter_kept",
            letter=letter.letter_id,
            stage=letter.stage,
            failure_class=letter.failure_class,
            reason=letter.reason,
            disposition=letter.disposition,
        )
        try:
            await self._publish(letter)
        except BrokerUnavailableError:
            log.warning("letter_unsent", letter=letter.letter_id)

    async def resolve(self, letter_id: str, *, deaths: int) -> None:
        """What it was about has been done, since it was sent back for the last time. Idempotent."""
        await self._letters.change(
            letter_id,
            deaths=deaths,
            states=(LetterState.DEAD, LetterState.WAITING),
            to=LetterState.RESOLVED,
        )
        reached(CrashPoint.LETTER_CHANGED)

    async def resend(self, before_ms: int, limit: int) -> int:
        """Publish letters unsent since before then; return how many arrived.

        Raises:
            BrokerUnavailableError: Kafka is gone; the next sweep tries again.
        """
        unsent = await self._letters.unsent(before_ms, limit)
        return await mend_each(unsent, self._publish, sweep="unsent_letters", metrics=self._metrics)

    async def _publish(self, letter: Letter) -> None:
        if letter.original is None:
            await self._letters.mark_sent(letter.letter_id)
            reached(CrashPoint.LETTER_MARKED_SENT)
            return
        original = IncomingMessage(
            at=letter.original,
            key=letter.key,
            value=letter.value,
            headers=letter.headers,
        )
        failure: Failure = letter.attempts[-1].failure
        dead = forward(
            original,
            topic=DEAD[Stage(letter.stage)].name,
            ticket=letter.letter_id,
            failure=failure,
            stage=Stage(letter.stage),
        )
        try:
            await self._publisher.publish(dead)
            reached(CrashPoint.LETTER_PUBLISHED)
        except MessageTooLargeError:
            log.warning("letter_sent_by_reference", letter=letter.letter_id, topic=dead.topic)
            await self._publisher.publish(by_reference(dead))
            reached(CrashPoint.LETTER_PUBLISHED)
        await self._letters.mark_sent(letter.letter_id)
        reached(CrashPoint.LETTER_MARKED_SENT)


def _death(
    message: IncomingMessage,
    attempts: Sequence[Attempt],
    *,
    letter_id: str,
    stage: Literal[Stage.EXTRACTION, Stage.EMBEDDING],
    deaths: int,
    is_exhausted: bool,
) -> Letter:
    """Return the letter of attempts that came to nothing, without what they were about."""
    failure, died_at = attempts[-1].failure, attempts[-1].failed_at
    return Letter(
        letter_id=letter_id,
        stage=stage.value,
        failure_class=failure.failure_class,
        reason=failure.reason,
        disposition="exhausted" if is_exhausted else "content",
        fingerprint=fingerprint(failure),
        action=action(failure),
        attempts=tuple(attempts),
        original=message.at,
        key=message.key,
        value=message.value,
        headers=message.headers,
        created_at=died_at,
        died_at=died_at if deaths > 1 else None,
        deaths=deaths,
    )
