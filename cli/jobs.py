"""`jobs`: what operators started that takes long, whatever it is."""

from pathlib import Path
from typing import Annotated

import typer

from cli.connecting import connected
from cli.environment import DATA_DIR, AsJson, DataDir, settings_for, who_calls
from cli.job_reports import PROGRESS, TELL, standing, told
from cli.output import Output
from cli.running import run
from consumers.operating import job_desk
from schemas.job import JobState

Id = Annotated[str, typer.Argument(metavar="ID", help="As `list` has it.")]


def register(application: typer.Typer) -> None:
    """Add the commands."""
    jobs = typer.Typer(
        help="Replays, redrives, going over to other vectors: how they go, and stopping them.",
        no_args_is_help=True,
    )
    jobs.command("list")(list_all)
    jobs.command("show")(show)
    jobs.command("pause")(pause)
    jobs.command("resume")(resume)
    jobs.command("cancel")(cancel)
    application.add_typer(jobs, name="jobs")


def list_all(*, data_dir: DataDir = DATA_DIR, as_json: AsJson = False) -> None:
    """List the jobs, the newest first."""
    run(_list(data_dir, Output(as_json=as_json)))


def show(job_id: Id, *, data_dir: DataDir = DATA_DIR, as_json: AsJson = False) -> None:
    """Show what a job came to, so far."""
    run(_show(job_id, data_dir, Output(as_json=as_json)))


def pause(job_id: Id, *, data_dir: DataDir = DATA_DIR, as_json: AsJson = False) -> None:
    """Let a job begin nothing more until it is resumed."""
    run(_pause(job_id, data_dir, Output(as_json=as_json)))


def resume(
    job_id: Id,
    *,
    token_budget: Annotated[
        int | None, typer.Option(help="Of a replay: another budget, of all its tokens.", min=1)
    ] = None,
    stop_above: Annotated[
        float | None,
        typer.Option(
            help="Of a redrive: stop where more percent than this die again.", min=0, max=100
        ),
    ] = None,
    data_dir: DataDir = DATA_DIR,
    as_json: AsJson = False,
) -> None:
    """Let a paused job go on where it was; `run jobs` or `up` runs it."""
    share = None if stop_above is None else stop_above / 100
    run(_resume(job_id, token_budget, share, data_dir, Output(as_json=as_json)))


def cancel(job_id: Id, *, data_dir: DataDir = DATA_DIR, as_json: AsJson = False) -> None:
    """End a job where it is; what it has done stays."""
    run(_cancel(job_id, data_dir, Output(as_json=as_json)))


async def _list(data_dir: Path, output: Output) -> int:
    async with connected(settings_for(data_dir), data_dir) as parts:
        found = await job_desk(parts, by=who_calls()).all()
    for job in found:
        is_idle = job.state is JobState.OPEN and job.lease is None
        output.say(
            f"{job.job_id}  {job.kind}  {standing(job)}{', nobody runs it' if is_idle else ''}"
            f"  {PROGRESS[job.kind](job)}, by {job.by} at {job.created_at:%Y-%m-%d %H:%M:%S}"
        )
    if not found:
        output.say("There are no jobs.")
    output.result({"jobs": [told(job) for job in found]})
    return 0


async def _show(job_id: str, data_dir: Path, output: Output) -> int:
    async with connected(settings_for(data_dir), data_dir) as parts:
        job = await job_desk(parts, by=who_calls()).read(job_id)
        await TELL[job.kind](parts, job, output)
    return 0


async def _pause(job_id: str, data_dir: Path, output: Output) -> int:
    async with connected(settings_for(data_dir), data_dir) as parts:
        job = await job_desk(parts, by=who_calls()).pause(job_id)
    output.say(f"Job {job_id} is paused; what is under way ends.")
    output.result(told(job))
    return 0


async def _resume(
    job_id: str,
    token_budget: int | None,
    stop_above: float | None,
    data_dir: Path,
    output: Output,
) -> int:
    async with connected(settings_for(data_dir), data_dir) as parts:
        job = await job_desk(parts, by=who_calls()).resume(
            job_id, token_budget=token_budget, stop_above=stop_above
        )
    output.say(f"Job {job_id} goes on where it was.")
    output.result(told(job))
    return 0


async def _cancel(job_id: str, data_dir: Path, output: Output) -> int:
    async with connected(settings_for(data_dir), data_dir) as parts:
        job = await job_desk(parts, by=who_calls()).cancel(job_id)
    output.say(f"Job {job_id} is cancelled; what it has done stays, what is under way ends.")
    output.result(told(job))
    return 0
