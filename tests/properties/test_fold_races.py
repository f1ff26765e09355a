"""Processes racing for one slot, in every order their reads and writes can have.

Whatever the order: the record ends as the fold of its assertions, no mark is lost, and its `rev`
grows with every change. The same with a process that dies anywhere, once the sweep has passed.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from pipeline.folding.refolding import Folder
from schemas.assertion import Assertion
from tests.assertion_builder import assertion
from tests.fold_world import World
from tests.interleaving import Process, Race, explore, run_alone

OSLO = assertion("Oslo", on=1, extraction_id="a:0")
ROME = assertion("Rome", on=2, relation="replaces", extraction_id="b:0")
LIMA = assertion("Lima", on=3, relation="corrects", extraction_id="c:0")

Work = Callable[[Folder], Coroutine[Any, Any, object]]


def asserts(*said: Assertion) -> Work:
    """Write assertions."""
    return lambda folder: folder.assert_all(said)


def announces(*said: Assertion) -> Work:
    """Write assertions and announce what changed."""

    async def work(folder: Folder) -> None:
        await folder.announce(await folder.assert_all(said))

    return work


def removes(run: str) -> Work:
    """Remove what an extraction said."""
    return lambda folder: folder.remove_run(run)


async def sweeps(folder: Folder) -> None:
    """Fold what is marked."""
    await folder.sweep_dirty(10)


async def sweeps_all(folder: Folder) -> None:
    """Fold what is marked and announce what changed."""
    await folder.sweep_dirty(10)
    await folder.sweep_unannounced(10)


async def folds(folder: Folder) -> None:
    """Fold the slot for no reason of its own."""
    await folder.fold_slot(OSLO.slot)


def a_race(before: Sequence[Assertion], works: Sequence[Work], *, kills: int = 0) -> int:
    """Race works in every order, after something was said; return how many states there are."""

    def make() -> Race:
        world = World()
        world.knows((OSLO,))
        run_alone(world.folder().assert_all(before))
        world.check_revs()
        processes: list[Process] = [work(world.gated_folder()) for work in works]

        def holds_finally() -> None:
            if kills:
                _recover(world)
            else:
                assert world.dirty() == []
            world.check_folded()
            world.sweep()
            world.check_announced()

        return Race(
            processes=processes,
            state=world.state,
            holds_always=world.check_revs,
            holds_finally=holds_finally,
        )

    return explore(make, kills=kills)


def _recover(world: World) -> None:
    """One pass of the sweep makes records right; a later one ends the marks of the dead."""
    world.sweep()
    world.check_folded()
    world.pass_grace()
    world.sweep()
    world.check_revs()

    assert world.dirty() == []


RACES: dict[str, tuple[Sequence[Assertion], Sequence[Work]]] = {
    "two sources of a new slot": ((), (asserts(OSLO), asserts(ROME))),
    "two sources of a known slot": ((OSLO,), (asserts(ROME), asserts(LIMA))),
    "a source delivered twice": ((), (asserts(OSLO), asserts(OSLO))),
    "a source and a removal": ((OSLO,), (asserts(ROME), removes("a:0"))),
    "a source and its own removal": ((), (asserts(OSLO), removes("a:0"))),
    "two removals": ((OSLO, ROME), (removes("a:0"), removes("b:0"))),
    "one removal twice": ((OSLO, ROME), (removes("a:0"), removes("a:0"))),
    "a source and the sweep": ((OSLO,), (asserts(ROME), sweeps)),
    "a removal and the sweep": ((OSLO, ROME), (removes("a:0"), sweeps)),
    "a source and a bare fold": ((OSLO,), (asserts(ROME), folds)),
}


@pytest.mark.parametrize("name", RACES)
def test_the_order_of_steps_makes_no_difference(name: str) -> None:
    """Two processes on one slot."""
    before, works = RACES[name]

    assert a_race(before, works) > 10


@pytest.mark.parametrize("name", RACES)
def test_one_of_them_may_die_anywhere(name: str) -> None:
    """The sweep finishes its work, without a redelivery."""
    before, works = RACES[name]

    assert a_race(before, works, kills=1) > 50


def test_both_may_die_anywhere() -> None:
    """So that only the sweep is left."""
    assert a_race((OSLO,), (asserts(ROME), removes("a:0")), kills=2) > 500


def test_three_at_once_make_no_difference() -> None:
    """A source, the sweep and a fold for no reason of its own."""
    assert a_race((OSLO,), (asserts(ROME), sweeps, folds)) > 500


def test_changes_are_announced_whoever_is_announcing() -> None:
    """A change that comes while an earlier one is being announced is announced as well."""
    assert a_race((), (announces(OSLO), announces(ROME))) > 500


def test_an_announcer_may_die_beside_the_sweep() -> None:
    """What it published or not, the last change is announced."""
    assert a_race((OSLO,), (announces(ROME), sweeps_all), kills=1) > 200
