"""Trying the present extractor on a sample: what it would change is kept as ids, and nothing else.

No run is begun, nothing is asserted, no answer is stored: what was said is only in the hands of
whoever runs it, who may show it to somebody that may read it.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from random import Random
from typing import Final

from pipeline.errors import JobError
from pipeline.extracting.extractors import Extractor, Extractors
from pipeline.extracting.judging import NO_BARS, judge_answers
from pipeline.extracting.planning import (
    extraction_id,
    halves,
    new_extraction,
    ready_data,
    tail_before,
    turns_of,
)
from pipeline.failing.failures import classify, is_infrastructure
from pipeline.failing.gating import HeldError, Passage
from pipeline.folding.asserting import said_in
from pipeline.folding.refolding import Folder
from pipeline.ids import OpaqueIds
from pipeline.jobs.desk import JobDesk
from pipeline.jobs.running import Hold
from pipeline.ports.clocks import Clock
from pipeline.ports.model import ModelRequest
from pipeline.ports.records import Assertions
from pipeline.ports.snapshots import Snapshots
from pipeline.ports.turns import Turns
from pipeline.replaying.selecting import Selector
from pipeline.settings import ExtractionSettings
from schemas.assertion import Assertion
from schemas.extraction import Part, PartState, Reply
from schemas.failure import FailureClass
from schemas.job import JobState, Preview, Previewed, PreviewJob
from schemas.snapshot import Snapshot
from schemas.turn import Turn

Said = Mapping[str, tuple[Assertion, ...]]
"""By record, what a run says of it."""
NOTHING: Final[Said] = {}
DEADLINE: Final = timedelta(seconds=45)
"""Of one snapshot: less than the lease of a job."""
SPLITTABLE: Final = (FailureClass.TRUNCATED, FailureClass.CONTEXT_LENGTH)


def tell_nobody(job: PreviewJob, found: Previewed, before: Said, after: Said) -> None:
    """Do nothing with what was found."""
    del job, found, before, after


def stratified(found: Iterable[tuple[str, str]], size: int, seed: int) -> list[str]:
    """Return a sample of snapshots in which no session has two before each has one. Pure.

    Args:
        found: Session and id of each.
        size: So many at most.
        seed: The same one draws the same sample, in whatever order they come.
    """
    dice = Random(seed)  # noqa: S311 (a sample, no secret)
    by_session: defaultdict[str, list[str]] = defaultdict(list)
    for session, snapshot_id in sorted(found):
        by_session[session].append(snapshot_id)
    strata = list(by_session.values())
    for each in strata:
        dice.shuffle(each)
    dice.shuffle(strata)
    drawn: list[str] = []
    while strata and len(drawn) < size:
        drawn += [each.pop() for each in strata]
        strata = [each for each in strata if each]
    return drawn[:size]


def by_record(assertions: Sequence[Assertion]) -> Said:
    """Return assertions by the record they are about."""
    said: defaultdict[str, list[Assertion]] = defaultdict(list)
    for one in assertions:
        said[one.slot].append(one)
    return {slot: tuple(each) for slot, each in said.items()}


def compared(before: Said, after: Said) -> Previewed:
    """Return what one run makes otherwise than another, record by record; of no snapshot. Pure."""
    both = sorted(before.keys() & after.keys())
    content = [each for each in both if _contents(before[each]) != _contents(after[each])]
    alike = [each for each in both if each not in set(content)]
    evidence = [each for each in alike if _evidence(before[each]) != _evidence(after[each])]
    return Previewed(
        snapshot_id="",
        added=tuple(sorted(after.keys() - before.keys())),
        gone=tuple(sorted(before.keys() - after.keys())),
        changed_content=tuple(content),
        changed_evidence=tuple(evidence),
        kept=len(alike) - len(evidence),
    )


def _contents(said: Sequence[Assertion]) -> set[tuple[str, str]]:
    return {(one.relation, one.content.model_dump_json()) for one in said}


def _evidence(said: Sequence[Assertion]) -> set[tuple[tuple[int, ...], str]]:
    return {(one.evidence.seqs, one.evidence.quote) for one in said if one.evidence is not None}


class PreviewDesk:
    """Starts previews."""

    def __init__(self, *, desk: JobDesk, selector: Selector, turns: Turns) -> None:
        self._desk = desk
        self._selector = selector
        self._turns = turns

    async def start(self, preview: Preview) -> PreviewJob:
        """Draw a sample, and store a preview of it for whoever runs jobs; return it.

        Raises:
            JobError: Nothing is selected, or can be; the message says why.
            BrokerUnavailableError: It goes by messages, and Kafka did not answer in time.
        """
        listing = await self._selector.found(preview.selection)
        found: list[tuple[str, str]] = []
        tokens = 0
        async for one in self._selector.each(preview.selection, listing and listing.after):
            found.append((one.session, one.snapshot_id))
            turns = await self._turns.read(one.session, one.first_seq, one.last_seq)
            tokens += sum(turn.tokens for turn in turns)
        if not found:
            raise JobError("no snapshot is selected: there is nothing to draw a sample from")
        job = PreviewJob(
            job_id=self._desk.name("preview"),
            preview=preview,
            snapshot_ids=tuple(stratified(found, preview.sample, preview.seed)),
            snapshots=len(found),
            tokens=tokens,
            lost=listing.lost if listing else (),
            by=self._desk.by,
            created_at=await self._desk.now(),
        )
        await self._desk.start(job, project_id=preview.selection.project_id)
        return job


class PreviewWork:
    """The work of previews."""

    def __init__(
        self,
        *,
        snapshots: Snapshots,
        turns: Turns,
        assertions: Assertions,
        extractors: Extractors,
        folder: Folder,
        ids: OpaqueIds,
        clock: Clock,
        settings: ExtractionSettings,
        tell: Callable[[PreviewJob, Previewed, Said, Said], None] = tell_nobody,
    ) -> None:
        """Prepare.

        Args:
            snapshots: The snapshots.
            turns: Their turns.
            assertions: What counts.
            extractors: Who extracts now.
            folder: Knows what was forgotten.
            ids: Makes the ids of records.
            clock: Says when it ended.
            settings: How much is shown before a part, and how long an answer may take.
            tell: Is told of each snapshot, with what was said of it and what would be.
        """
        self._snapshots = snapshots
        self._turns = turns
        self._assertions = assertions
        self._extractors = extractors
        self._folder = folder
        self._ids = ids
        self._clock = clock
        self._settings = settings
        self._tell = tell

    def takes(self, job: PreviewJob) -> bool:
        """Return whether this process can run it: each can that has a model."""
        del job
        return True

    async def advance(self, job: PreviewJob, hold: Hold) -> PreviewJob:
        """Try the next snapshot of the sample.

        Killed in the middle, that one is asked for again: nothing of an answer is kept.
        """
        if len(job.previewed) == len(job.snapshot_ids):
            ended = {"state": JobState.DONE, "ended_at": self._clock.now()}
            return await hold.store(job, ended)
        snapshot_id = job.snapshot_ids[len(job.previewed)]
        try:
            async with asyncio.timeout(DEADLINE.total_seconds()):
                found, before, after = await self._tried(snapshot_id)
        except HeldError as held:
            reason = f"the model is left alone ({held.reason}): resume it when it is back"
            return await hold.store(job, {"state": JobState.PAUSED, "reason": reason})
        except TimeoutError:
            found, before, after = (
                Previewed(snapshot_id=snapshot_id, failure="too_slow"),
                NOTHING,
                NOTHING,
            )
        job = await hold.store(job, {"previewed": (*job.previewed, found)})
        self._tell(job, found, before, after)
        return job

    async def _tried(self, snapshot_id: str) -> tuple[Previewed, Said, Said]:
        snapshot = await self._snapshots.get(snapshot_id)
        first = 0 if snapshot is None else snapshot.first_seq - self._settings.context_turns
        turns = (
            []
            if snapshot is None
            else await self._turns.read(snapshot.session, max(1, first), snapshot.last_seq)
        )
        inside = [] if snapshot is None else [one for one in turns if one.seq >= snapshot.first_seq]
        if snapshot is None or not inside:
            return Previewed(snapshot_id=snapshot_id, failure="gone"), NOTHING, NOTHING
        extractor = await self._extractors.of(snapshot.identity.project_id, began_under=None)
        if not extractor.kinds:
            return Previewed(snapshot_id=snapshot_id, failure="not_asked"), NOTHING, NOTHING
        turn_tokens = sum(turn.tokens for turn in inside)
        asked = new_extraction(ready_data(snapshot, snapshot.active_run + 1), 0).parts[0]
        name = f"preview:{snapshot_id}"
        async with extractor.gate.enter(name, asks=True, is_replay=True) as passage:
            answered = await self._answered(extractor, passage, asked, turns)
        if isinstance(answered, str):
            failed = Previewed(snapshot_id=snapshot_id, failure=answered, turn_tokens=turn_tokens)
            return failed, NOTHING, NOTHING
        before, after = await self._said(snapshot, answered, turns)
        replies = [part.reply for part in answered if part.reply is not None]
        found = compared(before, after).model_copy(
            update={
                "snapshot_id": snapshot_id,
                "turn_tokens": turn_tokens,
                "prompt_tokens": sum(each.prompt_tokens or 0 for each in replies),
                "completion_tokens": sum(each.completion_tokens or 0 for each in replies),
            }
        )
        return found, before, after

    async def _answered(
        self, extractor: Extractor, passage: Passage, part: Part, turns: Sequence[Turn]
    ) -> list[Part] | str:
        """Return a part with its answer, or in halves with theirs; or why there is none."""
        request = ModelRequest(
            turns=turns_of(part, turns),
            context=tail_before(
                part.first_seq,
                turns,
                most=self._settings.context_turns,
                most_tokens=self._settings.context_tokens,
            ),
            kinds=extractor.kinds,
            max_tokens=part.max_tokens,
            instructions=extractor.instructions,
        )
        try:
            reply: Reply = await extractor.model.answer(request)
        except Exception as error:  # whatever it is is said, or held, or raised again
            if is_infrastructure(error):
                raise
            failure = classify(error)
            if not failure.failure_class.is_content:
                await passage.failed(failure)
                raise HeldError(failure.reason) from error
            await passage.answered()
            pieces = halves(part, turns) if failure.failure_class in SPLITTABLE else None
            if pieces is None:
                return failure.reason
            both = [await self._answered(extractor, passage, each, turns) for each in pieces]
            refused = next((each for each in both if isinstance(each, str)), None)
            return refused or [one for each in both if not isinstance(each, str) for one in each]
        await passage.answered()
        answer = {"state": PartState.ANSWERED, "reply": reply, "kinds": request.kinds}
        return [part.model_copy(update={**answer, "version": extractor.version})]

    async def _said(
        self, snapshot: Snapshot, parts: Sequence[Part], turns: Sequence[Turn]
    ) -> tuple[Said, Said]:
        """Return what counts, and what these answers would make."""
        counts = extraction_id(snapshot.snapshot_id, snapshot.active_run)
        before = await self._assertions.of_extraction(counts)
        data = ready_data(snapshot, snapshot.active_run + 1)
        run = new_extraction(data, 0).model_copy(update={"parts": tuple(parts)})
        judged = judge_answers(run, snapshot, turns, self._ids, NO_BARS)
        if bars := await self._folder.bars(said_in(judged)):
            judged = judge_answers(run, snapshot, turns, self._ids, bars)
        return by_record(before), by_record(said_in(judged))
