"""`demo`: a conversation becomes memory, on this machine, before one's eyes.

The transcript's own data directory keeps what was recorded: a demo that was interrupted goes on
where it stopped, and one that came to its end begins anew the next time.
"""

import asyncio
import hashlib
import json
import shlex
import shutil
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from cli.environment import DATA_DIR, AsJson, DataDir, configured
from cli.importing import check_transcript, error_of, say_problems
from cli.output import Output, counted
from cli.running import run
from cli.system import embedded_system
from cli.watching import CLOSED, LEGEND, Tally, Watch
from compose.demo_conversation import demo_truth, demo_turns
from consumers.reading_wiring import searcher
from consumers.recording_wiring import recorder
from consumers.wiring import Installation
from pipeline.logs import configure_logs
from pipeline.reading.contexts import (
    RESERVE_TOKENS,
    Piece,
    Style,
    selected,
    texts_of,
    together,
    written,
)
from pipeline.reading.index import Mode
from pipeline.reading.memories import memories_of, text_of
from pipeline.reading.searching import Searcher
from pipeline.tokens import count
from producers.importing import ImportReport, import_transcript
from schemas.identity import DEFAULT_PROJECT, ReadScope
from schemas.memory import Kind
from schemas.turn import Role

LOOK_SECONDS: Final = 0.25
STALLED_SECONDS: Final = 120.0
"""Without any change for so long, the demo ends and says what it waits for."""
CONTEXT_TOKENS: Final = 120
"""Less than all that is remembered takes, so that one sees what ranking does."""
CONTEXT_MEMORIES: Final = 50
_FINISHED: Final = "finished"
_TRANSCRIPT: Final = "transcript.jsonl"


def register(application: typer.Typer) -> None:
    """Add the command."""
    application.command("demo")(demo)


def demo(
    file: Annotated[
        Path | None,
        typer.Option(help="A transcript of your own: JSON lines as for `import`."),
    ] = None,
    *,
    data_dir: DataDir = DATA_DIR,
    as_json: AsJson = False,
) -> None:
    """Record a conversation; show turns, snapshots, model calls and records as they happen."""
    if file is not None:
        check_transcript(file)
    output = Output(as_json=as_json)
    transcript = file.read_bytes() if file else _shipped()
    questions = None if file else _shipped_questions()
    run(_demo(_place(transcript, data_dir, output), questions, output))


def _place(transcript: bytes, data_dir: Path, output: Output) -> Path:
    """Return the transcript's own data directory: as an interrupted demo left it, else new."""
    place = data_dir / f"demo-{hashlib.sha256(transcript).hexdigest()[:8]}"
    if (place / _FINISHED).exists():
        shutil.rmtree(place)
    elif place.exists():
        output.say("An earlier run of this demo was interrupted; it goes on where it stopped.")
    place.mkdir(parents=True, exist_ok=True)
    # What people said is for nobody else on this machine to read.
    place.chmod(0o700)
    copy = place / _TRANSCRIPT
    copy.touch(mode=0o600)
    copy.write_bytes(transcript)
    return place


async def _demo(place: Path, questions: dict[str, str] | None, output: Output) -> int:
    """Show it, and for each user a question: those given, else what the users asked themselves."""
    began = time.monotonic()
    configure_logs("error")
    async with embedded_system(place, configured(), output) as parts:
        for word, meaning in LEGEND:
            output.say(f"  {word:<9} = {meaning}")
        output.say()
        watch = Watch(parts, output)
        recording = asyncio.create_task(_record(parts, place / _TRANSCRIPT, output))
        tally = await _watch(watch, recording)
        report = await recording
        await _show(parts, await _asked(parts) if questions is None else questions, output)
    error = error_of(report)
    if tally.open_turns == 0 and tally.pending == 0:
        (place / _FINISHED).touch()
    else:
        error = f"{_waiting(tally)}; run the demo again, it goes on from here"
    _end(tally, time.monotonic() - began, error, output)
    output.say(
        f"All of it is in {place}; `rm -r {shlex.quote(str(place))}` removes it."
        if error is None
        else f"What was recorded is in {place}. Not well: {error}."
    )
    return 0 if error is None else 1


def _waiting(tally: Tally) -> str:
    reasons = ", ".join(f"{n} × {what}" for what, n in tally.waiting.items()) or "no reason known"
    open_turns = f"{counted(tally.open_turns, 'turn')} in no snapshot yet, "
    return (
        f"{open_turns if tally.open_turns else ''}{counted(tally.pending, 'snapshot')} waiting"
        f" ({reasons}): `./afterturn doctor` tells more; what was recorded is safe"
    )


def _shipped() -> bytes:
    lines = (
        json.dumps(
            {
                "session_id": turn.session_id,
                "user_id": turn.user_id,
                "role": turn.role,
                "content": turn.content,
                "created_at": turn.created_at.isoformat(),
            },
            ensure_ascii=False,
        )
        for turn in demo_turns()
    )
    return "\n".join(lines).encode() + b"\n"


