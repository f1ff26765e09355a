"""`topics apply`, `indexes apply`, `audit`: make what is missing, check the laws."""

from pathlib import Path
from typing import Any

import typer

from cli.connecting import connected
from cli.environment import DATA_DIR, AsJson, DataDir, settings_for
from cli.output import Output, counted
from cli.running import run
from pipeline.auditing import Audit
from pipeline.settings import Settings
from pipeline.stores.audit_reads import MongoAuditReads
from pipeline.stores.indexes import apply_indexes
from producers.topics import apply_topics


def register(application: typer.Typer) -> None:
    """Add the commands."""
    topics = typer.Typer(help="The Kafka topics.", no_args_is_help=True)
    topics.command("apply")(topics_apply)
    application.add_typer(topics, name="topics")
    indexes = typer.Typer(help="The MongoDB indexes.", no_args_is_help=True)
    indexes.command("apply")(indexes_apply)
    application.add_typer(indexes, name="indexes")
    application.command("audit")(audit)


def topics_apply(*, data_dir: DataDir = DATA_DIR, as_json: AsJson = False) -> None:
    """Create the topics that are missing; say what is wrong with those that are there."""
    run(_topics_apply(settings_for(data_dir), Output(as_json=as_json)))


def indexes_apply(*, data_dir: DataDir = DATA_DIR, as_json: AsJson = False) -> None:
    """Create the indexes that are missing."""
    run(_indexes_apply(settings_for(data_dir), data_dir, Output(as_json=as_json)))


def audit(*, data_dir: DataDir = DATA_DIR, as_json: AsJson = False) -> None:
    """Check the laws on every session and slot; exit with 1 if one is broken."""
    run(_audit(settings_for(data_dir), data_dir, Output(as_json=as_json)))


async def _topics_apply(settings: Settings, output: Output) -> int:
    report = await apply_topics(settings.kafka)
    output.say(f"{counted(len(report.created), 'topic')} created, {len(report.existing)} existed")
    for problem in report.problems:
        output.say(f"  {problem}")
    output.result(
        {
            "created": list(report.created),
            "existing": list(report.existing),
            "problems": list(report.problems),
        },
        error=f"{counted(len(report.problems), 'problem')} to mend" if report.problems else None,
    )
    return 1 if report.problems else 0


async def _indexes_apply(settings: Settings, data_dir: Path, output: Output) -> int:
    async with connected(settings, data_dir) as parts:
        names = await apply_indexes(parts.database)
    output.say(f"{len(names)} indexes are there")
    output.result({"indexes": names})
    return 0


async def _audit(settings: Settings, data_dir: Path, output: Output) -> int:
    async with connected(settings, data_dir) as parts:
        reads = MongoAuditReads(
            parts.database,
            sessions=parts.sessions,
            turns=parts.turns,
            extractions=parts.extractions,
            assertions=parts.assertions,
            records=parts.records,
        )

        def progress(sessions: int, slots: int) -> None:
            output.progress(f"{counted(sessions, 'session')}, {counted(slots, 'record')} checked")

        report = await Audit(reads, parts.ids).run(progress)
    output.progress_ends()
    outcomes = dict(sorted(report.outcomes.items()))
    output.say(
        f"{counted(report.turns, 'turn')}: {report.in_snapshots} in snapshots, {report.open} open;"
        f" {counted(report.records, 'record')}"
    )
    output.say("outcomes: " + (", ".join(f"{n} {what}" for what, n in outcomes.items()) or "none"))
    for violation in report.violations:
        output.say(f"  {violation.law} broken in {violation.where}: {violation.finding}")
    if not report.violations:
        output.say("no law is broken")
    result: dict[str, Any] = {
        "turns": report.turns,
        "in_snapshots": report.in_snapshots,
        "open": report.open,
        "outcomes": outcomes,
        "violations": [
            {"law": one.law, "where": one.where, "finding": one.finding}
            for one in report.violations
        ],
    }
    broken = counted(len(report.violations), "violation")
    output.result(result, error=f"{broken} of the laws" if report.violations else None)
    return 1 if report.violations else 0
