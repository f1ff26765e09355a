"""What an operator does when the cause is mended: let a breaker or a guard go on at once."""

from pipeline.failing import breaking, guarding
from pipeline.ports.clocks import ServerTime
from pipeline.ports.switches import Breakers, Guards


async def resume_breaker(name: str, breakers: Breakers, server_time: ServerTime) -> None:
    """Let a target be tried at once. Idempotent; races with processes are theirs to lose."""
    while True:
        before = await breakers.get(name)
        after = breaking.resumed(before, now_ms=await server_time.now_ms())
        if await breakers.swap(before, after):
            return


async def resume_guard(name: str, guards: Guards) -> None:
    """Let letters be written again, and count them from none. Idempotent."""
    while True:
        before = await guards.get(name)
        if await guards.swap(before, guarding.resumed(before)):
            return
