"""What a gate knows of the shared states it goes by."""

from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from pipeline.failing import guarding
from pipeline.failing.breaking import Cooldowns
from pipeline.failing.gating import SHARE_REASON, Gate, HeldError, Share
from pipeline.failing.limiting import Limiter
from schemas.breaker import Breaker
from schemas.guard import Guard
from tests.virtual_time import VirtualTime


@dataclass
class Breakers:
    """Breakers in a dictionary, of one process."""

    stored: dict[str, Breaker] = field(default_factory=dict[str, Breaker])

    async def get(self, name: str) -> Breaker:
        return self.stored.get(name, Breaker(breaker_id=name))

    async def swap(self, before: Breaker, after: Breaker) -> bool:
        self.stored[before.breaker_id] = after
        return True


@dataclass
class Guards:
    """Guards in a dictionary, of one process."""

    stored: dict[str, Guard] = field(default_factory=dict[str, Guard])

    async def get(self, name: str) -> Guard:
        return self.stored.get(name, Guard(guard_id=name))

    async def swap(self, before: Guard, after: Guard) -> bool:
        self.stored[before.guard_id] = after
        return True


async def test_what_others_changed_is_seen_though_the_servers_clock_was_set_back() -> None:
    """As after an election: the new primary's clock may be behind that of the one before."""
    time, guards = VirtualTime(), Guards()
    gate = Gate(
        breakers=Breakers(),
        guards=guards,
        server_time=time,
        target="t",
        version="v",
        limiter=Limiter(1),
        cooldowns=Cooldowns(passing=(timedelta(1),), personal=(timedelta(1),)),
        answer_within=timedelta(seconds=1),
    )
    name = "extraction:v:live"
    guards.stored[name] = Guard(guard_id=name, tripped_at_ms=1)
    with pytest.raises(HeldError):
        async with gate.enter("e", asks=True, is_replay=False):
            pass

    guards.stored[name] = guarding.resumed(guards.stored[name])
    time.passes(-timedelta(hours=2))

    async with gate.enter("e", asks=True, is_replay=False):
        pass


async def test_gates_of_one_share_leave_room_and_send_away_what_finds_none() -> None:
    time, share = VirtualTime(), Share(2)
    one, another = (
        Gate(
            breakers=Breakers(),
            guards=Guards(),
            server_time=time,
            target=target,
            version="v",
            limiter=Limiter(8),
            cooldowns=Cooldowns(passing=(timedelta(1),), personal=(timedelta(1),)),
            answer_within=timedelta(seconds=1),
            share=share,
        )
        for target in ("t", "u")
    )

    async with (
        one.enter("a", asks=True, is_replay=False),
        another.enter("b", asks=True, is_replay=False),
    ):
        with pytest.raises(HeldError) as away:
            async with one.enter("c", asks=True, is_replay=False):
                pass
        async with one.enter("d", asks=False, is_replay=False):
            pass

    assert away.value.reason == SHARE_REASON
    async with one.enter("c", asks=True, is_replay=False):
        pass
