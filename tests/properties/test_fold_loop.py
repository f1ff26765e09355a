"""Whatever is written and removed, in whatever order and cut wherever: the same final records."""

from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from schemas.assertion import Assertion
from tests.assertion_builder import assertion, told
from tests.fold_world import DiedError, World, runs_of
from tests.interleaving import run_alone

SAID: dict[str, tuple[Assertion, ...]] = {
    "a:0": (
        assertion("Oslo", on=1, extraction_id="a:0"),
        assertion("Likes tea", on=1, item=1, extraction_id="a:0", subject="Ana"),
    ),
    "b:0": (assertion("Rome", on=2, relation="replaces", extraction_id="b:0"),),
    "c:0": (
        assertion("oslo.", on=3, relation="replaces", extraction_id="c:0"),
        assertion("Lima", on=3, item=1, holds_now=False, extraction_id="c:0"),
    ),
    "d:0": (
        assertion("Bergen", on=4, relation="corrects", extraction_id="d:0"),
        assertion("likes TEA", on=4, item=1, extraction_id="d:0", subject="ana"),
    ),
    "e:0": (assertion("Has left", on=5, relation="ended", extraction_id="e:0", subject="ANA"),),
}
"""What five extractions said of two subjects under one attribute: there and back again, a
correction, a statement about the past, an end."""
RUNS = tuple(SAID)


def said_by(*runs: str) -> list[Assertion]:
    """Return what some extractions said."""
    return [one for run in runs for one in SAID[run]]


def a_world() -> World:
    """Return a world in which nothing was said yet."""
    world = World()
    world.knows(said_by(*RUNS))
    return world


def test_two_subjects_under_one_attribute_are_two_records() -> None:
    """What is said of Ana closes nothing of the user."""
    world = a_world()
    run_alone(world.folder().assert_all(said_by(*RUNS)))

    assert sorted(map(told, world.runs().values())) == [
        [("Likes tea", "ended")],
        [
            ("Oslo", "replaced"),
            ("Rome", "replaced"),
            ("oslo.", "wrong"),
            ("Lima", "past"),
            ("Bergen", "current"),
        ],
    ]


@given(st.permutations(RUNS), st.lists(st.sampled_from(RUNS), max_size=5))
def test_sources_may_come_in_any_order_and_again(order: list[str], again: list[str]) -> None:
    """Late sources and redelivered ones make the records they make in order."""
    world = a_world()
    for run in order + again:
        run_alone(world.folder().assert_all(SAID[run]))

    assert world.runs() == runs_of(said_by(*RUNS))
    assert world.dirty() == []


@given(st.permutations(RUNS))
def test_the_subject_is_written_as_the_first_source_writes_it(order: list[str]) -> None:
    """Whoever's slot was marked first."""
    world = a_world()
    for run in order:
        run_alone(world.folder().assert_all(SAID[run]))
    record = run_alone(world.records.get(SAID["a:0"][1].slot))

    assert record is not None
    assert record.subject == "Ana"


@given(st.permutations(RUNS), st.sets(st.sampled_from(RUNS)), st.data())
def test_what_is_removed_might_never_have_been(
    order: list[str], removed: set[str], data: st.DataObject
) -> None:
    """Removing any runs, at any moment after they came, leaves no trace in any run."""
    world = a_world()
    arrived: set[str] = set()
    for run in order:
        run_alone(world.folder().assert_all(SAID[run]))
        arrived.add(run)
        for gone in sorted(removed & arrived):
            if data.draw(st.booleans()):
                run_alone(world.folder().remove_run(gone))
                arrived.discard(gone)
    for gone in removed:
        run_alone(world.folder().remove_run(gone))

    assert world.runs() == runs_of(said_by(*(run for run in RUNS if run not in removed)))
    assert world.dirty() == []


@given(st.permutations(RUNS), st.permutations(RUNS))
def test_a_redelivery_changes_no_record(order: list[str], again: list[str]) -> None:
    """Nothing is announced for it either."""
    world = a_world()
    for run in order:
        run_alone(world.folder().assert_all(SAID[run]))
    world.sweep()
    announced = len(world.broker.events)
    changed = [run_alone(world.folder().assert_all(SAID[run])) for run in again]

    assert changed == [[]] * len(again)
    assert run_alone(world.records.unannounced(10)) == []
    assert len(world.broker.events) == announced


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """Something a process does, and after how many calls it dies, if it does."""

    kind: str
    run: str = "a:0"
    dies_after: int | None = None

    def process(self, world: World) -> Coroutine[Any, Any, object]:
        folder = world.folder(dies_after=self.dies_after)
        match self.kind:
            case "assert":
                return folder.assert_all(SAID[self.run])
            case "announce":
                return _announced(world, self)
            case "remove":
                return folder.remove_run(self.run)
            case _:
                return folder.sweep_dirty(10)


async def _announced(world: World, act: Act) -> None:
    folder = world.folder(dies_after=act.dies_after)
    await folder.announce(await folder.assert_all(SAID[act.run]))


_acts = st.builds(
    Act,
    kind=st.sampled_from(("assert", "announce", "remove", "sweep")),
    run=st.sampled_from(RUNS),
    dies_after=st.none() | st.integers(0, 9),
)


@given(st.lists(st.tuples(_acts, st.booleans(), st.booleans()), max_size=12))
def test_the_sweep_finishes_what_the_dead_left(story: list[tuple[Act, bool, bool]]) -> None:
    """Wherever processes die, records become the fold of what is there, and are announced."""
    world = a_world()
    for act, is_up, is_late in story:
        world.broker.is_up = is_up
        if is_late:
            world.pass_grace()
        with suppress(DiedError):
            run_alone(act.process(world))
        world.check_revs()
    world.broker.is_up = True
    world.sweep()
    world.check_folded()
    world.check_announced()
    world.pass_grace()
    world.sweep()

    assert world.dirty() == []
    world.check_folded()
