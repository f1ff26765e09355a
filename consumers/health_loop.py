"""Whether the event loop turns: a thread of its own sees when it does not, and says where it hangs.

What is written of a stack is module, function and line: no value, so no word of anybody (I11).
"""

import asyncio
import sys
import threading
import time
from datetime import timedelta
from types import FrameType
from typing import Final, Self

import structlog

BEAT_INTERVAL: Final = timedelta(seconds=1)
LOOK_INTERVAL: Final = timedelta(milliseconds=250)
SAID_AFTER: Final = timedelta(seconds=5)
"""A loop that is blocked so long is said to be; and again each time it was twice as long."""
FRAMES: Final = 40
"""How many frames are written, the innermost ones."""

log = structlog.get_logger(__name__)


class LoopWatch:
    """Watches the event loop it is entered on.

    Concurrency: `blocked_for` may be read from any thread.
    """

    def __init__(self, *, said_after: timedelta = SAID_AFTER) -> None:
        self._said_after = said_after.total_seconds()
        self._beat_at = time.monotonic()
        self._loop_thread = 0
        self._beating: asyncio.TimerHandle | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._look, name="loop watch", daemon=True)

    def __enter__(self) -> Self:
        """Begin to watch the running loop."""
        self._loop_thread = threading.get_ident()
        self._beat()
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        """End."""
        self._stopping.set()
        if self._beating is not None:
            self._beating.cancel()
        self._thread.join()

    @property
    def blocked_for(self) -> timedelta:
        """How long the loop has not turned; zero while it does."""
        late = time.monotonic() - self._beat_at - BEAT_INTERVAL.total_seconds()
        return timedelta(seconds=max(0.0, late))

    def _beat(self) -> None:
        self._beat_at = time.monotonic()
        loop = asyncio.get_running_loop()
        self._beating = loop.call_later(BEAT_INTERVAL.total_seconds(), self._beat)

    def _look(self) -> None:
        said_at = longest = 0.0
        while not self._stopping.wait(LOOK_INTERVAL.total_seconds()):
            blocked = self.blocked_for.total_seconds()
            if blocked >= max(self._said_after, 2 * said_at):
                said_at = blocked
                log.error(
                    "event_loop_blocked",
                    seconds=round(blocked, 1),
                    frames=stack_of(self._loop_thread),
                    advice="what stands last in the frames must not run on the event loop",
                )
            elif blocked == 0 and said_at:
                log.warning("event_loop_turns_again", seconds=round(longest, 1))
                said_at = 0.0
            longest = max(longest, blocked) if said_at else 0.0


def stack_of(thread: int) -> list[str]:
    """Return what a thread does, as `module:function:line`, the innermost frame last."""
    frames: list[str] = []
    frame: FrameType | None = sys._current_frames().get(thread)  # pyright: ignore[reportPrivateUsage] (documented)
    while frame is not None and len(frames) < FRAMES:
        module = frame.f_globals.get("__name__", "?")
        frames.append(f"{module}:{frame.f_code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    return frames[::-1]
