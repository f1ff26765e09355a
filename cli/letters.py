"""`letters`: what was set aside, in groups, one by one, and how to put it right."""

from base64 import b64encode
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cli.connecting import connected
from cli.environment import DATA_DIR, AsJson, DataDir, settings_for, who_calls
from cli.letter_query import queried
from cli.options import as_utc
from cli.output import Output, counted
from cli.redriving import discard, redrive, restore
from cli.running import run
from consumers.operating import letter_desk
from pipeline.letters.grouping import Group, grouped
from schemas.failure import Letter, LetterQuery, LetterState
from schemas.turn import Turn

LISTED: Final = 50

Id = Annotated[str, typer.Argument(metavar="ID", help="As `list` has it.")]
ByState = Annotated[LetterState, typer.Option("--state", help="How they stand.")]


def register(application: typer.Typer) -> None:
    """Add the commands."""
    letters = typer.Typer(
        help="Dead letters: what failed, why, and putting it right.", no_args_is_help=True
    )
    letters.command("list")(list_some)
    letters.command("groups")(groups)
    letters.command("show")(show)
    letters.command("redrive")(redrive)
    letters.command("discard")(discard)
    letters.command("restore")(restore)
    application.add_typer(letters, name="letters")


@queried
def list_some(
    *,
    wanted: LetterQuery,
    state: ByState = LetterState.DEAD,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1)] = LISTED,
    data_dir: DataDir = DATA_DIR,
    as_json: AsJson = False,
) -> None:
    """List letters, those that died first last."""
    wanted = wanted.model_copy(update={"state": state})
    run(_list(wanted, limit, data_dir, Output(as_json=as_json)))


@queried
def groups(
    *,
    wanted: LetterQuery,
    state: ByState = LetterState.DEAD,
    new_since: Annotated[
        datetime | None, typer.Option(help="Count apart what died then or later (UTC).")
    ] = None,
    data_dir: DataDir = DATA_DIR,
    as_json: AsJson = False,
) -> None:
    """Show letters by how they failed: how many, since when, and what mends it."""
    wanted = wanted.model_copy(update={"state": state})
    run(_groups(wanted, as_utc(new_since), data_dir, Output(as_json=as_json)))


def show(
    letter_id: Id,
    *,
    with_turns: Annotated[
        bool, typer.Option("--turns", help="Also what was said, which is somebody's words.")
    ] = False,
    data_dir: DataDir = DATA_DIR,
    as_json: AsJson = False,
) -> None:
    """Show one letter: its attempts, where it comes from, what it is about."""
    run(_show(letter_id, data_dir, Output(as_json=as_json), with_turns=with_turns))


async def _list(wanted: LetterQuery, limit: int, data_dir: Path, output: Output) -> int:
    async with connected(settings_for(data_dir), data_dir) as parts:
        found = await parts.letters.matching(wanted, limit + 1)
    for letter in found[:limit]:
        output.say(
            f"{letter.letter_id}  {_time(letter.last_death)}  {letter.failure_class}"
            f"  {letter.reason}  {letter.disposition}  x{letter.deaths}"
        )
    if not found:
        output.say(f"No letter is {wanted.state} and matches.")
    if len(found) > limit:
        output.say(f"There are more than {limit}: narrow it down, or raise --limit.")
    output.result({"letters": [_told(one) for one in found[:limit]], "is_more": len(found) > limit})
    return 0


async def _groups(
    wanted: LetterQuery, new_since: datetime | None, data_dir: Path, output: Output
) -> int:
    async with connected(settings_for(data_dir), data_dir) as parts:
        found = grouped(await parts.letters.summaries(wanted), since=new_since)
    for group in found:
        new = "" if new_since is None else f", {group.new} new"
        output.say(
            f"{group.fingerprint}  {counted(group.letters, 'letter')}{new}:"
            f" {group.failure_class}, {group.reason}"
        )
        output.say(f"    {_time(group.first_at)} to {_time(group.last_at)}. {group.action}")
    if not found:
        output.say(f"No letter is {wanted.state}.")
    elif wanted.state is LetterState.DEAD:
        output.say("Send a group back with `./afterturn letters redrive --group FINGERPRINT`.")
    output.result({"groups": [_group(one) for one in found]})
    return 0


async def _show(letter_id: str, data_dir: Path, output: Output, *, with_turns: bool) -> int:
    async with connected(settings_for(data_dir), data_dir) as parts:
        desk = letter_desk(parts, by=who_calls())
        letter = await desk.read(letter_id)
        estimate = await desk.estimate(letter)
        turns = await desk.turns_of(letter) if with_turns else ()
    output.say(f"Letter {letter.letter_id}: {letter.state}, died {_times(letter.deaths)}")
    output.say(f"  {letter.failure_class}, {letter.reason} ({letter.disposition})")
    output.say(f"  {letter.action}")
    if letter.original is not None:
        at = letter.original
        output.say(f"  from {at.topic}, partition {at.partition}, offset {at.offset}")
    for name in ("project_id", "session", "snapshot_id", "extraction_id", "part", "model"):
        if (value := getattr(letter, name)) is not None:
            output.say(f"  {name.removesuffix('_id'):<10} {value}")
    if letter.extraction_id is not None:
        output.say(f"  about {counted(estimate.turns, 'turn')}, {estimate.tokens} tokens")
    for attempt in letter.attempts:
        failure = attempt.failure
        output.say(
            f"  {_time(attempt.failed_at)}  {failure.failure_class}  {failure.reason}"
            f"  {failure.exception}" + (f"  {failure.request_id}" if failure.request_id else "")
        )
    for turn in turns:
        output.say(f"  [{turn.seq}] {turn.role}: {turn.content}")
    output.result({**_told(letter), **_whole(letter), "turns": [_turn(one) for one in turns]})
    return 0


def _told(letter: Letter) -> dict[str, Any]:
    """Return what may be known of a letter without what is in it."""
    fields = letter.model_dump(mode="json", exclude={"key", "value", "headers", "attempts"})
    return {**fields, "last_death": letter.last_death.isoformat(), "attempts": len(letter.attempts)}


def _whole(letter: Letter) -> dict[str, Any]:
    return {
        "key": _bytes(letter.key),
        "value": _bytes(letter.value),
        "headers": [[name, _bytes(value)] for name, value in letter.headers],
        "timeline": [attempt.model_dump(mode="json") for attempt in letter.attempts],
    }


def _turn(turn: Turn) -> dict[str, Any]:
    return {"seq": turn.seq, "role": turn.role.value, "content": turn.content}


def _bytes(value: bytes | None) -> dict[str, str] | None:
    """Return bytes as text where they are text, else in base64."""
    if value is None:
        return None
    try:
        return {"text": value.decode()}
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}


def _group(group: Group) -> dict[str, Any]:
    return {
        "fingerprint": group.fingerprint,
        "class": group.failure_class.value,
        "reason": group.reason,
        "action": group.action,
        "letters": group.letters,
        "exhausted": group.exhausted,
        "first_at": group.first_at.isoformat(),
        "last_at": group.last_at.isoformat(),
        "new": group.new,
    }


def _times(deaths: int) -> str:
    return "once" if deaths == 1 else f"{deaths} times"


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"
