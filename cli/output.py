"""What commands say: progress and prose for people, one JSON object as the last line for programs.

With `--json` standard output holds that one line; everything else goes to standard error. A command
that fails has an object, too: what went wrong is its `error`.
"""

import json
import sys
from typing import Any, Final, TextIO

INTERRUPTED: Final = 130
"""How a command ends on Ctrl-C: 128 + SIGINT, as shells have it."""


class Output:
    """Where a command writes."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._prose: TextIO = sys.stderr if as_json else sys.stdout

    def say(self, line: str = "") -> None:
        """Write a line for people."""
        print(line, file=self._prose, flush=True)

    def step(self, line: str) -> None:
        """Say what is being done now."""
        self.say(f"  {line} ...")

    def progress(self, line: str) -> None:
        """Overwrite the progress line on a terminal; elsewhere say nothing."""
        if sys.stderr.isatty():
            print(f"\r\x1b[2K{line}", end="", file=sys.stderr, flush=True)

    def progress_ends(self) -> None:
        """Leave the progress line."""
        if sys.stderr.isatty():
            print(file=sys.stderr, flush=True)

    def result(self, value: dict[str, Any], *, error: str | None = None) -> None:
        """Write the one object of `--json`; nothing for people.

        Args:
            value: What was found or done.
            error: Why the exit code is not 0, where it is not.
        """
        if self.as_json:
            _write(value if error is None else {"error": error, **value})


def failed(message: str) -> None:
    """Say why a command ended early: a line for people, and with `--json` an object."""
    print(f"afterturn: {message}", file=sys.stderr, flush=True)
    _write_error(message)


def interrupted(more: str = "") -> None:
    """Say that a command was interrupted, and what that means for what it did."""
    print(f"Interrupted.{more}", file=sys.stderr, flush=True)
    _write_error("interrupted")


def counted(count: int, noun: str) -> str:
    """Return a number of things in words."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _write_error(message: str) -> None:
    # Not from a parsed option: what fails may be the parsing.
    if "--json" in sys.argv[1:]:
        _write({"error": message})


def _write(value: dict[str, Any]) -> None:
    print(json.dumps(value, ensure_ascii=False), flush=True)
