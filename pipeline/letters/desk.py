"""What operators do with dead letters. Every act is in the audit trail before it is done.

A letter of a part is sent back in its extraction's ledger: the part waits again under a new ticket,
and the message follows, or the sweep of unsent fates sends it. Cut anywhere, it is either still
dead or under way, and the same act again finishes it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import structlog

from pipeline.crash_points import CrashPoint, reached
from pipeline.embedding.ledger import again
from pipeline.embedding.naming import subject_of_owner, wake_up
from pipeline.embedding.ports import EmbeddingLedger
from pipeline.errors import BrokerUnavailableError, LetterError
from pipeline.extracting.fates import Fates
from pipeline.extracting.planning import ready_data, ready_event, turns_of
from pipeline.letters.changing import AS_IT_WAS, Change, opened
from pipeline.messages import EVENT_ID_HEADER, encode, sent_back
from pipeline.ports.clocks import Clock, ServerTime
from pipeline.ports.deliveries import Deliveries
from pipeline.ports.extractions import Extractions
from pipeline.ports.letters import Letters
from pipeline.ports.operator_actions import OperatorActions
from pipeline.ports.publisher import Publisher
from pipeline.ports.snapshots import Snapshots
from pipeline.ports.turns import Turns
from schemas.embedding import EmbeddingState
from schemas.extraction import Extraction, NextMessage, Outcome, PartState
from schemas.failure import Letter, LetterState
from schemas.message import IncomingMessage
from schemas.operator_action import Act, OperatorAction
from schemas.topics import SNAPSHOT_READY, Stage
from schemas.turn import Turn

log = structlog.get_logger()


class DiscardReason(StrEnum):
    """Why nobody will send a letter back."""

    NOT_NEEDED = "not_needed"
    """Nothing worth keeping is in it."""
    BAD_INPUT = "bad_input"
    """Nothing can be made of what was sent."""
    DUPLICATE = "duplicate"
    """It is done by other means."""
    REFUSED_FOR_GOOD = "refused_for_good"
    """No model takes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What sending a letter back would ask for."""

    turns: int
    tokens: int
    """Of the turns as text; prompt and answer come on top. 0 where nothing is asked again."""


class LetterDesk:
    """Sends letters back, discards and restores them.

    Concurrency: of two operators at once one does it, and the other is told.
    """

    def __init__(
        self,
        *,
        letters: Letters,
        extractions: Extractions,
        snapshots: Snapshots,
        turns: Turns,
        deliveries: Deliveries,
        embeddings: EmbeddingLedger,
        fates: Fates,
        publisher: Publisher,
        actions: OperatorActions,
        server_time: ServerTime,
        clock: Clock,
        lost_after: timedelta,
        new_name: Callable[[], str],
        by: str,
    ) -> None:
        self._letters = letters
        self._extractions = extractions
        self._snapshots = snapshots
        self._turns = turns
        self._deliveries = deliveries
        self._embeddings = embeddings
        self._fates = fates
        self._publisher = publisher
        self._actions = actions
        self._server_time = server_time
        self._clock = clock
        self._lost_after_ms = lost_after // timedelta(milliseconds=1)
        self._new_name = new_name
        """Makes tickets and names of acts that no other ever has."""
        self._by = by

    async def read(self, letter_id: str) -> Letter:
        """Return a letter.

        Raises:
            LetterError: There is none.
        """
        letter = await self._letters.get(letter_id)
        if letter is None:
            raise LetterError("no letter has that id: `./afterturn letters list` shows them")
        return letter

    async def turns_of(self, letter: Letter) -> tuple[Turn, ...]:
        """Return the turns of the part that failed; none where it is about no part."""
        if letter.extraction_id is None or letter.part is None:
            return ()
        extraction = await self._extractions.get(letter.extraction_id)
        if extraction is None:
            return ()
        part = extraction.parts[letter.part]
        turns = await self._turns.read(extraction.session, part.first_seq, part.last_seq)
        return turns_of(part, turns)

    async def estimate(self, letter: Letter) -> Estimate:
        """Return what sending it back would ask for."""
        turns = await self.turns_of(letter)
        return Estimate(turns=len(turns), tokens=sum(turn.tokens for turn in turns))

    async def redrive(self, letter: Letter, change: Change = AS_IT_WAS) -> None:
        """Send a dead letter back, perhaps with a change; its ladders and its age begin anew.

        Raises:
            LetterError: It is not dead, or can't be tried like this.
            BrokerUnavailableError: Kafka takes nothing, and it is no part of an extraction.
            pymongo.errors.PyMongoError: It may be sent back, or not: do it again.
        """
        if letter.extraction_id is not None and letter.part is not None:
            await self._redrive_part(letter, letter.extraction_id, letter.part, change)
        elif (owner_id := letter.owner_id) is not None:
            await self._redrive_embedding(letter, owner_id, change)
        else:
            await self._send_back(letter, change)
        log.info("letter_redriven", letter=letter.letter_id)

    async def discard(self, letter: Letter, reason: DiscardReason) -> None:
        """Set a dead letter aside for good, until it is restored.

        Raises:
            LetterError: It is not dead any more.
        """
        await self._note(Act.LETTER_DISCARD, letter)
        await self._change(letter, LetterState.DEAD, LetterState.DISCARDED, reason)

    async def restore(self, letter: Letter) -> None:
        """Make a discarded letter a dead one again.

        Raises:
            LetterError: It is not discarded.
        """
        await self._note(Act.LETTER_RESTORE, letter)
        await self._change(letter, LetterState.DISCARDED, LetterState.DEAD)

    async def _send_back(self, letter: Letter, change: Change) -> None:
        """Publish a message again where it failed, byte for byte."""
        at = letter.original
        if letter.state not in (LetterState.DEAD, LetterState.WAITING):
            raise LetterError(f"it is {letter.state} and not dead: look at it again")
        if not change.is_none or at is None:
            raise LetterError(
                "it is a message that could not be read, so nothing about it can be changed: send"
                " it back as it is, or discard it"
            )
        await self._note(Act.LETTER_REDRIVE, letter)
        # Whoever looked for it has it without its message.
        whole = await self.read(letter.letter_id)
        message = IncomingMessage(at=at, key=whole.key, value=whole.value, headers=whole.headers)
        key = (whole.key or b"").decode(errors="replace")
        place = f"{at.topic}/{at.partition}/{at.offset}"
        for subject in (message.header(EVENT_ID_HEADER), key, place):
            await self._try_anew(letter, subject)
        # It may die again before this returns: that death comes after this one, and stands.
        if letter.state is LetterState.DEAD:
            await self._change(letter, LetterState.DEAD, LetterState.WAITING)
        await self._publisher.publish(sent_back(whole))
        reached(CrashPoint.MESSAGE_SENT_BACK)
        await self._is_changed(letter, LetterState.WAITING, LetterState.RESOLVED)

    async def _redrive_part(
        self, letter: Letter, extraction_id: str, place: int, change: Change
    ) -> None:
        if letter.state is not LetterState.DEAD:
            raise LetterError(f"it is {letter.state} and not dead: look at it again")
        extraction = await self._extractions.get(extraction_id)
        if extraction is None or extraction.outcome is Outcome.GONE:
            raise LetterError("what it is about is gone (forgotten or expired): discard it")
        part = extraction.parts[place]
        if part.state is not PartState.DEAD:
            # Cut off between the ledger and the letter: what is left is to say so.
            ends = LetterState.WAITING if extraction.outcome is None else LetterState.RESOLVED
            await self._change(letter, LetterState.DEAD, ends)
            await self._send(extraction_id)
            return
        turns = await self._turns.read(extraction.session, part.first_seq, part.last_seq)
        replacement = opened(part, change, turns)
        await self._note(Act.LETTER_REDRIVE, letter)
        snapshot = await self._snapshots.get(extraction.snapshot_id)
        if snapshot is not None:
            event = ready_event(ready_data(snapshot, extraction.run), self._clock.now())
            await self._try_anew(letter, event.id)
        now_ms = await self._server_time.now_ms()
        await self._snapshots.reopen(
            extraction.snapshot_id, run=extraction.run, wake_at_ms=now_ms + self._lost_after_ms
        )
        reached(CrashPoint.SNAPSHOT_REOPENED)
        following = NextMessage(
            ticket=self._new_name(),
            topic=SNAPSHOT_READY.name,
            scheduled_ms=now_ms,
            due_ms=now_ms,
            sent=False,
        )
        if not await self._extractions.redrive(extraction, place, replacement, following):
            raise LetterError("something else has just changed it: look at it again")
        reached(CrashPoint.PART_OPENED)
        await self._is_changed(letter, LetterState.DEAD, LetterState.WAITING)
        await self._send(extraction_id)

    async def _redrive_embedding(self, letter: Letter, owner_id: str, change: Change) -> None:
        """Let a record or turn be embedded again: it is pending, and whoever embeds is woken."""
        if letter.state is not LetterState.DEAD:
            raise LetterError(f"it is {letter.state} and not dead: look at it again")
        if not change.is_none:
            raise LetterError("a text is embedded as it is: send it back without a change")
        found = await self._embeddings.get(owner_id)
        if found is None:
            raise LetterError("what it is about is gone, or is embedded no more: discard it")
        if found.embedding.state is not EmbeddingState.DEAD:
            # What it says has changed since, or another model was gone over to.
            is_pending = found.embedding.state is EmbeddingState.PENDING
            ends = LetterState.WAITING if is_pending else LetterState.RESOLVED
            await self._change(letter, LetterState.DEAD, ends)
            return
        await self._note(Act.LETTER_REDRIVE, letter)
        await self._try_anew(letter, subject_of_owner(found.owner))
        pending = again(found.embedding, now_ms=await self._server_time.now_ms())
        if not await self._embeddings.swap(owner_id, found.embedding, pending):
            raise LetterError("something else has just changed it: look at it again")
        reached(CrashPoint.PART_OPENED)
        await self._is_changed(letter, LetterState.DEAD, LetterState.WAITING)
        topic, event = wake_up(found.owner, self._clock.now())
        try:
            await self._publisher.publish(encode(topic.name, event))
        except BrokerUnavailableError:
            log.warning("fate_unsent", owner=owner_id)
        reached(CrashPoint.MESSAGE_SENT_BACK)

    async def _send(self, extraction_id: str) -> None:
        extraction: Extraction | None = await self._extractions.get(extraction_id)
        if extraction is None:
            return
        try:
            await self._fates.send_pending(extraction)
        except BrokerUnavailableError:
            log.warning("fate_unsent", extraction=extraction_id)

    async def _try_anew(self, letter: Letter, subject: str | None) -> None:
        """Let what killed its process again and again be tried again."""
        if subject:
            await self._deliveries.remove(Stage(letter.stage), subject)

    async def _change(
        self,
        letter: Letter,
        before: LetterState,
        after: LetterState,
        reason: DiscardReason | None = None,
    ) -> None:
        if not await self._is_changed(letter, before, after, reason):
            raise LetterError(f"it is not {before} any more: look at it again")

    async def _is_changed(
        self,
        letter: Letter,
        before: LetterState,
        after: LetterState,
        reason: DiscardReason | None = None,
    ) -> bool:
        is_changed = await self._letters.change(
            letter.letter_id,
            deaths=letter.deaths,
            states=(before,),
            to=after,
            discarded_for=reason,
        )
        reached(CrashPoint.LETTER_CHANGED)
        return is_changed

    async def _note(self, act: Act, letter: Letter) -> None:
        at = datetime.fromtimestamp(await self._server_time.now_ms() / 1000, UTC)
        await self._actions.write(
            OperatorAction(
                action_id=self._new_name(),
                at=at,
                by=self._by,
                act=act,
                target=letter.letter_id,
                project_id=letter.project_id,
            )
        )
