"""Whether an event loop goes on while something is worked on."""

import asyncio
import time
from collections.abc import Awaitable


async def largest_gap(work: Awaitable[object]) -> float:
    """Return the longest time, in seconds, for which the loop ran nothing but the work."""
    gaps: list[float] = []

    async def tick() -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            gaps.append(now - last)
            last = now

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0)
    await work
    await asyncio.sleep(0.002)
    ticking.cancel()
    return max(gaps)
