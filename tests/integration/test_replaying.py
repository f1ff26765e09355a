"""Replays on a real database: what counts moves over whole, and nothing known is lost."""

import asyncio
from typing import Any

import pytest

from consumers.extraction_wiring import extraction_step
from consumers.operating import job_runner, replay_desk, replay_work
from consumers.wiring import Installation
from pipeline.crash_points import CrashPoint
from pipeline.errors import AnswerError, JobError
from pipeline.extracting import settling
from pipeline.jobs import running as jobs_running
from pipeline.jobs.running import JobRunner
from pipeline.letters.grouping import grouped
from pipeline.replaying import running, succession
from pipeline.replaying.desk import ReplayDesk
from pipeline.stores.operator_actions import MongoOperatorActions
from schemas.extraction import Extraction, Outcome
from schemas.failure import FailureClass, LetterQuery, LetterState
from schemas.identity import ReadScope
from schemas.job import Job, JobState, Replay, ReplayJob, Selection
from schemas.memory import SemanticContent
from schemas.operator_action import Act
from schemas.topics import SNAPSHOT_REPLAY
from tests.builders import IDENTITY, snapshot
from tests.integration.test_extracting import (
    PATIENCE_SECONDS,
    Broker,
    ScriptedModel,
    announced,
    broker,
    home,
    parts,
    run,
)

__all__ = ["broker", "parts"]

EVERYTHING = Replay(selection=Selection())
TEA = {"attribute": "drink", "label": "tea", "text": "Likes tea.", "quote": "I like tea."}
PORTO, DRINK = home(1), {**TEA, "evidence": [2]}
REFUSAL = AnswerError(FailureClass.REFUSED, "refusal")


class Newer(ScriptedModel):
    """The model of a better version."""

    version = "v2"


@pytest.fixture
def desk(parts: Installation) -> ReplayDesk:
    return replay_desk(parts, by="an operator")


def replay_runner(parts: Installation, model: ScriptedModel) -> JobRunner:
    """Return what runs replays, and nothing else."""
    return job_runner(parts, {"replay": replay_work(parts, model)})


async def live(parts: Installation, broker: Broker, *items: dict[str, Any]) -> Extraction:
    """Have a talk extracted for the first time."""
    await announced(parts, broker, "I live in Porto.", "I like tea.")
    return await run(parts, broker, ScriptedModel({"semantic": list(items)}))


async def replayed(
    parts: Installation, broker: Broker, model: ScriptedModel, job: Job
) -> tuple[ReplayJob, Extraction | None]:
    """Run a replay to its end, and whatever it sends; return it and the run over the talk."""
    runner = replay_runner(parts, model)
    step = extraction_step(parts, model)
    async with asyncio.timeout(PATIENCE_SECONDS):
        running_job = asyncio.create_task(runner.run(job.job_id))
        while not running_job.done():
            while broker.waiting:
                await step(broker.waiting.popleft())
            await asyncio.sleep(0.01)
        ended = await running_job
    assert isinstance(ended, ReplayJob)
    runs = await parts.extractions.of_job(job.job_id)
    return ended, runs[0] if runs else None


async def something_is_sent(broker: Broker) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not broker.waiting:  # noqa: ASYNC110 (nothing tells)
            await asyncio.sleep(0.01)


async def known(parts: Installation) -> set[str]:
    """Return what a reader finds of the talk's user."""
    scope = ReadScope(project_id="default", user_id=IDENTITY.user_id)
    return {
        run.content.text
        async for record in parts.records.of_scope(scope)
        for run in record.runs
        if run.state == "current" and isinstance(run.content, SemanticContent)
    }


async def test_a_better_version_takes_the_place_of_what_counted(
    parts: Installation, broker: Broker, desk: ReplayDesk
) -> None:
    first = await live(parts, broker, PORTO)
    job = await desk.start(EVERYTHING)

    ended, again = await replayed(parts, broker, Newer({"semantic": [DRINK]}), job)

    assert again is not None
    assert (ended.state, ended.begun, ended.skipped) == (JobState.DONE, 1, 0)
    assert (again.run, again.version, again.outcome) == (1, "v2", Outcome.RECORDS)
    assert await known(parts) == {"Likes tea."}
    assert await parts.assertions.of_extraction(first.extraction_id) == []
    report = await desk.report(ended)
    assert (report.took_over, report.added, report.gone, report.kept) == (1, 1, 1, 0)
    counts = await parts.snapshots.get(snapshot().snapshot_id)
    assert counts is not None
    assert (counts.active_run, counts.settled) == (1, True)
    earlier = await parts.extractions.get(first.extraction_id)
    assert earlier is not None
    assert earlier.parts[0].reply is not None
    assert earlier.parts[0].reply.answer == {}


