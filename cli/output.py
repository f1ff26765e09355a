"""What commands say: progress and prose for people, one JSON object as the last line for programs.

With `--json` standard output holds that one line; everything else goes to standard error.
"""

import json
import sys
from typing import Any, TextIO


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

    def result(self, value: dict[str, Any]) -> None:
        """Write the one object of `--json`; nothing for people."""
        if self.as_json:
            print(json.dumps(value, ensure_ascii=False), flush=True)
