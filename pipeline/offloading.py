"""Keeping the event loop free while long texts are worked on."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from schemas.turn import Turn

LARGE: Final = 20_000
"""Characters from which on a thread is worth its while: a few milliseconds of work."""

Result = TypeVar("Result")


async def apart(turns: Iterable[Turn], work: Callable[[], Result]) -> Result:
    """Return what pure work on turns returns; it is done in a thread if they are long.

    It gets a copy of the running task's context. A cancelled caller does not wait for its end.
    """
    return await aside((turn.content for turn in turns), work)


async def aside(texts: Iterable[str], work: Callable[[], Result]) -> Result:
    """Return what pure work on texts returns, done as `apart` does it."""
    if sum(map(len, texts)) < LARGE:
        return work()
    return await asyncio.to_thread(work)
