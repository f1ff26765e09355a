"""`afterturn import FILE`: a transcript into short-term memory."""

from pathlib import Path
from typing import Annotated

import typer

from cli.environment import DATA_DIR, AsJson, DataDir, settings_for
from cli.output import Output
from cli.running import run
from consumers.wiring import installation, recorder
from pipeline.errors import ConfigurationError
from pipeline.settings import Settings
from pipeline.stores.indexes import apply_indexes
from producers.importing import ImportProgress, import_transcript
from schemas.identity import DEFAULT_PROJECT

PROBLEMS_SHOWN = 20


def register(application: typer.Typer) -> None:
    """Add the command."""
    application.command("import")(import_file)


def import_file(
    file: Annotated[
        Path, typer.Argument(help="JSON lines: session_id, user_id, role, content, ...")
    ],
    *,
    project: Annotated[str, typer.Option(help="The project it belongs to.")] = DEFAULT_PROJECT,
    close: Annotated[
        bool, typer.Option("--close", help="Close its sessions: extract without waiting.")
    ] = False,
    data_dir: DataDir = DATA_DIR,
    as_json: AsJson = False,
) -> None:
    """Record a transcript. Bad lines are named, the rest goes on; again, it adds what is new."""
    if not file.is_file():
        raise ConfigurationError(f"{file} is no file: name a transcript in JSON lines")
    output = Output(as_json=as_json)
    run(_import(file, project, settings_for(data_dir), output, close=close))


async def _import(
    file: Path, project: str, settings: Settings, output: Output, *, close: bool
) -> int:
    def progress(so_far: ImportProgress) -> None:
        percent = 100 * so_far.bytes_read // max(1, so_far.bytes_in_all)
        output.progress(f"{percent} %, {so_far.lines} lines, {so_far.recorded} turns recorded")

    async with installation(settings) as parts:
        await apply_indexes(parts.database)
        async with recorder(parts) as recording:
            report = await import_transcript(
                file, recording, project_id=project, close=close, progress=progress
            )
    output.progress_ends()
    for problem in report.problems[:PROBLEMS_SHOWN]:
        output.say(f"line {problem.line}: {problem.field}: {problem.rule}")
    if report.bad > PROBLEMS_SHOWN:
        output.say(f"... and {report.bad - PROBLEMS_SHOWN} more bad lines (see --json)")
    output.say(
        f"{report.recorded} turns recorded, {report.already_there} were there,"
        f" {report.bad} lines are no turn, {report.sessions} sessions"
    )
    output.result(
        {
            "lines": report.lines,
            "recorded": report.recorded,
            "already_there": report.already_there,
            "bad": report.bad,
            "repairs": report.repairs,
            "sessions": report.sessions,
            "problems": [
                {"line": one.line, "field": one.field, "rule": one.rule} for one in report.problems
            ],
        }
    )
    return 1 if report.bad else 0
