"""A memory is deleted while others save, extract and delete, in every order their steps can have.

Whatever the order: once the delete is answered no record holds what it forgot, and an answered save
of something else is there. The same with a process that dies anywhere, once the sweep has passed.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from pipeline.errors import UnknownMemoryError
from pipeline.reading.memories import Memory
from schemas.assertion import Assertion
from tests.assertion_builder import assertion
from tests.forgetting_world import AUTHOR, ForgettingWorld, Process, draft
from tests.interleaving import Race, explore, run_alone

OSLO = assertion("Oslo", on=1, extraction_id="a:0")
ROME = assertion("Rome", on=2, extraction_id="b:0")
OSLO_AGAIN = assertion("Oslo", on=3, extraction_id="c:0")
AFTERWARDS = assertion("Oslo", on=60, extraction_id="d:0")
"""By a clock that is ahead: what is there of it already goes, what comes later may stay."""
SLOT = OSLO.slot
SWITCHES = 3
"""How often a process is interrupted, or with one that dies once less."""


class Beside:
    """What a process does beside a delete of Oslo, and what it was told of it."""

    def __init__(self, process: Process, oslo: Memory, rome: Memory | None) -> None:
        self._process = process
        self._oslo = oslo
        self._rome = rome
        self.saved: str | None = None

    async def deletes_it_too(self) -> None:
        await self._process.forgetter.forget(self._oslo)

    async def deletes_another(self) -> None:
        assert self._rome is not None
        await self._process.forgetter.forget(self._rome)

    async def extracts_it(self) -> None:
        await self._process.extract("a:0", (OSLO,))

    async def extracts_it_from_another_talk(self) -> None:
        await self._process.extract("c:0", (OSLO_AGAIN,))

    async def extracts_what_is_said_afterwards(self) -> None:
        await self._process.extract("d:0", (AFTERWARDS,))

    async def saves_another(self) -> None:
        saved = await self._process.saver.save(draft("Lima"), AUTHOR, upsert=False)
        self.saved = saved.text

    async def saves_over_it(self) -> None:
        await self._process.saver.save(draft("Lima"), AUTHOR, upsert=True)

    async def corrects_it(self) -> None:
        try:
            await self._process.saver.correct(self._oslo, draft("Oslo, Norway"), AUTHOR)
        except UnknownMemoryError:
            return

    async def ends_it(self) -> None:
        await self._process.saver.end(self._oslo, AUTHOR)

    async def sweeps(self) -> None:
        await self._process.folder.sweep_dirty(10)
        await self._process.forgetter.sweep(10)


Work = Callable[[Beside], Coroutine[Any, Any, None]]


def a_race(
    before: Sequence[Assertion], work: Work, left: Sequence[set[str]], *, kills: int = 0
) -> int:
    """Delete Oslo beside a work, in every order; return how many states there are.

    Args:
        before: What is there; Oslo is.
        work: What another process does.
        left: What may be current in the end.
        kills: How many of the two may die.
    """

    def make() -> Race:
        world = ForgettingWorld()
        world.knows((OSLO,))
        run_alone(world.process().folder.assert_all(before))
        oslo = world.memory(OSLO)
        beside = Beside(world.gated(), oslo, world.memory(ROME) if ROME in before else None)
        is_answered = False

        async def deletes() -> None:
            nonlocal is_answered
            await world.gated().forgetter.forget(oslo)
            is_answered = True

        def holds_always() -> None:
            world.check_revs()
            if is_answered:
                held = {one for run in world.record(SLOT).runs for one in run.assertions}
                assert held.isdisjoint({OSLO.assertion_id, OSLO_AGAIN.assertion_id})

        def holds_finally() -> None:
            held = world.current(SLOT)
            assert not is_answered or beside.saved is None or beside.saved in held
            world.finish()
            if not kills:
                assert set(world.current(SLOT)) in left

        return Race(
            processes=(deletes(), work(beside)),
            state=lambda: (world.state(), is_answered, beside.saved),
            holds_always=holds_always,
            holds_finally=holds_finally,
        )

    return explore(make, kills=kills, switches=SWITCHES - kills)


NOTHING: set[str] = set()
OSLO_ONLY = {"Oslo"}
RACES: dict[str, tuple[Sequence[Assertion], Work, Sequence[set[str]]]] = {
    "deleted twice": ((OSLO,), Beside.deletes_it_too, [NOTHING]),
    "what stands beside it is deleted": ((OSLO, ROME), Beside.deletes_another, [NOTHING]),
    "its own extraction": ((OSLO, ROME), Beside.extracts_it, [{"Rome"}]),
    "another talk of before": ((OSLO,), Beside.extracts_it_from_another_talk, [NOTHING]),
    "a talk of afterwards": (
        (OSLO,),
        Beside.extracts_what_is_said_afterwards,
        [OSLO_ONLY, NOTHING],
    ),
    "another is saved": ((OSLO, ROME), Beside.saves_another, [{"Rome", "Lima"}]),
    "it is saved over": ((OSLO,), Beside.saves_over_it, [{"Lima"}, NOTHING]),
    "it is corrected": ((OSLO, ROME), Beside.corrects_it, [{"Rome"}]),
    "it is ended": ((OSLO,), Beside.ends_it, [NOTHING]),
    "the sweeps": ((OSLO,), Beside.sweeps, [NOTHING]),
}


@pytest.mark.parametrize("name", RACES)
def test_the_order_of_steps_brings_nothing_back(name: str) -> None:
    before, work, left = RACES[name]

    assert a_race(before, work, left) > 20


@pytest.mark.parametrize(
    "name",
    ["deleted twice", "its own extraction", "another is saved", "it is corrected", "the sweeps"],
)
def test_one_of_them_may_die_anywhere(name: str) -> None:
    """The sweep finishes what was begun, without another request."""
    before, work, left = RACES[name]

    assert a_race(before, work, left, kills=1) > 50
