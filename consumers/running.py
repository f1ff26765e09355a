"""A process of consumers from its start to its exit: a signal drains it, a cap ends it."""

import asyncio
import signal
import threading
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Any, Final, Protocol

import structlog

from pipeline.ending import end
from pipeline.errors import PartEndedError

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

    def lasting(self) -> Sequence[asyncio.Task[None]]:
        """Return what it runs, once started, that ends by `stop` only."""
        ...


async def run_until_signal(
    apps: Sequence[Runnable],
    *,
    cap: timedelta,
    leave: Callable[[int], object],
) -> None:
    """Run apps until SIGTERM or SIGINT, until one of them can't start, or a part of one ends.

    For a process that ends afterwards: whatever it closes then counts towards the cap too.

    Args:
        apps: Started together, stopped together.
        cap: How long stopping may take; then the process ends at once, whatever it does.
        leave: Ends the process at once: `os._exit`. It is called unless the process ends within
            `cap` after this has returned, so who goes on afterwards must name something milder.

    Raises:
        ConfigurationError: Of an app that can't start like this; the others were stopped.
        PartEndedError: What must last has ended; everything was stopped, since nobody else would
            notice.
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
            lasting = [task for app in apps for task in app.lasting()]
            ended, _ = await asyncio.wait({told, *lasting}, return_when=asyncio.FIRST_COMPLETED)
            _notice(ended - {told})
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


def _notice(ended: Collection[asyncio.Future[Any]]) -> None:
    """Raise what became of a part that ended by itself."""
    for task in ended:
        name = task.get_name() if isinstance(task, asyncio.Task) else "a part"
        error = None if task.cancelled() else task.exception()
        kind = "nothing" if error is None else type(error).__qualname__
        log.critical("part_ended", part=name, exception=kind)
        raise PartEndedError(
            f"{name} ended by itself ({kind}), and nothing would go on without it: start the "
            "process anew; if it ends again, the log before `part_ended` says what it met"
        ) from error


async def _stop(
    apps: Sequence[Runnable], starting: asyncio.Future[list[None]], told: asyncio.Task[bool]
) -> None:
    log.info("stopping")
    await end([told, starting])
    results = await asyncio.gather(*(app.stop() for app in apps), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            log.error("stop_failed", exception=type(result).__name__)
    log.info("stopped")


def _leave(leave: Callable[[int], object], cap: timedelta) -> None:
    log.critical("stop_cap_exceeded", seconds=cap.total_seconds())
    leave(CAP_EXIT_CODE)
