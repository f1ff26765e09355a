"""`letters redrive|discard|restore`: putting right what was set aside."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from cli.connecting import connected
from cli.environment import DATA_DIR, AsJson, DataDir, settings_for, who_calls
from cli.job_reports import redrive_progress, tell_redrive, watched
from cli.letter_query import queried
from cli.output import Output, counted
from cli.running import run
from consumers.operating import letter_desk, redrive_desk, redrive_work
from pipeline.errors import LetterError
from pipeline.letters.desk import DiscardReason
from schemas.failure import LetterQuery
from schemas.job import Change, Redrive

Some = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="As `list` has them.")]
Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="As `list` has them.")]


@queried
def redrive(
    ids: Some = None,
    *,
    wanted: LetterQuery,
    every: Annotated[bool, typer.Option("--all", help="Every dead letter.")] = False,
    max_tokens: Annotated[
        int | None, typer.Option(help="Another limit of the answer.", min=256)
    ] = None,
    leave_out: Annotated[
        list[int] | None, typer.Option(help="A turn the model is not to be shown; repeatable.")
    ] = None,
    split: Annotated[bool, typer.Option("--split", help="Ask for its halves instead.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say how many, and how many tokens.")
    ] = False,
    rate: Annotated[float, typer.Option(help="Letters a second.", min=0.1, max=1000)] = 10.0,
    canary: Annotated[
        int, typer.Option(help="So many first; the rest once all of these went well.", min=0)
    ] = 1,
    stop_above: Annotated[
        float, typer.Option(help="Stop where more percent than this die again.", min=0, max=100)
    ] = 20.0,
    data_dir: DataDir = DATA_DIR,
    as_json: AsJson = False,
) -> None:
    """Send dead letters back, as a job that whoever runs jobs goes on with should this end."""
    output = Output(as_json=as_json)
    if not ids and not every and wanted == LetterQuery():
        raise LetterError(
            "name letters, a --group or anything else that says which, or say --all:"
            " `./afterturn letters groups` shows what there is"
        )
    if ids and (every or wanted != LetterQuery()):
        raise LetterError("name letters, or say which by options: both together say two things")
    redrive = Redrive(
        letter_ids=tuple(dict.fromkeys(ids or ())),
        letters=wanted,
        change=Change(max_tokens=max_tokens, leave_out=tuple(leave_out or ()), split=split),
        per_second=rate,
        canary=canary,
        stop_above=stop_above / 100,
    )
    if dry_run:
        run(_estimate(redrive, data_dir, output))
    else:
        run(_redrive(redrive, data_dir, output))


def discard(
    ids: Ids,
    *,
    reason: Annotated[DiscardReason, typer.Option(help="Why nobody will send it back.")],
    data_dir: DataDir = DATA_DIR,
    as_json: AsJson = False,
) -> None:
    """Set letters aside for good; `restore` brings them back."""
    run(_each(ids, reason, data_dir, Output(as_json=as_json)))


def restore(
    ids: Ids,
    *,
    data_dir: DataDir = DATA_DIR,
    as_json: AsJson = False,
) -> None:
    """Make discarded letters dead ones again."""
    run(_each(ids, None, data_dir, Output(as_json=as_json)))


async def _estimate(redrive: Redrive, data_dir: Path, output: Output) -> int:
    async with connected(settings_for(data_dir), data_dir) as parts:
        found = await redrive_desk(parts, by=who_calls()).estimate(redrive)
    output.say(
        f"{counted(found.letters, 'letter')} would be sent back, with {found.tokens} tokens of"
        " turns; nothing was done."
    )
    output.result({"letters": found.letters, "tokens": found.tokens, "dry_run": True})
    return 0


async def _redrive(redrive: Redrive, data_dir: Path, output: Output) -> int:
    async with connected(settings_for(data_dir), data_dir) as parts:
        desk = redrive_desk(parts, by=who_calls())
        work = redrive_work(parts, tell=lambda job: output.progress(redrive_progress(job)))
        job = await desk.start(redrive)
        ended = await watched(parts, {"redrive": work}, job, output)
        return await tell_redrive(parts, ended, output)


async def _each(
    ids: Sequence[str], reason: DiscardReason | None, data_dir: Path, output: Output
) -> int:
    async with connected(settings_for(data_dir), data_dir) as parts:
        desk = letter_desk(parts, by=who_calls())
        letters = [await desk.read(each) for each in ids]
        for letter in letters:
            if reason is None:
                await desk.restore(letter)
            else:
                await desk.discard(letter, reason)
            output.say(f"{letter.letter_id} is {'dead again' if reason is None else 'discarded'}")
    output.result({"letters": [letter.letter_id for letter in letters]})
    return 0
