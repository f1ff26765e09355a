"""From a snapshot to records: E1 to E9 of the design.

Every step can be cut anywhere. Whoever comes next reads the ledger and goes on at the first part
without an answer; an answer that was stored is never paid for again, and delivering a settled
extraction once more changes nothing.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final
from weakref import WeakValueDictionary

import structlog

from pipeline.crash_points import CrashPoint, reached
from pipeline.errors import ConfigurationError, MessageError, MissingDocumentError
from pipeline.extracting.extractors import Extractor, Extractors
from pipeline.extracting.fates import ClaimLostError, Context, Fates
from pipeline.extracting.judging import NO_BARS, Judgement, judge_answers
from pipeline.extracting.planning import (
    FIRST_TICKET,
    extraction_id,
    new_extraction,
    next_waiting,
    outcome_of,
    outcome_unasked,
    ready_data,
    run_of,
    tail_before,
    turns_of,
)
from pipeline.extracting.settling import Claimed, Settler
from pipeline.failing.crash_loops import CRASHES, SUSPECT_CLAIMS, SuspectError
from pipeline.failing.dead_letters import DeadLetters
from pipeline.failing.failed_attempts import FailedAttempts
from pipeline.failing.failures import is_infrastructure
from pipeline.failing.gating import HeldError
from pipeline.folding.asserting import assert_run, said_in
from pipeline.folding.refolding import Folder
from pipeline.forgetting.barring import Bars
from pipeline.forgetting.blanking import forgotten_in
from pipeline.ids import OpaqueIds
from pipeline.messages import EVENT_ID_HEADER, decode
from pipeline.metrics import NO_METRICS, Metrics
from pipeline.offloading import apart
from pipeline.ports.clocks import ServerTime
from pipeline.ports.extractions import Extractions
from pipeline.ports.model import ModelRequest
from pipeline.ports.snapshots import Snapshots
from pipeline.ports.turns import Turns
from pipeline.replaying.succession import Succession
from pipeline.settings import ExtractionSettings
from schemas.event import SnapshotReady, SnapshotReadyData
from schemas.extraction import Extraction, Outcome, PartState, Reply, SetAside
from schemas.failure import FailureClass
from schemas.memory import Kind
from schemas.message import TICKET_HEADER, IncomingMessage
from schemas.snapshot import Snapshot
from schemas.topics import Stage
from schemas.turn import Turn

log = structlog.get_logger()

CALLS: Final = 8
"""Answers one attempt asks for at most; what is left goes on in another one."""
PARKED_FOR: Final = timedelta(seconds=30)
"""How long what can't be asked now stays away, where nobody knows better."""


