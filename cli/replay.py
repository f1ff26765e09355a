"""`replay`: extract again with a better prompt or model, and see what that changes."""

from pathlib import Path
from typing import Annotated

import typer

from cli.connecting import connected
from cli.environment import DATA_DIR, AsJson, DataDir, settings_for, who_calls
from cli.job_reports import tell_replay, watched
from cli.output import Output, counted
from cli.running import run
from cli.selecting import say_lost, selecting
from consumers.operating import replay_desk
from schemas.job import JobState, Replay, Selection

Id = Annotated[str, typer.Argument(metavar="ID", help="As `jobs list` has it.")]


def register(application: typer.Typer) -> None:
    """Add the commands."""
    replay = typer.Typer(help="Extract again with a better prompt or model.", no_args_is_help=True)
    replay.command("start")(start)
    replay.command("report")(report)
    application.add_typer(replay, name="replay")


@selecting
def start(
    *,
    selected: Selection,
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
    replay = Replay(
        selection=selected,
        is_forced=force,
        token_budget=token_budget,
        stops_at_letter=stop_at_letter,
    )
    output = Output(as_json=as_json)
    if dry_run:
        run(_estimate(selected, data_dir, output))
    else:
        run(_start(replay, data_dir, output, waits=wait))


def report(job_id: Id, *, data_dir: DataDir = DATA_DIR, as_json: AsJson = False) -> None:
    """Show what a replay came to: what took over, and what that added and took away."""
    run(_report(job_id, data_dir, Output(as_json=as_json)))


async def _estimate(selection: Selection, data_dir: Path, output: Output) -> int:
    async with connected(settings_for(data_dir), data_dir) as parts:
        found = await replay_desk(parts, by=who_calls()).estimate(selection)
    output.say(
        f"{counted(found.snapshots, 'snapshot')} selected, with {found.tokens} tokens of turns;"
        " nothing was done."
    )
    say_lost(found.lost, output)
    lost = [each.model_dump(mode="json") for each in found.lost]
    output.result(
        {
            "snapshots": found.snapshots,
            "tokens": found.tokens,
            "lost": lost,
            "dry_run": True,
        }
    )
    return 0


async def _start(replay: Replay, data_dir: Path, output: Output, *, waits: bool) -> int:
    async with connected(settings_for(data_dir), data_dir) as parts:
        desk = replay_desk(parts, by=who_calls())
        job = await desk.start(replay)
        output.say(
            f"Replay {job.job_id} is started; `./afterturn replay report` tells how it goes."
        )
        say_lost(job.lost, output)
        if waits:
            job = await watched(parts, {}, job, output)
        await tell_replay(parts, job, output)
    return int(job.state is JobState.PAUSED)


async def _report(job_id: str, data_dir: Path, output: Output) -> int:
    async with connected(settings_for(data_dir), data_dir) as parts:
        job = await replay_desk(parts, by=who_calls()).read(job_id)
        await tell_replay(parts, job, output)
    return 0
