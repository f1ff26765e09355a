"""Any order of saves, extractions, redeliveries and forgets.

Nothing that a forgotten slot may not hold is ever in its record, and all the rest is as if what was
forgotten had never been said.
"""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.assertion import Assertion
from tests.assertion_builder import assertion, folded
from tests.forgetting_world import AUTHOR, ForgettingWorld, draft
from tests.interleaving import run_alone

TOWNS = ("Oslo", "Rome", "Lima")
HOME = assertion("Oslo").slot
OTHER = assertion("Bees", subject="sister").slot

Step = tuple[str, int]


@st.composite
def talks(draw: st.DrawFn) -> list[tuple[Assertion, ...]]:
    """Return what is said in a few talks of before anything is forgotten."""
    return [
        tuple(
            assertion(
                draw(st.sampled_from(TOWNS)),
                on=on,
                item=item,
                relation=draw(st.sampled_from(("adds", "adds", "replaces"))),
                subject=draw(st.sampled_from(("user", "user", "sister"))),
                extraction_id=f"{on}:0",
            )
            for item in range(draw(st.integers(1, 2)))
        )
        for on in range(draw(st.integers(1, 4)))
    ]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("extract", "extract", "save", "forget", "sweep")), st.integers(0, 9)
    ),
    max_size=9,
)


class Story:
    """What happened, and what may be seen of it."""

    def __init__(self, said: Sequence[tuple[Assertion, ...]]) -> None:
        self.world = ForgettingWorld()
        self.world.knows(one for talk in said for one in talk)
        self.process = self.world.process()
        self.said = said
        self.gone: set[str] = set()
        """What was said in the slot, known yet or not, when something of it was forgotten."""

    def take(self, step: str, which: int) -> None:
        """Take a step, and see that nothing came back."""
        self.world.now_ms += 1000
        if step == "extract":
            talk = which % len(self.said)
            run_alone(self.process.extract(f"{talk}:0", self.said[talk]))
        elif step == "save":
            run_alone(self.process.saver.save(draft(TOWNS[which % 3]), AUTHOR, upsert=which > 4))
        elif step == "sweep":
            run_alone(self.process.forgetter.sweep(10))
            self.world.sweep()
        else:
            self.forget(which)
        self.check()

    def forget(self, which: int) -> None:
        """Forget one of the memories that are current, if there are any."""
        record = run_alone(self.world.records.get(HOME))
        current = [] if record is None else [run for run in record.runs if run.state == "current"]
        if record is None or not current:
            return
        run = current[which % len(current)]
        others = [one for one in current if one.memory_id != run.memory_id]
        said = {one.assertion_id for talk in self.said for one in talk if one.slot == HOME}
        held = said | {one for each in record.runs for one in each.assertions}
        memory = next(
            memory
            for memory in map(self.world.memory, self._said_of(run.assertions))
            if memory.memory_id == run.memory_id
        )
        run_alone(self.process.forgetter.forget(memory))
        self.gone |= held - {one for each in others for one in each.assertions}

        after = self.world.record(HOME)
        kept = {each.memory_id: each.content for each in after.runs if each.state == "current"}
        assert kept == {each.memory_id: each.content for each in others}

    def check(self) -> None:
        """What is gone is gone, and what is there is the fold of the rest."""
        record = run_alone(self.world.records.get(HOME))
        if record is not None:
            held = {one for run in record.runs for one in run.assertions}
            assert held.isdisjoint(self.gone)

    def _said_of(self, assertion_ids: Sequence[str]) -> list[Assertion]:
        said = run_alone(self.world.assertions.of_slot(HOME))
        return [one for one in said if one.assertion_id in assertion_ids]


@settings(max_examples=300)
@given(said=talks(), steps=STEPS)
def test_what_was_forgotten_never_comes_back_and_the_rest_is_untouched(
    said: list[tuple[Assertion, ...]], steps: list[Step]
) -> None:
    story = Story(said)
    for step, which in steps:
        story.take(step, which)
    extracted = {which % len(said) for step, which in steps if step == "extract"}
    for talk in extracted:
        story.take("extract", talk)
    story.world.finish()

    others = [one for talk in extracted for one in said[talk] if one.slot == OTHER]
    record = run_alone(story.world.records.get(OTHER))
    assert (() if record is None else record.runs) == folded(*others)
