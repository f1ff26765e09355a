"""What an operator does when the cause is mended: let a breaker or a guard go on at once."""

from collections.abc import Callable
from datetime import UTC, datetime

from pipeline.errors import NotHeldError
from pipeline.failing import breaking, guarding
from pipeline.ports.clocks import ServerTime
from pipeline.ports.operator_actions import OperatorActions
from pipeline.ports.switches import Breakers, Guards
from schemas.breaker import Breaker, BreakerPhase
from schemas.operator_action import Act, OperatorAction


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


def is_held_back(breaker: Breaker, *, now_ms: int) -> bool:
    """Return whether a target is left alone, or its vendor asked for time."""
    return breaker.phase is not BreakerPhase.CLOSED or breaker.slow_until_ms > now_ms


class SwitchDesk:
    """Lets breakers and guards go on. Every act is in the audit trail before it is done.

    Concurrency: of two operators at once each is right; the second may be told that nothing is
    held any more.
    """

    def __init__(
        self,
        *,
        breakers: Breakers,
        guards: Guards,
        actions: OperatorActions,
        server_time: ServerTime,
        new_name: Callable[[], str],
        by: str,
    ) -> None:
        self._breakers = breakers
        self._guards = guards
        self._actions = actions
        self._server_time = server_time
        self._new_name = new_name
        """Makes names of acts that no other ever has."""
        self._by = by

    async def resume(self, name: str) -> None:
        """Let a breaker be tried at once, or a mass guard let letters through again.

        Raises:
            NotHeldError: Neither of that name holds anything back.
        """
        now_ms = await self._server_time.now_ms()
        if (await self._guards.get(name)).tripped_at_ms is not None:
            await self._note(Act.GUARD_RESUME, name, now_ms)
            await resume_guard(name, self._guards)
        elif is_held_back(await self._breakers.get(name), now_ms=now_ms):
            await self._note(Act.BREAKER_RESUME, name, now_ms)
            await resume_breaker(name, self._breakers, self._server_time)
        else:
            raise NotHeldError("it holds nothing back any more: look at it again")

    async def _note(self, act: Act, name: str, now_ms: int) -> None:
        await self._actions.write(
            OperatorAction(
                action_id=self._new_name(),
                at=datetime.fromtimestamp(now_ms / 1000, UTC),
                by=self._by,
                act=act,
                target=name,
            )
        )
