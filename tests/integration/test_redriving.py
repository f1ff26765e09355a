"""Redrives and other jobs on a real database: run by whoever is there, counted from the letters."""

import asyncio
from typing import Any

import pytest

from consumers.extraction_wiring import extraction_step
from consumers.operating import job_desk, job_runner, jobs_app, redrive_desk, redrive_work
from consumers.wiring import Installation
from pipeline.errors import AnswerError, JobError
from pipeline.jobs.running import JobRunner
from pipeline.letters.redriving import RedriveDesk
from pipeline.stores.jobs import MongoJobs
from pipeline.stores.operator_actions import MongoOperatorActions
from schemas.failure import FailureClass, Letter, LetterQuery, LetterState
from schemas.job import JobState, Redrive, RedriveJob, Reembed, ReembedJob, ReplayJob
from schemas.operator_action import Act
from tests.builders import snapshot
from tests.integration.test_extracting import (
    PATIENCE_SECONDS,
    Broker,
    ScriptedModel,
    announced,
    broker,
    home,
    parts,
)

__all__ = ["broker", "parts"]

REFUSAL = AnswerError(FailureClass.REFUSED, "refusal")
GOOD = {"semantic": [home(1)]}
LETTERS = 3


@pytest.fixture
def desk(parts: Installation) -> RedriveDesk:
    return redrive_desk(parts, by="an operator")


async def dead(parts: Installation, broker: Broker) -> list[Letter]:
    """Have as many snapshots as there are to be letters refused; return these, the oldest first."""
    first = await announced(parts, broker, "I live in Porto.", "I like tea.", "I work in Braga.")
    await parts.database["snapshots"].delete_many({})
    for seq in range(1, LETTERS + 1):
        cut = snapshot(seq, seq).model_copy(
            update={"snapshot_id": f"{first.snapshot_id[:-1]}{seq}"}
        )
        await parts.snapshots.insert(cut, wake_at_ms=0)
    broker.waiting.clear()
    for cut in await parts.snapshots.unsettled_due(1, LETTERS):
        await parts.fates.resend(cut)
    await delivered(parts, broker, ScriptedModel(REFUSAL))
    return (await parts.letters.matching(LetterQuery(state=LetterState.DEAD)))[::-1]


async def delivered(parts: Installation, broker: Broker, model: ScriptedModel) -> None:
    step = extraction_step(parts, model)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while broker.waiting:
            await step(broker.waiting.popleft())


def runner(parts: Installation) -> JobRunner:
    return job_runner(parts, {"redrive": redrive_work(parts)})


async def test_a_group_is_sent_back_as_a_job_that_counts_what_became_of_it(
    parts: Installation, broker: Broker, desk: RedriveDesk
) -> None:
    letters = await dead(parts, broker)
    redrive = Redrive(letters=LetterQuery(reason="refusal"), per_second=1000)
    estimate = await desk.estimate(redrive)
    job = await desk.start(redrive)
    app = jobs_app(parts, ScriptedModel({}))
    await app.start()
    # The canary goes first, and alone.
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not broker.waiting:  # noqa: ASYNC110 (nothing tells)
            await asyncio.sleep(0.01)
        alone = len(broker.waiting)
        while (await job_desk(parts, by="").read(job.job_id)).state is JobState.OPEN:
            await delivered(parts, broker, ScriptedModel(GOOD))
            await asyncio.sleep(0.01)
    await app.stop()
    await delivered(parts, broker, ScriptedModel(GOOD))
    ended = await job_desk(parts, by="").read(job.job_id)
    tally = await desk.tally(job)

    assert (estimate.letters, job.of, alone) == (LETTERS, LETTERS, 1)
    assert estimate.tokens > 0
    assert isinstance(ended, RedriveJob)
    assert (ended.state, ended.sent, ended.refused) == (JobState.DONE, LETTERS, 0)
    assert (tally.resolved, tally.died_again, tally.waiting) == (LETTERS, 0, 0)
    acts = await MongoOperatorActions(parts.database).of_target(job.job_id)
    assert [one.act for one in acts] == [Act.REDRIVE_START]
    for one in letters:
        assert [
            act.by for act in await MongoOperatorActions(parts.database).of_target(one.letter_id)
        ] == ["an operator"]