@pytest.mark.parametrize("answer", [{}, {"semantic": [home(9)]}, REFUSAL])
async def test_what_is_known_is_never_lost_to_an_answer_that_is_worse(
    parts: Installation, broker: Broker, desk: ReplayDesk, answer: Any
) -> None:
    first = await live(parts, broker, PORTO, DRINK)
    before = await parts.assertions.of_extraction(first.extraction_id)

    ended, again = await replayed(parts, broker, Newer(answer), await desk.start(EVERYTHING))

    assert again is not None
    assert ended.state is JobState.DONE
    assert await known(parts) == {"The user lives in Porto.", "Likes tea."}
    assert await parts.assertions.of_extraction(first.extraction_id) == before
    assert await parts.assertions.of_extraction(again.extraction_id) == []
    report = await desk.report(ended)
    assert (report.took_over, report.left_alone) == (0, 1)
    counts = await parts.snapshots.get(snapshot().snapshot_id)
    assert counts is not None
    assert counts.active_run == 0


async def test_the_same_version_is_not_paid_for_again_unless_it_is_forced(
    parts: Installation, broker: Broker, desk: ReplayDesk
) -> None:
    await live(parts, broker, PORTO)
    model = ScriptedModel({"semantic": [PORTO]})

    same, nothing = await replayed(parts, broker, model, await desk.start(EVERYTHING))
    forced, again = await replayed(
        parts, broker, model, await desk.start(EVERYTHING.model_copy(update={"is_forced": True}))
    )

    assert (same.begun, same.skipped, nothing) == (0, 1, None)
    assert again is not None
    assert (forced.begun, again.run) == (1, 1)
    assert len(model.requests) == 1
    report = await desk.report(forced)
    assert (report.added, report.gone, report.kept) == (0, 0, 1)


async def test_a_letter_is_resolved_by_a_replay_that_knows_better(
    parts: Installation, broker: Broker, desk: ReplayDesk
) -> None:
    await announced(parts, broker, "I live in Porto.", "I like tea.")
    await run(parts, broker, ScriptedModel(REFUSAL))

    await replayed(parts, broker, Newer({"semantic": [PORTO]}), await desk.start(EVERYTHING))

    assert [one.state for one in await parts.letters.matching(LetterQuery())] == [
        LetterState.RESOLVED
    ]
    assert await known(parts) == {"The user lives in Porto."}


async def test_what_it_sends_goes_by_the_topic_of_replays(
    parts: Installation, broker: Broker, desk: ReplayDesk
) -> None:
    await live(parts, broker, PORTO)
    job = await desk.start(EVERYTHING)
    runner = asyncio.create_task(replay_runner(parts, Newer({})).run(job.job_id))
    await something_is_sent(broker)
    await desk.pause(job.job_id)
    stopped = await runner

    assert [each.at.topic for each in broker.waiting] == [SNAPSHOT_REPLAY.name]
    assert stopped is not None
    assert stopped.state is JobState.PAUSED


async def test_only_what_is_selected_is_extracted_again(
    parts: Installation, broker: Broker, desk: ReplayDesk
) -> None:
    await live(parts, broker, PORTO)
    model = Newer({"semantic": [PORTO]})
    for other in (
        Selection(project_id="other"),
        Selection(user_id="other"),
        Selection(session_id="other"),
        Selection(since=snapshot().created_at.replace(year=2100)),
        Selection(until=snapshot().created_at.replace(year=2000)),
    ):
        ended, _ = await replayed(parts, broker, model, await desk.start(Replay(selection=other)))
        assert (ended.begun, ended.skipped) == (0, 0), other
    mine = Selection(project_id="default", user_id=IDENTITY.user_id, session_id=IDENTITY.session_id)

    ended, _ = await replayed(parts, broker, model, await desk.start(Replay(selection=mine)))

    assert (await desk.estimate(mine)).snapshots == ended.begun == 1
    assert (await desk.estimate(mine)).tokens == ended.tokens > 0


