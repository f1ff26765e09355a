"""`replay`: extract again with a better prompt or model, and see what that changes."""

import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.connecting import connected
from cli.environment import DATA_DIR, AsJson, DataDir, settings_for, who_calls
from cli.job_reports import TELL, preview_progress, tell_preview, tell_replay, watched
from cli.output import Output, counted
from cli.running import run
from cli.selecting import say_lost, selecting
from consumers.extraction_wiring import configured_model, own_models
from consumers.operating import job_desk, preview_desk, preview_work, replay_desk
from pipeline.errors import ConfigurationError, JobError
from pipeline.jobs.running import Work
from pipeline.replaying.previewing import Said
from pipeline.settings import Settings
from schemas.job import JobState, Preview, Previewed, PreviewJob, Replay, ReplayJob, Selection

Id = Annotated[str, typer.Argument(metavar="ID", help="As `jobs list` has it.")]


def register(application: typer.Typer) -> None:
    """Add the commands."""
    replay = typer.Typer(help="Extract again with a better prompt or model.", no_args_is_help=True)
    replay.command("start")(start)
    replay.command("preview")(preview)
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


@selecting
def preview(
    *,
    selected: Selection,
    sample: Annotated[
        int, typer.Option(help="So many snapshots, drawn over the conversations.", min=1, max=200)
    ] = 20,
    seed: Annotated[int, typer.Option(help="The same one draws the same sample.")] = 1,
    words: Annotated[
        bool, typer.Option("--words", help="Also what is said, which is somebody's words.")
    ] = False,
    data_dir: DataDir = DATA_DIR,
    as_json: AsJson = False,
) -> None:
    """Try the present extractor on a sample, and show what it would change; nothing counts."""
    wanted = Preview(selection=selected, sample=sample, seed=seed)
    settings = settings_for(data_dir)
    run(_preview(wanted, settings, data_dir, Output(as_json=as_json), with_words=words))


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


async def _preview(
    wanted: Preview, settings: Settings, data_dir: Path, output: Output, *, with_words: bool
) -> int:
    def tell(job: PreviewJob, found: Previewed, before: Said, after: Said) -> None:
        output.progress(preview_progress(job))
        if with_words:
            output.progress_ends()
            _say_words(found, before, after, output)

    is_here = settings.llm.provider is not None
    if with_words and not is_here:
        raise ConfigurationError(
            "words are shown where the model is asked, and are kept nowhere: set AFTERTURN_LLM__*"
            " here as where extraction runs, or leave --words out"
        )
    async with AsyncExitStack() as stack:
        parts = await stack.enter_async_context(connected(settings, data_dir))
        works: dict[str, Work[Any]] = {}
        if is_here:
            model = await stack.enter_async_context(configured_model(settings.llm))
            own = await stack.enter_async_context(own_models(settings.llm, os.environ))
            works["preview"] = preview_work(parts, model, own=own, tell=tell)
        job = await preview_desk(parts, by=who_calls()).start(wanted)
        say_lost(job.lost, output)
        ended = await watched(parts, works, job, output)
        return await tell_preview(parts, ended, output)


def _say_words(found: Previewed, before: Said, after: Said, output: Output) -> None:
    changed = (*found.added, *found.gone, *found.changed_content, *found.changed_evidence)
    for record_id in changed:
        output.say(f"  {record_id}")
        for sign, said in (("-", before), ("+", after)):
            for one in said.get(record_id, ()):
                quote = "" if one.evidence is None else one.evidence.quote
                output.say(f"    {sign} {one.content.model_dump_json()} <- {quote!r}")


async def _report(job_id: str, data_dir: Path, output: Output) -> int:
    async with connected(settings_for(data_dir), data_dir) as parts:
        job = await job_desk(parts, by=who_calls()).read(job_id)
        if not isinstance(job, ReplayJob | PreviewJob):
            raise JobError(f"it is a {job.kind}: `./afterturn jobs show {job_id}` shows it")
        await TELL[job.kind](parts, job, output)
    return 0
