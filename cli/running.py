"""Running a command's coroutine."""

import asyncio
import logging
import signal
from collections.abc import Coroutine
from typing import Any

import typer

from cli.output import INTERRUPTED, interrupted


def run(work: Coroutine[Any, Any, int]) -> None:
    """Run it and exit with the code it returns, if that is not 0."""
    # What libraries warn of, a command says itself, in its own words.
    logging.basicConfig(handlers=[logging.NullHandler()])
    before = signal.getsignal(signal.SIGINT)
    try:
        # The one handler that asyncio replaces by a cancellation of the coroutine.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = asyncio.run(work)
    except KeyboardInterrupt:
        interrupted(" What was recorded is safe; the same goes on from here.")
        code = INTERRUPTED
    finally:
        signal.signal(signal.SIGINT, before)
    if code:
        raise typer.Exit(code)