async def test_a_budget_and_a_letter_stop_it_and_an_operator_lets_it_go_on(
    parts: Installation, broker: Broker, desk: ReplayDesk
) -> None:
    await live(parts, broker, PORTO)
    frugal = await desk.start(EVERYTHING.model_copy(update={"token_budget": 1}))
    spent, _ = await replayed(parts, broker, Newer({"semantic": [PORTO]}), frugal)
    await desk.resume(spent.job_id, token_budget=10_000)
    done, _ = await replayed(parts, broker, Newer({"semantic": [PORTO]}), frugal)

    class Newest(ScriptedModel):
        version = "v3"

    careful = await desk.start(EVERYTHING.model_copy(update={"stops_at_letter": True}))
    stopped, _ = await replayed(parts, broker, Newest(REFUSAL), careful)
    cancelled = await desk.cancel(stopped.job_id)
    with pytest.raises(JobError):
        await desk.resume(cancelled.job_id)

    assert (spent.state, "budget" in (spent.reason or "")) == (JobState.PAUSED, True)
    assert (done.state, done.begun) == (JobState.DONE, 1)
    assert (stopped.state, "letters" in (stopped.reason or "")) == (JobState.PAUSED, True)
    acts = await MongoOperatorActions(parts.database).of_target(careful.job_id)
    assert [one.act for one in acts] == [Act.REPLAY_START, Act.REPLAY_CANCEL, Act.REPLAY_RESUME]


async def test_one_process_runs_a_replay_at_a_time(
    parts: Installation, broker: Broker, desk: ReplayDesk
) -> None:
    await live(parts, broker, PORTO)
    job = await desk.start(EVERYTHING)
    first = asyncio.create_task(replay_runner(parts, Newer({})).run(job.job_id))
    await something_is_sent(broker)

    assert await replay_runner(parts, Newer({})).run(job.job_id) is None
    await desk.cancel(job.job_id)
    await first


class KilledError(BaseException):
    """The process dies here."""


@pytest.mark.parametrize(
    "dies_at",
    [
        (running, CrashPoint.RUN_BEGUN),
        (jobs_running, CrashPoint.JOB_STORED),
        (succession, CrashPoint.RUN_COMPARED),
        (succession, CrashPoint.RUN_ACTIVATED),
        (succession, CrashPoint.ANSWERS_DROPPED),
        (succession, CrashPoint.EARLIER_RUNS_ENDED),
        (settling, CrashPoint.EXTRACTION_SETTLED),
    ],
)
async def test_cut_off_anywhere_it_is_finished_by_whoever_comes_next(
    parts: Installation,
    broker: Broker,
    desk: ReplayDesk,
    monkeypatch: pytest.MonkeyPatch,
    dies_at: tuple[Any, CrashPoint],
) -> None:
    module, point = dies_at
    await live(parts, broker, PORTO)
    job = await desk.start(EVERYTHING)
    model = Newer({"semantic": [DRINK]})
    deaths = 0

    def killed(reached: CrashPoint) -> None:
        nonlocal deaths
        if reached is point and deaths == 0:
            deaths += 1
            raise KilledError

    monkeypatch.setattr(module, "reached", killed)
    runner, step = replay_runner(parts, model), extraction_step(parts, model)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            task = asyncio.create_task(_dying(runner.run(job.job_id)))
            while not task.done() or broker.waiting:
                while broker.waiting:
                    message = broker.waiting.popleft()
                    if await _dying(step(message)) is KilledError:
                        broker.waiting.append(message)
                        await parts.extractions.expire_claims()
                await asyncio.sleep(0.01)
            if isinstance(await task, Job):
                break

    runs = await parts.extractions.of_job(job.job_id)
    assert deaths == 1
    assert [one.outcome for one in runs] == [Outcome.RECORDS]
    assert await known(parts) == {"Likes tea."}
    assert len(model.requests) == 1
    assert [one.took_over for one in runs] == [True]
    assert grouped(await parts.letters.matching(LetterQuery())) == []


async def _dying(work: Any) -> Any:
    try:
        return await work
    except KilledError:
        return KilledError
