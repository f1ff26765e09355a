"""E7 and E8: what was forgotten while a run asserted it is taken back by the run itself."""

from collections.abc import Sequence

from pipeline.extracting.judging import Judgement, SetAsideReason
from pipeline.folding.asserting import assert_run
from pipeline.folding.refolding import Folder
from pipeline.forgetting.barring import Bars, is_barred
from schemas.assertion import Assertion
from schemas.extraction import SetAside
from schemas.memory import Kind
from schemas.record import Record
from tests.assertion_builder import assertion
from tests.fold_world import FrozenClock
from tests.forgetting_world import ForgettingWorld
from tests.interleaving import run_alone

OSLO = assertion("Oslo", on=1, extraction_id="a:0")
BEES = assertion("Bees", on=1, item=1, extraction_id="a:0", subject="sister")


async def judge(bars: Bars) -> dict[int, Judgement]:
    said = (OSLO, BEES)
    kept = tuple(one for one in said if not is_barred(bars.get(one.slot), one))
    gone = tuple(
        SetAside(kind=Kind.SEMANTIC, index=place, reason=SetAsideReason.FORGOTTEN)
        for place, one in enumerate(said)
        if one not in kept
    )
    return {0: Judgement(assertions=kept, set_aside=gone)}


class Interrupted(Folder):
    """Is interrupted by a delete when it has written and folded for the first time."""

    def __init__(self, world: ForgettingWorld) -> None:
        super().__init__(world.assertions, world.records, world.broker, FrozenClock())
        self._world = world
        self.deletes = 1

    async def assert_all(self, assertions: Sequence[Assertion]) -> list[Record]:
        changed = await super().assert_all(assertions)
        if self.deletes:
            self.deletes -= 1
            await self._world.process().forgetter.forget(self._world.memory(OSLO))
            # What a process did that had read the slot before.
            await self._world.assertions.write([OSLO])
        return changed


def test_what_is_forgotten_while_it_is_written_is_taken_back_at_once() -> None:
    world = ForgettingWorld()
    world.knows((OSLO, BEES))

    asserted = run_alone(assert_run(Interrupted(world), "a:0", judge))

    assert asserted.assertions == [BEES]
    assert [item.reason for item in asserted.judgements[0].set_aside] == ["forgotten"]
    assert run_alone(world.assertions.of_slot(OSLO.slot)) == []
    assert world.record(OSLO.slot).runs == ()
    assert len(world.record(BEES.slot).runs) == 1


def test_a_run_that_is_asserted_again_takes_back_what_was_forgotten_since() -> None:
    """Its item stands in an answer that it was read from before it was blanked."""
    world = ForgettingWorld()
    world.knows((OSLO, BEES))
    folder = world.process().folder
    run_alone(assert_run(folder, "a:0", judge))
    run_alone(world.process().forgetter.forget(world.memory(OSLO)))
    run_alone(world.assertions.write([OSLO]))

    asserted = run_alone(assert_run(folder, "a:0", judge))

    assert asserted.assertions == [BEES]
    assert run_alone(world.assertions.of_slot(OSLO.slot)) == []
