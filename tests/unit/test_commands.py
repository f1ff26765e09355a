"""The list of commands: what it names is there, and looking at it costs little."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer

from cli.application import COMMANDS
from cli.importing import check_transcript
from pipeline.errors import ConfigurationError

ROOT = Path(__file__).parents[2]
HEAVY = ("pymongo", "openai", "faststream", "aiokafka", "numpy")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_of_the_list_is_in_its_module(name: str) -> None:
    module, _ = COMMANDS[name]
    application = typer.Typer()

    import_module(f"cli.{module}").register(application)

    commands = [command.name for command in application.registered_commands]
    assert name in commands + [group.name for group in application.registered_groups]


def test_help_imports_nothing_heavy_and_names_the_program_as_it_is_typed() -> None:
    finished = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "cli", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    imported = {line.rpartition("|")[2].strip() for line in finished.stderr.splitlines()}
    assert imported.isdisjoint(HEAVY)
    assert "Usage: ./afterturn" in finished.stdout


def test_commands_leave_what_one_process_of_many_needs_to_that_process() -> None:
    names = sorted({f"cli.{module}" for module, _ in COMMANDS.values()} - {"cli.bench"})
    finished = subprocess.run(  # noqa: S603 (our own modules)
        [sys.executable, "-c", f"import sys, {', '.join(names)}; print(*sys.modules, sep='\\n')"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    assert {"openai", "anthropic", "google.genai", "fastapi"}.isdisjoint(finished.stdout.split())


def test_what_can_be_no_transcript_is_called_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"\xef\xbb\xbf\n \n")
    (tmp_path / "good").write_text("no json, but a line\n")
    named = {
        "has no lines": tmp_path / "empty",
        "is no text file (not UTF-8)": Path(sys.executable),
        "does not exist": tmp_path / "none",
        "is a directory": tmp_path,
        "is a device or a pipe": Path("/dev/null"),
    }
    check_transcript(tmp_path / "good")
    for problem, file in named.items():
        with pytest.raises(ConfigurationError, match=f"^{re.escape(f'{file} {problem}: ')}"):
            check_transcript(file)
