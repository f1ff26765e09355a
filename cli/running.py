"""Running a command's coroutine."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import typer


def run(work: Coroutine[Any, Any, int]) -> None:
    """Run it and exit with the code it returns, if that is not 0."""
    code = asyncio.run(work)
    if code:
        raise typer.Exit(code)