async def test_what_dies_again_stops_it_and_an_operator_lets_it_go_on(
    parts: Installation, broker: Broker, desk: RedriveDesk
) -> None:
    await dead(parts, broker)
    job = await desk.start(Redrive(per_second=1000))
    running = asyncio.create_task(runner(parts).run(job.job_id))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not running.done():
            await delivered(parts, broker, ScriptedModel(REFUSAL))
            await asyncio.sleep(0.01)
    stopped = await running
    tally = await desk.tally(job)
    jobs = job_desk(parts, by="an operator")
    with pytest.raises(JobError, match="no limit"):
        await jobs.resume(job.job_id, token_budget=9)
    await jobs.resume(job.job_id, stop_above=1.0)
    ended = await runner(parts).run(job.job_id)
    await delivered(parts, broker, ScriptedModel(REFUSAL))
    again = await desk.tally(job)

    assert isinstance(stopped, RedriveJob)
    assert (stopped.state, stopped.sent) == (JobState.PAUSED, 1)
    assert "1 of 1" in (stopped.reason or "")
    assert (tally.resolved, tally.died_again) == (0, 1)
    assert isinstance(ended, RedriveJob)
    # What died again since it was started is not sent again by it.
    assert (ended.state, ended.sent) == (JobState.DONE, LETTERS)
    assert again.died_again == LETTERS
    assert {one.deaths for one in await parts.letters.matching(LetterQuery())} == {2}


async def test_what_dies_after_the_start_is_not_of_the_job(
    parts: Installation, broker: Broker, desk: RedriveDesk
) -> None:
    letters = await dead(parts, broker)
    late = letters[-1].letter_id
    await parts.database["letters"].delete_one({"_id": late})
    job = await desk.start(Redrive(per_second=1000, canary=0))
    await parts.letters.put(letters[-1])
    ended = await runner(parts).run(job.job_id)

    assert isinstance(ended, RedriveJob)
    assert (ended.of, ended.sent) == (LETTERS - 1, LETTERS - 1)
    (left,) = await parts.letters.matching(LetterQuery(state=LetterState.DEAD))
    assert left.letter_id == late


async def test_a_job_whose_work_another_process_has_is_left_to_it(parts: Installation) -> None:
    desk = job_desk(parts, by="an operator")
    job = ReembedJob(
        job_id=desk.name("reembed"),
        reembed=Reembed(model="another"),
        before=None,
        by=desk.by,
        created_at=await desk.now(),
    )
    await desk.start(job, project_id=None)

    assert await runner(parts).run(job.job_id) is None
    left = await desk.read(job.job_id)
    assert (left.state, left.lease) == (JobState.OPEN, None)
    cancelled = await desk.cancel(job.job_id)
    assert cancelled.state is JobState.CANCELLED


OLD_REPLAY: dict[str, Any] = {
    "_id": "rpl_1",
    "replay": {"selection": {"project_id": "p"}, "is_forced": True},
    "by": "an operator",
    "state": "paused",
    "begun": 3,
}


async def test_jobs_that_were_stored_before_there_were_kinds_are_replays(
    parts: Installation,
) -> None:
    created_at = snapshot().created_at
    await parts.database["jobs"].insert_one({**OLD_REPLAY, "created_at": created_at})
    await parts.database["jobs"].insert_one({"_id": "x", "kind": "of a version to come"})
    (job,) = await MongoJobs(parts.database).all()

    assert isinstance(job, ReplayJob)
    assert (job.job_id, job.replay.is_forced, job.begun) == ("rpl_1", True, 3)
