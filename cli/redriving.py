"""`letters redrive|discard|restore`: putting right what was set aside."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from cli.connecting import connected
from cli.environment import DATA_DIR, AsJson, DataDir, settings_for, who_calls
from cli.output import Output, counted
from cli.running import run
from consumers.operating import letter_desk
from pipeline.errors import LetterError
from pipeline.letters.bulk import Pace, Tally, redrive_all
from pipeline.letters.changing import Change
from pipeline.letters.desk import DiscardReason, LetterDesk
from pipeline.ports.letters import LetterQuery, Letters
from schemas.failure import Letter, LetterState

Some = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="As `list` has them.")]
Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="As `list` has them.")]
ByGroup = Annotated[str | None, typer.Option("--group", help="A fingerprint, as `groups` has it.")]
ByReason = Annotated[str | None, typer.Option("--reason", help="The stable code.")]
ByProject = Annotated[str | None, typer.Option("--project", help="A project's id.")]


def redrive(
    ids: Some = None,
    *,
    group: ByGroup = None,
    reason: ByReason = None,
    project: ByProject = None,
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
    """Send dead letters back. Interrupted, the same command goes on with what is dead still."""
    output = Output(as_json=as_json)
    change = Change(max_tokens=max_tokens, leave_out=tuple(leave_out or ()), split=split)
    wanted = LetterQuery(
        state=LetterState.DEAD, fingerprint=group, reason=reason, project_id=project
    )
    if not ids and not every and wanted == LetterQuery(state=LetterState.DEAD):
        raise LetterError(
            "name letters, a --group, a --reason or a --project, or say --all:"
            " `./afterturn letters groups` shows what there is"
        )
    pace = Pace(per_second=rate, canary=canary, stop_above=stop_above / 100)
    if dry_run:
        run(_estimate(ids, wanted, data_dir, output))
    else:
        run(_redrive(ids, wanted, change, data_dir, output, pace=pace))


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


async def _estimate(
    ids: Sequence[str] | None, wanted: LetterQuery, data_dir: Path, output: Output
) -> int:
    async with connected(settings_for(data_dir), data_dir) as parts:
        desk = letter_desk(parts, by=who_calls())
        letters = await _selected(desk, ids, parts.letters, wanted)
        tokens = sum([(await desk.estimate(letter)).tokens for letter in letters])
    output.say(
        f"{counted(len(letters), 'letter')} would be sent back, with {tokens} tokens of turns;"
        " nothing was done."
    )
    output.result({"letters": len(letters), "tokens": tokens, "dry_run": True})
    return 0


async def _redrive(
    ids: Sequence[str] | None,
    wanted: LetterQuery,
    change: Change,
    data_dir: Path,
    output: Output,
    *,
    pace: Pace,
) -> int:
    async with connected(settings_for(data_dir), data_dir) as parts:
        desk = letter_desk(parts, by=who_calls())
        letters = await _selected(desk, ids, parts.letters, wanted)
        tally = await redrive_all(
            desk,
            letters,
            change,
            pace if len(letters) > 1 else replace(pace, canary=0),
            sleep=asyncio.sleep,
            tell=lambda tally: output.progress(_progress(tally)),
        )
    output.progress_ends()
    output.say(
        f"{tally.sent} of {counted(tally.of, 'letter')} sent back; so far {tally.resolved}"
        f" resolved, {tally.died_again} dead again"
    )
    for refusal in tally.refusals:
        output.say(f"  not sent back: {refusal}")
    if tally.stopped is not None:
        output.say(f"  stopped: {tally.stopped}; the rest is dead still")
    output.result(
        {
            "letters": tally.of,
            "sent": tally.sent,
            "refused": tally.refused,
            "resolved": tally.resolved,
            "died_again": tally.died_again,
            "refusals": tally.refusals,
        },
        error=tally.stopped or (tally.refusals[0] if tally.refusals else None),
    )
    return int(tally.stopped is not None or bool(tally.refused))


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


async def _selected(
    desk: LetterDesk, ids: Sequence[str] | None, letters: Letters, wanted: LetterQuery
) -> list[Letter]:
    """Return the letters that are named, else those that match, the oldest first."""
    if ids:
        return [await desk.read(each) for each in ids]
    return (await letters.matching(wanted))[::-1]


def _progress(tally: Tally) -> str:
    return (
        f"{tally.sent} of {tally.of} sent back, {tally.resolved} resolved,"
        f" {tally.died_again} dead again"
    )
