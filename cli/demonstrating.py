"""`demo`: a conversation becomes memory, on this machine, before one's eyes.

The transcript's own data directory keeps what was recorded: a demo that was interrupted goes on
where it stopped, and one that came to its end begins anew the next time.
"""

import asyncio
import hashlib
import json
import shutil
import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cli.environment import DATA_DIR, AsJson, DataDir, configured
from cli.output import Output
from cli.running import run
from cli.system import embedded_system
from cli.watching import Tally, Watch
from compose.demo_conversation import demo_truth, demo_turns
from consumers.wiring import Installation, recorder
from pipeline.errors import ConfigurationError
from pipeline.logs import configure_logs
from pipeline.retrieving import context_block, memories_of, rank
from pipeline.tokens import count
from producers.importing import import_transcript
from schemas.identity import DEFAULT_PROJECT
from schemas.record import RunState

LOOK_SECONDS: Final = 0.25
STALLED_SECONDS: Final = 120.0
"""Without any change for so long, the demo ends and says what it waits for."""
CONTEXT_TOKENS: Final = 400
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
    if file is not None and not file.is_file():
        raise ConfigurationError(f"{file} is no file: name a transcript in JSON lines")
    output = Output(as_json=as_json)
    transcript = file.read_bytes() if file else _shipped()
    questions = _asked_in(transcript) if file else _shipped_questions()
    run(_demo(_place(transcript, data_dir, output), questions, output))


def _place(transcript: bytes, data_dir: Path, output: Output) -> Path:
    """Return the transcript's own data directory: as an interrupted demo left it, else new."""
    place = data_dir / f"demo-{hashlib.sha256(transcript).hexdigest()[:8]}"
    if (place / _FINISHED).exists():
        shutil.rmtree(place)
    elif place.exists():
        output.say("An earlier run of this demo was interrupted; it goes on where it stopped.")
    place.mkdir(parents=True, exist_ok=True)
    (place / _TRANSCRIPT).write_bytes(transcript)
    return place


async def _demo(place: Path, questions: dict[str, str], output: Output) -> int:
    began = time.monotonic()
    configure_logs("error")
    async with embedded_system(place, configured(), output) as parts:
        watch = Watch(parts, output)
        recording = asyncio.create_task(_record(parts, place / _TRANSCRIPT, output))
        tally = await _watch(watch, recording)
        is_done = tally.open_turns == 0 and tally.pending == 0
        await _show(parts, questions, output)
    if is_done:
        (place / _FINISHED).touch()
    else:
        waits = ", ".join(f"{n} × {what}" for what, n in tally.waiting.items()) or "nothing known"
        output.say(
            f"{tally.pending} snapshots wait ({waits}). What was recorded is safe: mend the cause"
            " (`./afterturn doctor` tells more) and run the demo again, it goes on from here."
        )
    _end(tally, time.monotonic() - began, output)
    return 0 if is_done else 1


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
        truth.english_user_id: "Which drinks does the user like, and where does the user live?",
        truth.chinese_user_id: "用户喜欢喝什么，对什么过敏？",
    }


async def _record(parts: Installation, path: Path, output: Output) -> None:
    async with recorder(parts) as recording:
        report = await import_transcript(path, recording, close=True)
    for problem in report.problems:
        output.say(f"  line {problem.line}: {problem.field}: {problem.rule}")


async def _watch(watch: Watch, recording: asyncio.Task[None]) -> Tally:
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


def _asked_in(transcript: bytes) -> dict[str, str]:
    """Return each user's last question, or last words where none was asked."""
    last: dict[str, str] = {}
    asked: dict[str, str] = {}
    for line in transcript.decode(errors="replace").splitlines():
        try:
            turn: Any = json.loads(line)
            user, content, role = turn["user_id"], turn["content"], turn["role"]
        except (ValueError, TypeError, KeyError):
            continue
        if role == "user" and isinstance(user, str) and isinstance(content, str):
            last[user] = content
            if content.rstrip().endswith(("?", "？")):
                asked[user] = content
    return last | asked


async def _show(parts: Installation, questions: dict[str, str], output: Output) -> None:
    for user, question in questions.items():
        records = [
            record
            async for record in parts.records.of_scope(project_id=DEFAULT_PROJECT, owner=user)
        ]
        memories = memories_of(records)
        output.say()
        output.say(f"What {user}'s memory holds ({len(memories)} current):")
        for memory in sorted(memories, key=lambda one: (one.kind, one.since)):
            times = f" (said {memory.times} times)" if memory.times > 1 else ""
            output.say(f"  [{memory.kind}] {memory.text}{times}")
        for record in records:
            for content in record.runs:
                if content.state in (RunState.REPLACED, RunState.WRONG, RunState.ENDED):
                    label = getattr(content.content, "text", record.key)
                    output.say(f"  [no longer: {content.state}] {label}")
        output.say(f"Context for {question!r}:")
        block = context_block(
            rank(question, memories),
            budget_tokens=CONTEXT_TOKENS,
            count_tokens=lambda text: count((text,)),
        )
        output.say("\n".join(f"  {line}" for line in block.splitlines()) or "  (empty)")


def _end(tally: Tally, seconds: float, output: Output) -> None:
    models = ", ".join(sorted(tally.models)) or "none"
    output.say()
    output.say(
        f"{tally.turns} turns, {tally.snapshots} snapshots, {sum(tally.records.values())} records,"
        f" {tally.closed} contents closed, {tally.reinforced} reinforced, {tally.letters} letters,"
        f" {tally.model_calls} model calls, {seconds:.1f} s"
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
        }
    )
