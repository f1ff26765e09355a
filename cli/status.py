"""`status`: what waits, where, since when, and what was set aside."""

from pathlib import Path
from typing import Any

import typer

from cli.connecting import connected
from cli.environment import DATA_DIR, AsJson, DataDir, option_of, settings_for
from cli.output import Output, counted
from cli.running import run
from consumers.status import broker_status, ledger_status
from pipeline.settings import Settings
from schemas.embedding import EmbeddingState


def register(application: typer.Typer) -> None:
    """Add the command."""
    application.command("status")(status)


def status(*, data_dir: DataDir = DATA_DIR, as_json: AsJson = False) -> None:
    """Show lag, open turns and their age, retry tiers with due times, and letters."""
    run(_status(settings_for(data_dir), data_dir, Output(as_json=as_json)))


async def _status(settings: Settings, data_dir: Path, output: Output) -> int:
    async with connected(settings, data_dir) as parts:
        result = await ledger_status(parts) | await broker_status(settings)
    _say(result, option_of(data_dir), output)
    output.result(result)
    return 0


def _say(result: dict[str, Any], place: str, output: Output) -> None:
    opened, extractions = result["open"], result["extractions"]
    age = f", the oldest for {opened['oldest_seconds']} s" if opened["turns"] else ""
    output.say(f"open turns   {opened['turns']} in {counted(opened['sessions'], 'session')}{age}")
    output.say(f"extraction   {extractions['queued']} queued, {extractions['worked_on']} worked on")
    for topic, tier in extractions["waiting"].items():
        output.say(f"  {topic}: {tier['extractions']}, next due {tier['next_due_at']}")
    for reason, group in extractions["reasons"].items():
        output.say(f"  {group['extractions']} wait because of {reason}: {group['action']}")
    _say_embeddings(result["embeddings"], output)
    output.say(f"letters      {sum(one['letters'] for one in result['letters'].values())}")
    for reason, group in result["letters"].items():
        output.say(f"  {group['letters']} {reason}: {group['action']}")
    for one in result["held_back"]:
        output.say(
            f"HELD BACK    {one['kind']} {one['name']} is {one['state']} because of"
            f" {one['reason']}: {one['action']} Then `./afterturn resume {one['name']}{place}`"
        )
    output.say(
        "unfinished   " + ", ".join(f"{n} {name}" for name, n in result["unfinished"].items())
    )
    if result["lag"] is None:
        output.say("lag          unknown: Kafka does not answer; recording goes on without it")
    else:
        output.say("lag          " + ", ".join(f"{n} {g}" for g, n in result["lag"].items()))
    for problem in result["topics"]:
        output.say(f"TOPIC        {problem}")


def _say_embeddings(embeddings: dict[str, Any], output: Output) -> None:
    counts = ", ".join(f"{embeddings[state.value]} {state.value}" for state in EmbeddingState)
    output.say(f"embedding    {counts}; searched: {embeddings['active'] or 'no vectors yet'}")
    for reason, group in embeddings["reasons"].items():
        output.say(f"  {group['records']} wait because of {reason}: {group['action']}")
