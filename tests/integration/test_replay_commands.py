"""`./afterturn replay`, and the process that runs what it starts."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from cli import jobs, replay
from consumers.extraction_wiring import extraction_step
from consumers.jobs_app import JobsApp
from consumers.operating import jobs_app, preview_desk
from consumers.wiring import wire
from pipeline.errors import ConfigurationError, JobError
from pipeline.settings import Settings
from pipeline.stores.jobs import MongoJobs
from pipeline.stores.mongo import connect, database
from schemas.job import Job, JobState, Preview, Selection
from tests.integration.commanding import Command, command_of, settings_of, told
from tests.integration.test_extracting import (
    PATIENCE_SECONDS,
    Broker,
    ScriptedModel,
    announced,
    home,
    run,
)


@pytest.fixture
def settings(mongo_uri: str) -> dict[str, str]:
    return settings_of(mongo_uri)


@pytest.fixture
def command(settings: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Command:
    """Return what runs a command in this process, where one talk was extracted."""
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    asyncio.run(with_parts(talk))
    return command_of(replay.register, "replay", settings, tmp_path)


@pytest.fixture
def job_command(command: Command, settings: dict[str, str], tmp_path: Any) -> Command:
    """Return what runs a command of jobs beside it."""
    assert command
    return command_of(jobs.register, "jobs", settings, tmp_path)


async def with_parts(work: Callable[..., Any]) -> None:
    settings, broker = Settings(), Broker()
    client = connect(settings.mongo)
    try:
        await work(await wire(settings, database(client, settings.mongo), broker), broker)
    finally:
        await client.close()


async def talk(parts: Any, broker: Broker) -> None:
    await announced(parts, broker, "I live in Porto.")
    await run(parts, broker, ScriptedModel({"semantic": [home(1)]}))


async def jobs_run(parts: Any, broker: Broker) -> None:
    """Run `run jobs` and extraction until no replay is open."""
    model = ScriptedModel({"semantic": [home(1)]})
    app, step = jobs_app(parts, model), extraction_step(parts, model)
    await app.start()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while any(job.state is JobState.OPEN for job in await MongoJobs(parts.database).all()):
            while broker.waiting:
                await step(broker.waiting.popleft())
            await asyncio.sleep(0.01)
    await app.stop()


def test_a_replay_from_its_estimate_to_its_report(command: Command, job_command: Command) -> None:
    estimate = told(command("start", "--dry-run", "--json"))
    started = told(command("start", "--force", "--json"))
    asyncio.run(with_parts(jobs_run))
    report = command("report", started["job_id"])
    found = told(command("report", started["job_id"], "--json"))
    shown = told(job_command("show", started["job_id"], "--json"))
    listed = told(job_command("list", "--json"))["jobs"]

    assert (estimate["snapshots"], estimate["dry_run"]) == (1, True)
    assert (started["state"], started["begun"]) == ("open", 0)
    assert (found["state"], found["begun"], found["tokens"]) == ("done", 1, estimate["tokens"])
    assert found["report"] == {
        "outcomes": {"records": 1},
        "took_over": 1,
        "left_alone": 0,
        "added": 0,
        "gone": 0,
        "kept": 1,
        "would_lose": 0,
    }
    assert "1 took over: 0 contents added, 0 gone, 1 as they were" in report.stdout
    assert [(one["job_id"], one["kind"]) for one in listed] == [(started["job_id"], "replay")]
    assert shown == found


def test_an_operator_pauses_resumes_and_cancels(command: Command, job_command: Command) -> None:
    job_id = told(command("start", "--user", "ana", "--token-budget", "9", "--json"))["job_id"]
    states = [
        told(job_command(*words, "--json"))["state"]
        for words in (("pause", job_id), ("resume", job_id), ("cancel", job_id))
    ]
    ended, unknown = job_command("resume", job_id), command("report", "no such replay")
    other = job_command("show", "no such job")
    foreign = job_command("resume", told(command("start", "--json"))["job_id"], "--stop-above", "9")

    assert states == ["paused", "open", "cancelled"]
    for refused, advice in (
        (ended, "cancelled"),
        (unknown, "jobs list"),
        (other, "jobs list"),
        (foreign, "open"),
    ):
        assert isinstance(refused.exception, JobError)
        assert advice in str(refused.exception)


class Broken:
    """A job that fails by a bug of ours; another one must not notice."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.given_up: dict[str, str] = {}

    async def run(self, job_id: str) -> Job | None:
        self.begun.append(job_id)
        if job_id not in self.given_up:
            raise KeyError("somebody's words")
        return None

    async def give_up(self, job_id: str, reason: str) -> None:
        self.given_up[job_id] = reason


def test_a_job_that_fails_is_paused_with_its_reason_and_without_words(command: Command) -> None:
    first = told(command("start", "--json"))["job_id"]
    second = told(command("start", "--json"))["job_id"]

    async def both(parts: Any, _broker: Broker) -> None:
        runner = Broken()
        app = JobsApp(MongoJobs(parts.database), runner)
        await app.start()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(runner.given_up) < 2:  # noqa: ASYNC110 (nothing tells)
                await asyncio.sleep(0.01)
        assert not any(task.done() for task in app.lasting())
        await app.stop()
        assert runner.given_up.keys() == {first, second}
        assert all("KeyError" in reason for reason in runner.given_up.values())
        assert not any("words" in reason for reason in runner.given_up.values())

    asyncio.run(with_parts(both))


def test_a_preview_is_run_by_whoever_runs_jobs_and_read_again(command: Command) -> None:
    started: dict[str, Any] = {}

    async def previewed(parts: Any, broker: Broker) -> None:
        wanted = Preview(selection=Selection(), sample=3, seed=1)
        started["job"] = await preview_desk(parts, by="an operator").start(wanted)
        await jobs_run(parts, broker)

    asyncio.run(with_parts(previewed))
    found = told(command("report", started["job"].job_id, "--json"))
    wordy = command("preview", "--words")
    slip, lone = command("start", "--from-offset", "3"), command("preview", "--user", "nobody")

    assert (found["state"], found["sum"]["kept"], found["sum"]["added"]) == ("done", 1, 0)
    assert found["estimated_tokens"] == 2
    assert isinstance(wordy.exception, ConfigurationError)
    assert isinstance(slip.exception, JobError)
    assert isinstance(lone.exception, JobError)
