"""Fewer calls at once after a refusal, more again with each answer, and few of them replays."""

import asyncio
from contextlib import AsyncExitStack

from pipeline.failing.limiting import Limiter, Permit


async def entered(limiter: Limiter, stack: AsyncExitStack, *, is_replay: bool = False) -> Permit:
    async with asyncio.timeout(1):
        return await stack.enter_async_context(limiter.permit(is_replay=is_replay))


async def is_full(limiter: Limiter, *, is_replay: bool = False) -> bool:
    async def enter() -> None:
        async with limiter.permit(is_replay=is_replay):
            pass

    trying = asyncio.create_task(enter())
    for _ in range(5):
        await asyncio.sleep(0)
    is_waiting = not trying.done()
    trying.cancel()
    await asyncio.wait({trying})
    return is_waiting


async def test_no_more_run_than_there_are_permits() -> None:
    limiter = Limiter(2)
    async with AsyncExitStack() as stack:
        await entered(limiter, stack)
        assert not await is_full(limiter)
        await entered(limiter, stack)
        assert await is_full(limiter)
    assert not await is_full(limiter)


async def test_refusals_of_calls_made_together_halve_it_once_and_answers_raise_it() -> None:
    limiter = Limiter(8)
    async with AsyncExitStack() as stack:
        together = [await entered(limiter, stack) for _ in range(4)]
        for permit in together:
            permit.refused()
        assert limiter.limit == 4
    async with AsyncExitStack() as stack:
        (await entered(limiter, stack)).refused()
        assert limiter.limit == 2
        for _ in range(100):
            (together[0]).answered()
    assert limiter.limit == 8


async def test_it_never_stands_still() -> None:
    limiter = Limiter(1)
    for _ in range(9):
        async with limiter.permit(is_replay=False) as permit:
            permit.refused()

    assert limiter.limit == 1


async def test_replays_leave_most_permits_to_live_work() -> None:
    limiter = Limiter(8)
    async with AsyncExitStack() as stack:
        for _ in range(2):
            await entered(limiter, stack, is_replay=True)
        assert await is_full(limiter, is_replay=True)
        for _ in range(6):
            await entered(limiter, stack)
        assert await is_full(limiter)


async def test_a_waiter_that_is_cancelled_keeps_no_permit() -> None:
    limiter = Limiter(1)
    async with AsyncExitStack() as stack:
        await entered(limiter, stack)
        assert await is_full(limiter)
        waiting = asyncio.create_task(entered(limiter, stack))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
    assert not await is_full(limiter)