class ExtractionStep:
    """The step of the extraction consumers and of their retry tiers.

    Concurrency: safe to run for the same message in any number of tasks and processes.
    """

    def __init__(
        self,
        *,
        extractions: Extractions,
        snapshots: Snapshots,
        turns: Turns,
        extractors: Extractors,
        folder: Folder,
        fates: Fates,
        dead_letters: DeadLetters,
        ids: OpaqueIds,
        settler: Settler,
        succession: Succession,
        failed_attempts: FailedAttempts,
        server_time: ServerTime,
        owner: str,
        settings: ExtractionSettings,
        metrics: Metrics = NO_METRICS,
        is_alone: Callable[[], bool] = lambda: True,
    ) -> None:
        self._metrics = metrics
        self._is_alone = is_alone
        """Whether nobody else would be killed with what runs now."""
        self._extractions = extractions
        self._snapshots = snapshots
        self._turns = turns
        self._extractors = extractors
        self._folder = folder
        self._fates = fates
        self._dead_letters = dead_letters
        self._ids = ids
        self._settler = settler
        self._succession = succession
        self._failed_attempts = failed_attempts
        self._server_time = server_time
        self._owner = owner
        self._settings = settings
        self._turnstiles: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """One an extraction that is worked on here; gone when nobody is."""

    async def __call__(self, message: IncomingMessage) -> None:
        """Bring the extraction that a message names to its outcome, or to a recorded wait.

        Raises:
            HeldError: The model can't be asked now, or what is configured works for no message.
            SuspectError: It is to run alone.
            pymongo.errors.PyMongoError: The fate could not be written.
        """
        try:
            data = _ready(message)
        except MessageError as error:
            await self._dead_letters.settle(message, Stage.EXTRACTION, error)
            return
        await self._end(message, data)

    def subject(self, message: IncomingMessage) -> str | None:
        """Return the event's id, by its header: the same in all copies of a run's message."""
        return message.header(EVENT_ID_HEADER)

    async def bury(self, message: IncomingMessage) -> bool:
        """Set aside the parts of a run whose message kills the process, which is not decoded.

        Return whether the run has its outcome now, or there is none. Idempotent.

        Raises:
            HeldError: Letters are being held back.
            pymongo.errors.PyMongoError: The fate could not be written.
        """
        named = run_of(self.subject(message) or "")
        snapshot = await self._snapshots.get(named[0]) if named else None
        if named is None or snapshot is None:
            await self._dead_letters.bury(message, Stage.EXTRACTION)
            return True
        data = ready_data(snapshot, named[1])
        await self._end(message, data, is_crash_loop=True)
        current = await self._extractions.get(extraction_id(data.snapshot, data.run))
        return current is not None and current.outcome is not None

    async def _end(
        self, message: IncomingMessage, data: SnapshotReadyData, *, is_crash_loop: bool = False
    ) -> None:
        # A redelivery may come while the first delivery is still worked on here: it waits for its
        # end, so that taking over a claim of our own always means that nobody works under it.
        turnstile = self._turnstiles.setdefault(f"{data.snapshot}:{data.run}", asyncio.Lock())
        async with turnstile:
            is_settled = False
            while not is_settled:
                is_settled = await self._is_settled(message, data, is_crash_loop=is_crash_loop)

    async def _is_settled(
        self, message: IncomingMessage, data: SnapshotReadyData, *, is_crash_loop: bool
    ) -> bool:
        """Go through E1 to E9 once; false if somebody changed the ledger meanwhile."""
        now_ms = await self._server_time.now_ms()
        extraction = await self._extractions.ensure(new_extraction(data, now_ms))
        reached(CrashPoint.EXTRACTION_ENSURED)
        if extraction.outcome is not None:
            self._metrics.duplicate_suppressed("settled")
            await self._settler.finish(extraction)
            return True
        ticket = message.header(TICKET_HEADER) or FIRST_TICKET
        if ticket != extraction.next.ticket and not is_crash_loop:
            log.info("stale_message", extraction=extraction.extraction_id)
            self._metrics.duplicate_suppressed("stale")
            await self._fates.send_pending(extraction)
            return True
        snapshot = await self._snapshots.get(extraction.snapshot_id)
        extractor = await self._extractors.of(
            None if snapshot is None else snapshot.identity.project_id,
            began_under=extraction.revision,
        )
        try:
            return await self._pass(message, extraction, extractor, is_crash_loop=is_crash_loop)
        except HeldError as held:
            if extractor.parks(held):
                return await self._is_parked(message, extraction, extractor, held)
            await self._extractions.hold(
                extraction.extraction_id, since_ms=await self._server_time.now_ms()
            )
            reached(CrashPoint.EXTRACTION_HELD)
            raise

    async def _is_parked(
        self,
        message: IncomingMessage,
        seen: Extraction,
        extractor: Extractor,
        held: HeldError,
    ) -> bool:
        """Let an extraction come back later, so that nobody is held up behind it."""
        current = await self._extractions.get(seen.extraction_id)
        if current is None or current.outcome is not None:
            return False
        if current.next.ticket != seen.next.ticket:
            return False
        context = Context(message=message, project_id=None, model=extractor.model.name)
        try:
            await self._fates.park(context, current, held.again_in or PARKED_FOR)
        except ClaimLostError:
            return False
        log.info("extraction_parked", extraction=seen.extraction_id, reason=held.reason)
        return True

    async def _pass(
        self,
        message: IncomingMessage,
        extraction: Extraction,
        extractor: Extractor,
        *,
        is_crash_loop: bool,
    ) -> bool:
        """E2 and E3: wait at the gate, claim, work; return as `_is_settled`."""
        waits = next_waiting(extraction) is not None
        async with extractor.gate.enter(
            extraction.extraction_id,
            asks=waits and bool(extractor.kinds) and not is_crash_loop,
            is_replay=extraction.run > 0,
        ) as passage:
            taken = await self._extractions.claim(
                extraction,
                owner=self._owner,
                message=_coordinates(message),
                now_ms=await self._server_time.now_ms(),
                lease=self._settings.lease,
            )
            if taken is None:
                return await self._is_left_to_another(message, extraction, extractor)
            reached(CrashPoint.EXTRACTION_CLAIMED)
            if taken.crashes >= SUSPECT_CLAIMS and not self._is_alone():
                await self._extractions.release(taken)
                raise SuspectError
            claimed = Claimed(
                message=message,
                extraction=taken,
                ends_at=asyncio.get_running_loop().time()
                + self._settings.attempt_deadline.total_seconds(),
                extractor=extractor,
                passage=passage,
                is_crash_loop=is_crash_loop or taken.crashes >= CRASHES,
            )
            return await self._work(claimed)

    async def _is_left_to_another(
        self, message: IncomingMessage, seen: Extraction, extractor: Extractor
    ) -> bool:
        """See to it that a live message stays for an extraction somebody else holds."""
        current = await self._extractions.get(seen.extraction_id)
        if current is None or current.claim is None or current.next.ticket != seen.next.ticket:
            return False
        if current.claim.lease_until_ms <= await self._server_time.now_ms():
            return False
        is_live = current.claim.ticket == current.next.ticket
        if is_live and current.claim.message != _coordinates(message):
            log.info("held_by_another", extraction=seen.extraction_id)
            self._metrics.duplicate_suppressed("held_by_another")
            return True
        try:
            await self._fates.defer(
                Context(message=message, project_id=None, model=extractor.model.name), current
            )
        except ClaimLostError:
            return False
        return True

    async def _work(self, claimed: Claimed) -> bool:
        """Work on a claimed extraction until it is settled or waits; the claim ends with it.

        The one place that settles a failure: whatever went wrong becomes a recorded fate here, or
        is raised because none could be written.
        """
        try:
            while True:
                try:
                    await self._extract(claimed)
                except (ClaimLostError, HeldError):
                    raise
                except Exception as error:  # whatever it is becomes a fate, or is raised again
                    if is_infrastructure(error) or isinstance(error, ConfigurationError):
                        raise
                    if not await self._failed_attempts.goes_on_after(claimed, error):
                        return True
                else:
                    return True
        except ClaimLostError:
            return False
        except HeldError:
            await self._extractions.release(claimed.extraction)
            raise
        except asyncio.CancelledError:
            await asyncio.shield(self._extractions.release(claimed.extraction))
            raise

    async def _extract(self, claimed: Claimed) -> None:
        """E4 to E9: read the turns, ask for what has no answer, conclude."""
        extraction = claimed.extraction
        snapshot = await self._snapshots.get(extraction.snapshot_id)
        if snapshot is None:
            raise MissingDocumentError("snapshot")
        claimed.project_id = snapshot.identity.project_id
        # Before the turns are read, for that may be what kills.
        if claimed.is_crash_loop and not await self._failed_attempts.goes_on_after_crashes(claimed):
            return
        turns = await self._turns.read(
            snapshot.session,
            max(1, snapshot.first_seq - self._settings.context_turns),
            snapshot.last_seq,
        )
        is_replay = extraction.run > snapshot.active_run and extraction.job_id is not None
        is_replaced = extraction.run != snapshot.active_run and not is_replay
        if is_replaced:
            # Whoever worked on it before may have died after he asserted something.
            await self._folder.remove_run(extraction.extraction_id)
        if is_replaced or not any(turn.seq >= snapshot.first_seq for turn in turns):
            await self._settler.settle(claimed, Outcome.GONE, {})
            return
        while (part := next_waiting(claimed.extraction)) is not None:
            if not claimed.extractor.kinds:
                await self._settler.settle(claimed, outcome_unasked(claimed.extraction), {})
                return
            if not self._has_time(claimed):
                await self._fates.go_on_later(claimed.context, claimed.extraction)
                return
            await self._ask(claimed, part, snapshot, turns)
        await self._conclude(claimed, snapshot, turns)

    def _has_time(self, claimed: Claimed) -> bool:
        """Whether another answer may be asked for: the first always, the others in due time."""
        left = claimed.ends_at - asyncio.get_running_loop().time()
        return claimed.calls == 0 or (
            claimed.calls < CALLS and left > self._settings.attempt_deadline.total_seconds() / 2
        )

    async def _ask(
        self, claimed: Claimed, part: int, snapshot: Snapshot, turns: Sequence[Turn]
    ) -> None:
        """E5 and E6: ask the model for a part and store its answer."""
        extractor, asked = claimed.extractor, claimed.extraction.parts[part]
        request = ModelRequest(
            turns=turns_of(asked, turns),
            context=tail_before(
                asked.first_seq,
                turns,
                most=self._settings.context_turns,
                most_tokens=self._settings.context_tokens,
            ),
            kinds=tuple(kind for kind in asked.kinds if kind in extractor.kinds),
            max_tokens=asked.max_tokens,
            instructions=extractor.instructions,
        )
        claimed.part = part
        claimed.calls += 1
        async with asyncio.timeout_at(claimed.ends_at):
            reply = await extractor.model.answer(request)
        reached(CrashPoint.MODEL_ANSWERED)
        claimed.extraction = await self._store(claimed, part, request.kinds, reply)
        claimed.part = None
        await claimed.passage.answered()
        log.info(
            "part_answered",
            extraction=claimed.extraction.extraction_id,
            part=part,
            model=reply.model,
            calls=reply.calls,
        )

    async def _store(
        self, claimed: Claimed, part: int, kinds: Sequence[Kind], reply: Reply
    ) -> Extraction:
        """Store an answer, and try again while the claim lasts: it was paid for.

        Raises:
            ClaimLostError: It is stored, but somebody else goes on from there.
        """
        extraction, extractor = claimed.extraction, claimed.extractor
        gives_up_at = asyncio.get_running_loop().time() + _margin(self._settings).total_seconds()
        while True:
            try:
                stored = await self._extractions.store_reply(
                    extraction,
                    part,
                    reply,
                    version=extractor.version,
                    revision=extractor.revision,
                    kinds=kinds,
                )
                reached(CrashPoint.ANSWER_STORED)
            except Exception as error:  # what is not the database's is raised again
                is_over = asyncio.get_running_loop().time() > gives_up_at
                if is_over or not is_infrastructure(error):
                    raise
                log.warning("answer_not_stored_yet", extraction=extraction.extraction_id)
                await asyncio.sleep(1)
            else:
                break
        if stored.parts[part].reply != reply:
            self._metrics.answer_superseded(reply)
        if stored.fence != extraction.fence:
            raise ClaimLostError
        return stored

    async def _conclude(self, claimed: Claimed, snapshot: Snapshot, turns: Sequence[Turn]) -> None:
        """E7 to E9: judge the items, fold what is accepted, settle."""
        extraction = claimed.extraction

        async def judge(bars: Bars) -> dict[int, Judgement]:
            return await apart(
                turns, lambda: judge_answers(extraction, snapshot, turns, self._ids, bars)
            )

        if extraction.run > snapshot.active_run and not await self._counts(
            claimed, snapshot, await judge(NO_BARS)
        ):
            return
        if any(part.reply and part.state is PartState.DEAD for part in extraction.parts):
            await self._folder.remove_run(extraction.extraction_id)
        asserted = await assert_run(self._folder, extraction.extraction_id, judge)
        current = await self._snapshots.get(snapshot.snapshot_id)
        if current is None or current.active_run != extraction.run:
            await self._folder.remove_run(extraction.extraction_id)
            await self._settler.settle(claimed, Outcome.GONE, {})
            return
        records = list(asserted.records)
        if extraction.run > 0:
            records += await self._succession.end_earlier(extraction)
        outcome = _outcome(extraction, asserted.judgements)
        await self._blank(claimed, forgotten_in(asserted.judgements))
        await self._settler.settle(claimed, outcome, asserted.judgements)
        await self._folder.announce(records)

    async def _counts(
        self, claimed: Claimed, snapshot: Snapshot, judgements: dict[int, Judgement]
    ) -> bool:
        """Let a replay's run count; where it is not to, settle it without a trace in any record."""
        extraction, outcome = claimed.extraction, _outcome(claimed.extraction, judgements)
        if await self._succession.is_taken_over(extraction, snapshot, outcome, said_in(judgements)):
            return True
        await self._settler.settle(claimed, outcome, judgements)
        return False

    async def _blank(self, claimed: Claimed, forgotten: Mapping[int, Sequence[SetAside]]) -> None:
        """Keep no words in an answer of which nothing may be made any more."""
        if not forgotten:
            return
        extraction_id = claimed.extraction.extraction_id
        blanked = await self._extractions.blank(extraction_id, forgotten)
        reached(CrashPoint.ANSWER_BLANKED)
        if blanked is not None:
            claimed.extraction = claimed.extraction.model_copy(update={"parts": blanked.parts})


def _outcome(extraction: Extraction, judgements: Mapping[int, Judgement]) -> Outcome:
    return outcome_of(
        extraction,
        accepted=sum(len(judged.assertions) for judged in judgements.values()),
        set_aside=sum(len(judged.set_aside) for judged in judgements.values()),
    )


def _ready(message: IncomingMessage) -> SnapshotReadyData:
    event = decode(message)
    if not isinstance(event, SnapshotReady):
        raise MessageError(FailureClass.UNDECODABLE, "unexpected_type")
    return event.data


def _coordinates(message: IncomingMessage) -> str:
    return f"{message.at.topic}/{message.at.partition}/{message.at.offset}"


def _margin(settings: ExtractionSettings) -> timedelta:
    """How long an answer may wait to be stored: what the lease has beyond the claimed."""
    return max(settings.lease - settings.attempt_deadline, timedelta(seconds=5))