def _shipped_questions() -> dict[str, str]:
    truth = demo_truth()
    return {
        truth.english_user_id: (
            "Maya comes for dinner: is she allergic to anything, does she eat meat, and which tea"
            " does she like?"
        ),
        truth.chinese_user_id: "用户喜欢喝什么，对什么过敏？",
    }


async def _record(parts: Installation, path: Path, output: Output) -> ImportReport:
    async with recorder(parts) as recording:
        report = await import_transcript(path, recording, close=True)
    say_problems(report, output)
    return report


async def _watch(watch: Watch, recording: asyncio.Task[ImportReport]) -> Tally:
    """Look until everything is settled, or nothing has changed for long."""
    tally = await watch.look()
    changed_at = time.monotonic()
    while True:
        is_recorded = recording.done()
        if is_recorded:
            recording.result()
        now = await watch.look()
        if is_recorded and now.open_turns == 0 and now.pending == 0:
            return now
        if now != tally:
            tally, changed_at = now, time.monotonic()
        elif time.monotonic() - changed_at > STALLED_SECONDS:
            return now
        await asyncio.sleep(LOOK_SECONDS)
        # A read that is cancelled may be tried again by the driver, which loses the Ctrl-C.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError


async def _asked(parts: Installation) -> dict[str, str]:
    """Return each user's last question, or last words where none was asked, of recorded turns."""
    last: dict[str, str] = {}
    asked: dict[str, str] = {}
    fields = {"identity.user_id": 1, "content": 1}
    cursor = parts.database["turns"].find({"role": Role.USER}, fields).sort("recorded_at", 1)
    async for turn in cursor:
        user, content = turn["identity"]["user_id"], turn["content"]
        last[user] = content
        if content.rstrip().endswith(("?", "？")):
            asked[user] = content
    return last | asked


async def _context(question: str, user: str, searching: Searcher) -> tuple[int, str]:
    """Return the context of a question, with how many memories are in it."""
    found = await searching.memories(
        ReadScope(project_id=DEFAULT_PROJECT, user_id=user),
        tuple(Kind),
        await searching.understood(question, {Mode.HYBRID}),
        mode=Mode.HYBRID,
        limit=CONTEXT_MEMORIES,
    )
    pieces = [
        Piece(source=hit.item.kind, text=hit.item.text, said_at=hit.item.last_said)
        for hit in found.hits
    ]
    chosen = selected(together([pieces]), Style.JINJA2, CONTEXT_TOKENS + RESERVE_TOKENS, count)
    return len(chosen), "".join(texts_of(written(chosen, Style.JINJA2)))


async def _show(parts: Installation, questions: dict[str, str], output: Output) -> None:
    async with searcher(parts) as searching:
        for user, question in questions.items():
            await _show_one(parts, user, question, searching, output)


async def _show_one(
    parts: Installation, user: str, question: str, searching: Searcher, output: Output
) -> None:
    records = [
        record
        async for record in parts.records.of_scope(
            ReadScope(project_id=DEFAULT_PROJECT, user_id=user)
        )
    ]
    memories = memories_of(records)
    output.say()
    output.say(f"What {user}'s memory holds ({len(memories)} current):")
    for memory in sorted(memories, key=lambda one: (one.kind, one.since)):
        times = f" (said {memory.times} times)" if memory.times > 1 else ""
        output.say(f"  [{memory.kind}] {memory.text}{times}")
    for record in records:
        for one in record.runs:
            if one.state in CLOSED:
                output.say(f"  [{record.kind}, {CLOSED[one.state]}] {text_of(one.content)}")
    chosen, block = await _context(question, user, searching)
    output.say(
        f"Context for {question!r}: the {chosen} of {len(memories)} that rank best and fit"
        f" {CONTEXT_TOKENS} tokens"
    )
    lines = block.splitlines()
    output.say("\n".join(f"  {line}" for line in lines) or "  (none)")


def _end(tally: Tally, seconds: float, error: str | None, output: Output) -> None:
    models = ", ".join(sorted(tally.models)) or "none"
    output.say()
    output.say(
        f"{counted(tally.turns, 'turn')}, {counted(tally.snapshots, 'snapshot')},"
        f" {counted(sum(tally.records.values()), 'record')}, {tally.closed} closed by a later turn,"
        f" {tally.reinforced} said again, {counted(tally.letters, 'dead letter')},"
        f" {counted(tally.model_calls, 'model call')}, {seconds:.1f} s"
    )
    offline = " (rules, not a language model)" if "offline" in models else ""
    output.say(f"Answered by: {models}{offline}")
    output.result(
        {
            "turns": tally.turns,
            "snapshots": tally.snapshots,
            "outcomes": dict(tally.outcomes),
            "records": dict(tally.records),
            "closed": tally.closed,
            "reinforced": tally.reinforced,
            "model_calls": tally.model_calls,
            "letters": tally.letters,
            "seconds": round(seconds, 2),
            "model": models,
        },
        error=error,
    )
