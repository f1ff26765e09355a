"""A process ends when a part of it has ended by itself, and within its cap."""

import asyncio
import threading
from datetime import timedelta

import pytest

from consumers.running import CAP_EXIT_CODE, run_until_signal
from pipeline.errors import PartEndedError

CAP = timedelta(seconds=30)


class Left:
    """A process that can be left, and stays: here it is the tests' own."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.event = threading.Event()

    def __call__(self, code: int) -> None:
        self.codes.append(code)
        self.event.set()


class Part:
    """A part that lasts, until it is told to stop or meets something."""

    def __init__(self, name: str, meets: Exception | None = None) -> None:
        self.name = name
        self.is_stopped = False
        self._meets = meets
        self._is_told = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._last(), name=self.name)

    async def stop(self) -> None:
        """End."""
        self.is_stopped = True
        self._is_told.set()

    def lasting(self) -> list[asyncio.Task[None]]:
        """Return its task."""
        return [] if self._task is None else [self._task]

    async def _last(self) -> None:
        if self._meets is not None:
            raise self._meets
        await self._is_told.wait()


async def test_what_ends_by_itself_ends_its_process_in_order() -> None:
    well, broken = Part("well"), Part("the waker", KeyError("words of a person"))

    with pytest.raises(PartEndedError, match=r"the waker ended by itself \(KeyError\)") as ended:
        await run_until_signal([well, broken], cap=CAP, leave=Left())

    assert well.is_stopped
    assert "words" not in str(ended.value)


async def test_a_part_that_just_returns_has_ended_too() -> None:
    part = Part("short")
    await part.stop()

    with pytest.raises(PartEndedError, match="short"):
        await run_until_signal([part], cap=CAP, leave=Left())


async def test_a_process_that_does_not_end_after_stopping_is_left_at_its_cap() -> None:
    """What is closed after the parts may hang as well as they."""
    part, left = Part("short"), Left()
    await part.stop()

    with pytest.raises(PartEndedError):
        await run_until_signal([part], cap=timedelta(seconds=0.01), leave=left)

    assert await asyncio.to_thread(left.event.wait, 30)
    assert left.codes == [CAP_EXIT_CODE]
