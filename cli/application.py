"""All commands, and what a command's failure looks like.

A command's module is imported when it is called: together they need seconds to import.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final, NoReturn

import typer

from cli.output import failed

PROGRAM: Final = "./afterturn"
COMMANDS: Final = {
    "demo": ("demonstrating", "Record a conversation and watch it become memory."),
    "up": ("serving", "Run the whole system on embedded services until it is interrupted."),
    "run": ("serving", "Run one process of a real deployment until it is told to end."),
    "import": ("importing", "Record a transcript; again, it adds what is new."),
    "accounts": ("accounts", "Who may sign in at the memory server."),
    "memory": ("configuring", "The settings of projects: store, apply, show."),
    "topics": ("checking", "The Kafka topics."),
    "indexes": ("checking", "The MongoDB indexes."),
    "search-indexes": ("searching", "The indexes of MongoDB's own search, where it has one."),
    "audit": ("checking", "Check the laws on every session and slot."),
    "doctor": ("doctoring", "Look at all that is needed here; say how to mend what is wrong."),
    "status": ("status", "Show what waits, where, since when, and what was set aside."),
    "letters": ("letters", "Dead letters: what failed, why, and putting it right."),
    "replay": ("replay", "Extract again with a better prompt or model."),
    "jobs": ("jobs", "Replays, redrives and going over to other vectors: see, pause, resume."),
    "reembed": ("reembedding", "Go over to the vectors of another model while readers go on."),
    "resume": ("resuming", "Let go on what a breaker or a mass guard holds back."),
    "bench": ("bench", "Measure a figure beside its yardstick."),
}
"""By name: which module has it, and what the list of commands says of it."""


def main() -> NoReturn:
    """Run a command; a failure we know is one line that says what to do, and exit code 1."""
    arguments = sys.argv[1:]
    code: int | None
    try:
        code = _application(arguments)(arguments, prog_name=PROGRAM, standalone_mode=False)
    except typer.TyperException as error:
        code = 2
        if message := error.format_message():
            failed(f"{message} `{_called(arguments)} --help` tells what it takes.")
    except (SystemExit, KeyboardInterrupt):
        raise
    except _known_failures() as error:
        code = 1
        failed(_message_of(error))
    sys.exit(code or 0)


def _application(arguments: Sequence[str]) -> typer.Typer:
    """Return all commands, of which the one that is called can be."""
    application = typer.Typer(
        name="afterturn",
        help="A self-hosted memory server for AI agents.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    called, _ = COMMANDS.get(_command(arguments), (None, ""))
    if called is not None:
        import_module(f"cli.{called}").register(application)
    for name, (module, line) in COMMANDS.items():
        if module != called:
            application.command(name, help=line)(_not_called)
    return application


def _not_called() -> None:
    """Stand for a command in the list of them."""


def _command(arguments: Sequence[str]) -> str:
    return next((word for word in arguments if not word.startswith("-")), "")


def _called(arguments: Sequence[str]) -> str:
    command = _command(arguments)
    return f"{PROGRAM} {command}" if command in COMMANDS else PROGRAM


def _known_failures() -> tuple[type[Exception], ...]:
    from cli.failing import KNOWN  # noqa: PLC0415 (not needed where nothing fails)

    return KNOWN


def _message_of(error: Exception) -> str:
    from cli.failing import message_of  # noqa: PLC0415 (the same)

    return message_of(error)
