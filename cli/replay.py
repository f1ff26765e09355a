"""`replay`: extract again with a better prompt or model, and see what that changes."""

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cli.connecting import connected
from cli.environment import DATA_DIR, AsJson, DataDir, settings_for, who_calls
from cli.letters import as_utc
from cli.output import Output, counted
from cli.running import run
from consumers.operating import replay_desk
from pipeline.replaying.desk import Report
from schemas.job import Job, JobState, Replay, Selection

LOOK_EVERY: Final = 1.0
"""Seconds between two looks of who waits."""

Id = Annotated[str, typer.Argument(metavar="ID", help="As `list` has it.")]


def register(application: typer.Typer) -> None:
    """Add the commands."""
    replay = typer.Typer(help="Extract again with a better prompt or model.", no_args_is_help=True)
    replay.command("start")(start)
    replay.command("list")(list_all)
    replay.command("report")(report)
    replay.command("pause")(pause)
    replay.command("resume")(resume)
    replay.command("cancel")(cancel)
    application.add_typer(replay, name="replay")


def start(
    *,
    project: Annotated[str | None, typer.Option(help="Only this project's.")] = None,
    user: Annotated[str | None, typer.Option(help="Only this user's.")] = None,
    session: Annotated[str | None, typer.Option(help="Only this conversation, by its id.")] = None,
    since: Annotated[datetime | None, typer.Option(help="Cut then or later (UTC).")] = None,
    until: Annotated[datetime | None, typer.Option(help="Cut before then (UTC).")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also what this very version has extracted.")
    ] = False,
    token_budget: Annotated[
        int | None, typer.Option(help="Pause after so many tokens of turns.", min=1)
    ] = None,
    stop_at_letter: Annotated[
        bool, typer.Option("--stop-at-letter", help="Pause as soon as one can't be extracted.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say how many, and how many tokens.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Show how it goes until it ends.")] = False,
    data_dir: DataDir = DATA_DIR,
    as_json: AsJson = False,
) -> None:
    """Start a replay of what is selected, by default of everything; `run jobs` or `up` runs it."""
    selection = Selection(
        project_id=project,
        user_id=user,
        session_id=session,
        since=as_utc(since),
        until=as_utc(until),
    )
    replay = Replay(
        selection=selection,
        is_forced=force,
        token_budget=token_budget,
        stops_at_letter=stop_at_letter,
    )
    output = Output(as_json=as_json)
    if dry_run:
        run(_estimate(selection, data_dir, output))
    else:
        run(_start(replay, data_dir, output, waits=wait))


def list_all(*, data_dir: DataDir = DATA_DIR, as_json: AsJson = False) -> None:
    """List the replays, the newest first."""
    run(_list(data_dir, Output(as_json=as_json)))


def report(job_id: Id, *, data_dir: DataDir = DATA_DIR, as_json: AsJson = False) -> None:
    """Show what a replay came to: what took over, and what that added and took away."""
    run(_report(job_id, data_dir, Output(as_json=as_json)))


def pause(job_id: Id, *, data_dir: DataDir = DATA_DIR, as_json: AsJson = False) -> None:
    """Let a replay begin nothing more until it is resumed."""
    run(_pause(job_id, data_dir, Output(as_json=as_json)))


def resume(
    job_id: Id,
    *,
    token_budget: Annotated[
        int | None, typer.Option(help="Another budget, of all its tokens together.", min=1)
    ] = None,
    data_dir: DataDir = DATA_DIR,
    as_json: AsJson = False,
) -> None:
    """Let a paused replay go on where it was."""
    run(_resume(job_id, token_budget, data_dir, Output(as_json=as_json)))


def cancel(job_id: Id, *, data_dir: DataDir = DATA_DIR, as_json: AsJson = False) -> None:
    """End a replay where it is; what it has done stays."""
    run(_cancel(job_id, data_dir, Output(as_json=as_json)))


