"""A process of consumers from its start to its exit: a signal drains it, a cap ends it."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final, Protocol

import structlog

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
CAP_EXIT_CODE: Final = 70
"""Of a process that was ended because it did not end in time (EX_SOFTWARE of sysexits.h)."""

log = structlog.get_logger(__name__)


class Runnable(Protocol):
    """Something with a life."""

    async def start(self) -> None:
        """Begin."""
        ...

    async def stop(self) -> None:
        """End in order."""
        ...


async def run_until_signal(
    apps: Sequence[Runnable],
    *,
    cap: timedelta,
    leave: Callable[[int], object] = os._exit,
) -> None:
    """Run apps until SIGTERM or SIGINT, or until one of them can't start.

    For a process that ends afterwards: whatever it closes then counts towards the cap too.

    Args:
        apps: Started together, stopped together.
        cap: How long stopping may take; then the process ends at once, whatever it does.
        leave: Ends the process.

    Raises:
        ConfigurationError: Of an app that can't start like this; the others were stopped.
    """
    loop = asyncio.get_running_loop()
    is_told = asyncio.Event()
    for each in SIGNALS:
        loop.add_signal_handler(each, is_told.set)
    starting = asyncio.gather(*(app.start() for app in apps))
    told = asyncio.create_task(is_told.wait())
    try:
        await asyncio.wait({starting, told}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            log.info("started")
            await told
    finally:
        # A thread, because the event loop may be what hangs.
        watchdog = threading.Timer(cap.total_seconds(), _leave, args=(leave, cap))
        watchdog.daemon = True
        watchdog.start()
        try:
            await _stop(apps, starting, told)
        finally:
            for each in SIGNALS:
                loop.remove_signal_handler(each)


async def _stop(
    apps: Sequence[Runnable], starting: asyncio.Future[list[None]], told: asyncio.Task[bool]
) -> None:
    log.info("stopping")
    told.cancel()
    starting.cancel()
    await asyncio.wait({starting, told})
    results = await asyncio.gather(*(app.stop() for app in apps), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            log.error("stop_failed", exception=type(result).__name__)
    log.info("stopped")


def _leave(leave: Callable[[int], object], cap: timedelta) -> None:
    log.critical("stop_cap_exceeded", seconds=cap.total_seconds())
    leave(CAP_EXIT_CODE)
