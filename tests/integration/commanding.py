"""Commands run in this process: one of its own for each would take seconds."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import typer
from typer.testing import CliRunner, Result

Command = Callable[..., Result]


def settings_of(mongo_uri: str) -> dict[str, str]:
    """Return the environment of an installation of its own."""
    return {
        "AFTERTURN_MONGO__URI": mongo_uri,
        "AFTERTURN_MONGO__DATABASE": f"test_{uuid4().hex[:12]}",
    }


def command_of(
    register: Callable[[typer.Typer], None], name: str, settings: dict[str, str], data_dir: Path
) -> Command:
    """Return what runs the commands of a group with the words it is given."""
    application = typer.Typer()
    register(application)

    def called(*arguments: str) -> Result:
        words = [name, *arguments, "--data-dir", str(data_dir)]
        return CliRunner().invoke(application, words, env=settings)

    return called


def told(finished: Result) -> dict[str, Any]:
    """Return the object a command ended well with."""
    assert finished.exit_code == 0, (finished.output, finished.exception)
    return json.loads(finished.stdout.splitlines()[-1])
