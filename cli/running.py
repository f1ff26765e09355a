"""Running a command's coroutine."""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, Final

import typer

INTERRUPTED: Final = 130
"""128 + SIGINT, as shells have it."""


def run(work: Coroutine[Any, Any, int]) -> None:
    """Run it and exit with the code it returns, if that is not 0."""
    try:
        code = asyncio.run(work)
    except KeyboardInterrupt:
        print(
            "Interrupted. What was recorded is safe; the same goes on from here.", file=sys.stderr
        )
        code = INTERRUPTED
    if code:
        raise typer.Exit(code)
