"""A loop that does not turn is seen from outside it, and the log says where it hangs."""

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise

from structlog.testing import capture_logs

from consumers.health_loop import BEAT_INTERVAL, LoopWatch, stack_of

PATIENCE_SECONDS = 20


def spin_until(holds: Callable[[], bool]) -> None:
    """Block the thread, as work that belongs elsewhere does."""
    planted = "planted words"
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, planted


async def turning(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            await asyncio.sleep(0.01)
            if holds():
                return


async def test_a_blocked_loop_is_seen_and_its_stack_is_frames_only() -> None:
    with capture_logs() as logs, LoopWatch(said_after=timedelta(milliseconds=300)) as watch:
        spin_until(lambda: any(each["event"] == "event_loop_blocked" for each in logs))
        blocked_for = watch.blocked_for
        await turning(lambda: any(each["event"] == "event_loop_turns_again" for each in logs))
        afterwards = watch.blocked_for

    said = next(each for each in logs if each["event"] == "event_loop_blocked")
    frames = [frame.split(":") for frame in said["frames"]]
    assert blocked_for >= timedelta(milliseconds=300)
    assert afterwards == timedelta(0)
    assert [__name__, "spin_until"] in [frame[:2] for frame in frames]
    assert all(len(frame) == 3 and frame[2].isdecimal() for frame in frames)
    assert "planted" not in str(logs)


async def test_a_long_blockage_is_said_rarely() -> None:
    with capture_logs() as logs, LoopWatch(said_after=timedelta(milliseconds=300)) as watch:
        spin_until(lambda: watch.blocked_for > timedelta(seconds=2.5))

    said = [each["seconds"] for each in logs if each["event"] == "event_loop_blocked"]
    assert 2 <= len(said) <= 4
    assert all(later >= 1.5 * earlier for earlier, later in pairwise(said))


async def test_a_loop_that_turns_is_not_blocked() -> None:
    with capture_logs() as logs, LoopWatch(said_after=timedelta(milliseconds=500)) as watch:
        began = time.monotonic()
        await turning(lambda: time.monotonic() - began > 2 * BEAT_INTERVAL.total_seconds())

        assert watch.blocked_for < timedelta(milliseconds=500)
    assert logs == []


def test_a_thread_that_is_gone_has_no_stack() -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    gone = thread.ident or 0
    thread.join()

    assert stack_of(gone) == []
