"""Ending tasks: a cancellation may be lost on the way, so it is asked for until it is heard."""

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

ASK_AGAIN_AFTER: Final = timedelta(seconds=1)
"""Long enough for what a task puts in order when it is cancelled, which is not to be cut."""


async def end(tasks: Iterable[asyncio.Future[Any]], *, within: timedelta | None = None) -> None:
    """Cancel tasks until each has ended, or until the time is up; raise nothing of theirs.

    Once is not enough. `asyncio.wait_for` before Python 3.12 returns instead of ending when what
    it waits for is ready at the same moment, and the driver of MongoDB tries again after what it
    takes for a broken connection; a loop would go on for ever. Idempotent.
    """
    loop = asyncio.get_running_loop()
    ends_at = None if within is None else loop.time() + within.total_seconds()
    pending = {task for task in tasks if not task.done()}
    while pending:
        left = ASK_AGAIN_AFTER.total_seconds()
        if ends_at is not None:
            left = min(left, ends_at - loop.time())
            if left <= 0:
                return
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=left)