async def _estimate(selection: Selection, data_dir: Path, output: Output) -> int:
    async with connected(settings_for(data_dir), data_dir) as parts:
        found = await replay_desk(parts, by=who_calls()).estimate(selection)
    output.say(
        f"{counted(found.snapshots, 'snapshot')} selected, with {found.tokens} tokens of turns;"
        " nothing was done."
    )
    output.result({"snapshots": found.snapshots, "tokens": found.tokens, "dry_run": True})
    return 0


async def _start(replay: Replay, data_dir: Path, output: Output, *, waits: bool) -> int:
    async with connected(settings_for(data_dir), data_dir) as parts:
        desk = replay_desk(parts, by=who_calls())
        job = await desk.start(replay)
        output.say(
            f"Replay {job.job_id} is started; `./afterturn replay report` tells how it goes."
        )
        while waits and job.state is JobState.OPEN:
            await asyncio.sleep(LOOK_EVERY)
            job = await desk.read(job.job_id)
            output.progress(f"{job.begun} begun, {job.skipped} skipped, {job.tokens} tokens")
        output.progress_ends()
        _tell(job, await desk.report(job), output)
    return int(job.state is JobState.PAUSED)


async def _list(data_dir: Path, output: Output) -> int:
    async with connected(settings_for(data_dir), data_dir) as parts:
        desk = replay_desk(parts, by=who_calls())
        found = await desk.all()
    for job in found:
        why = "" if job.reason is None else f" ({job.reason})"
        output.say(
            f"{job.job_id}  {job.state}{why}  {job.begun} begun, {job.skipped} skipped,"
            f" by {job.by} at {job.created_at:%Y-%m-%d %H:%M:%S}"
        )
    if not found:
        output.say("There are no replays: `./afterturn replay start` makes one.")
    output.result({"replays": [_told(job) for job in found]})
    return 0


async def _report(job_id: str, data_dir: Path, output: Output) -> int:
    async with connected(settings_for(data_dir), data_dir) as parts:
        desk = replay_desk(parts, by=who_calls())
        job = await desk.read(job_id)
        _tell(job, await desk.report(job), output)
    return 0


async def _pause(job_id: str, data_dir: Path, output: Output) -> int:
    async with connected(settings_for(data_dir), data_dir) as parts:
        job = await replay_desk(parts, by=who_calls()).pause(job_id)
    output.say(f"Replay {job_id} is paused; what is under way ends.")
    output.result(_told(job))
    return 0


async def _resume(job_id: str, budget: int | None, data_dir: Path, output: Output) -> int:
    async with connected(settings_for(data_dir), data_dir) as parts:
        job = await replay_desk(parts, by=who_calls()).resume(job_id, token_budget=budget)
    output.say(f"Replay {job_id} goes on where it was.")
    output.result(_told(job))
    return 0


async def _cancel(job_id: str, data_dir: Path, output: Output) -> int:
    async with connected(settings_for(data_dir), data_dir) as parts:
        job = await replay_desk(parts, by=who_calls()).cancel(job_id)
    output.say(f"Replay {job_id} is cancelled; what it has done stays, what is under way ends.")
    output.result(_told(job))
    return 0


def _tell(job: Job, found: Report, output: Output) -> None:
    why = "" if job.reason is None else f": {job.reason}"
    output.say(f"Replay {job.job_id} is {job.state}{why}")
    output.say(
        f"  {counted(job.begun, 'run')} begun with {job.tokens} tokens of turns, {job.skipped}"
        " snapshots skipped (this very version, or nothing to extract)"
    )
    for outcome, count in sorted(found.outcomes.items()):
        output.say(f"  {count} {outcome}")
    output.say(
        f"  {found.took_over} took over: {found.added} contents added, {found.gone} gone,"
        f" {found.kept} as they were"
    )
    if found.left_alone:
        output.say(
            f"  {found.left_alone} left alone, since they found less: {found.would_lose} contents"
            " would have been lost"
        )
    fields = {name: getattr(found, name) for name in Report.__dataclass_fields__}
    output.result({**_told(job), "report": fields})


def _told(job: Job) -> dict[str, Any]:
    return job.model_dump(mode="json", exclude={"lease", "rev"})
