"""A task that is to end does, though what it waits for takes the cancellation away."""

import asyncio
from datetime import timedelta

from pipeline.ending import ASK_AGAIN_AFTER, end

PATIENCE_SECONDS = 10
MOMENT = timedelta(milliseconds=50)


async def deaf(asked: list[int], hears_at: int) -> None:
    """Work for ever; heed no cancellation before a given one."""
    while len(asked) < hears_at:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            asked.append(len(asked) + 1)
    raise asyncio.CancelledError


async def test_a_task_that_loses_its_cancellation_ends_all_the_same() -> None:
    asked: list[int] = []
    task = asyncio.create_task(deaf(asked, hears_at=2))
    await asyncio.sleep(0)

    async with asyncio.timeout(PATIENCE_SECONDS):
        await end([task])

    assert task.cancelled()
    assert asked == [1, 2]


async def test_what_a_task_puts_in_order_is_not_cut() -> None:
    put_in_order = asyncio.Event()

    async def orderly() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(ASK_AGAIN_AFTER.total_seconds() / 10)
            put_in_order.set()

    task = asyncio.create_task(orderly())
    await asyncio.sleep(0)
    await end([task])

    assert put_in_order.is_set()


async def test_it_waits_no_longer_than_it_may() -> None:
    asked: list[int] = []
    task = asyncio.create_task(deaf(asked, hears_at=2))
    await asyncio.sleep(0)

    await end([task], within=MOMENT)
    is_left = not task.done()
    await end([task])

    assert is_left


async def test_what_has_ended_is_left_alone() -> None:
    async def fail() -> None:
        raise ValueError

    task = asyncio.create_task(fail())
    await asyncio.wait({task})

    await end([task])
    await end([])

    assert isinstance(task.exception(), ValueError)
