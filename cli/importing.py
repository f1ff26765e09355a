"""`afterturn import FILE`: a transcript into short-term memory."""

from pathlib import Path
from typing import Annotated, Final

import typer

from cli.connecting import connected
from cli.environment import DATA_DIR, AsJson, DataDir, settings_for
from cli.output import Output, counted
from cli.running import run
from consumers.recording_wiring import recorder
from pipeline.errors import ConfigurationError
from pipeline.settings import Settings
from pipeline.stores.indexes import apply_indexes
from producers.importing import ImportProgress, ImportReport, import_transcript
from producers.transcripts import is_text, lines_of
from schemas.identity import DEFAULT_PROJECT

PROBLEMS_SHOWN: Final = 20


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
    check_transcript(file)
    output = Output(as_json=as_json)
    run(_import(file, project, settings_for(data_dir), data_dir, output, close=close))


def check_transcript(file: Path) -> None:
    """Refuse what can't be a transcript before anything is started for it.

    Raises:
        ConfigurationError: The message says what it is instead.
        OSError: It can't be read.
    """
    if not file.exists():
        problem = "does not exist"
    elif file.is_dir():
        problem = "is a directory"
    elif not file.is_file():
        problem = "is a device or a pipe"
    elif not is_text(file):
        problem = "is no text file (not UTF-8)"
    elif next(lines_of(file), None) is None:
        problem = "has no lines"
    else:
        return
    raise ConfigurationError(f"{file} {problem}: name a file with a transcript in JSON lines")


def say_problems(report: ImportReport, output: Output) -> None:
    """Say what is wrong with bad lines, and where."""
    for problem in report.problems[:PROBLEMS_SHOWN]:
        output.say(str(problem))
    if len(report.problems) > PROBLEMS_SHOWN:
        output.say(f"... and more in {counted(report.bad, 'bad line')} (see --json)")


def error_of(report: ImportReport) -> str | None:
    """Return why an import is no success, if it is none."""
    return f"{counted(report.bad, 'line')} refused" if report.bad else None


async def _import(
    file: Path, project: str, settings: Settings, data_dir: Path, output: Output, *, close: bool
) -> int:
    def progress(so_far: ImportProgress) -> None:
        percent = 100 * so_far.bytes_read // max(1, so_far.bytes_in_all)
        output.progress(
            f"{percent} %, {counted(so_far.lines, 'line')},"
            f" {counted(so_far.recorded, 'turn')} recorded"
        )

    async with connected(settings, data_dir) as parts:
        await apply_indexes(parts.database)
        async with recorder(parts) as recording:
            report = await import_transcript(
                file, recording, project_id=project, close=close, progress=progress
            )
    output.progress_ends()
    say_problems(report, output)
    output.say(
        f"{counted(report.recorded, 'turn')} recorded, {report.already_there} already there,"
        f" {counted(report.bad, 'line')} refused, {counted(report.sessions, 'session')}"
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
        },
        error=error_of(report),
    )
    return 1 if report.bad else 0
