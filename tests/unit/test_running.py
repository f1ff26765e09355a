"""A process whose part has ended by itself ends, and says which part it was."""

import asyncio
from datetime import timedelta

import pytest

from consumers.running import run_until_signal
from pipeline.errors import PartEndedError

CAP = timedelta(seconds=30)


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
        await run_until_signal([well, broken], cap=CAP)

    assert well.is_stopped
    assert "words" not in str(ended.value)


async def test_a_part_that_just_returns_has_ended_too() -> None:
    part = Part("short")
    await part.stop()

    with pytest.raises(PartEndedError, match="short"):
        await run_until_signal([part], cap=CAP)
