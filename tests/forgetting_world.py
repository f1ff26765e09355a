"""The fold's world with what forgets and what saves, and processes that extract."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import cast

from pipeline.extracting.judging import Judgement
from pipeline.folding.asserting import assert_run
from pipeline.folding.refolding import Folder
from pipeline.forgetting.barring import Bars, is_barred, standing
from pipeline.forgetting.records import Forgetter
from pipeline.ports.publisher import Publisher
from pipeline.ports.records import Assertions, Records
from pipeline.reading.memories import Memory, memories_of
from pipeline.saving.direct import Author, Draft, Saver
from pipeline.stores.in_memory import MemoryTombstones
from schemas.assertion import Assertion
from schemas.memory import Kind
from schemas.record import Record, RunState
from schemas.tombstone import TombstoneState
from tests.assertion_builder import IDS, SCOPE, day, folded, home
from tests.fold_world import FrozenClock, World
from tests.interleaving import Gated, run_alone

LEASE = timedelta(minutes=3)
LATER = day(50)
"""What the server's clock says; whatever is said before day 50 is old."""
AUTHOR = Author()


class WatchedTombstones(MemoryTombstones):
    """The twin, to be looked at."""

    def state(self) -> Hashable:
        """Return all that is stored."""
        return tuple(sorted(self._rows.items()))

    def undone(self) -> list[str]:
        """Return those that stand for a forgetting that is not done."""
        return [
            name for name, (one, _) in self._rows.items() if one.state is not TombstoneState.DONE
        ]


class NoAnswers:
    """Port `Blanks`: nothing is stored of what a model said."""

    async def blank(self, extraction_ids: Sequence[str]) -> None:
        """Blank nothing."""


class NoVectors:
    """Port `Cleans`: nothing is embedded."""

    async def clean(self, record_id: str) -> None:
        """Clean nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process: all it may do."""

    folder: Folder
    forgetter: Forgetter
    saver: Saver

    async def extract(self, run: str, said: Sequence[Assertion]) -> list[Assertion]:
        """Go from the stored answer of a run to records; return what stands of it."""

        async def judge(bars: Bars) -> dict[int, Judgement]:
            kept = tuple(one for one in said if not is_barred(bars.get(one.slot), one))
            return {0: Judgement(assertions=kept, set_aside=())}

        return (await assert_run(self.folder, run, judge)).assertions


class ForgettingWorld(World):
    """What all processes share."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = int(LATER.timestamp() * 1000)
        self.tombstones = WatchedTombstones()
        self._processes = 0

    def process(self) -> Process:
        """Return a process that nothing keeps waiting."""
        return self._process(lambda port: port)

    def gated(self) -> Process:
        """Return a process that waits for its turn before each call."""
        answers: list[Hashable] = []
        self._answers.append(answers)
        return self._process(lambda port: Gated(port, answers))

    def state(self) -> Hashable:
        """Return what the processes share, and the answers that each gated one got."""
        return (super().state(), self.tombstones.state())

    def record(self, slot: str) -> Record:
        """Return a record there must be."""
        record = run_alone(self.records.get(slot))
        assert record is not None
        return record

    def memory(self, assertion: Assertion) -> Memory:
        """Return the memory that an assertion makes."""
        record = self.record(assertion.slot)
        return next(
            one
            for one in memories_of([record], tuple(RunState))
            if assertion.assertion_id in one.run.assertions
        )

    def current(self, slot: str) -> list[str]:
        """Return what is current in a slot, in words."""
        return sorted(memory.text for memory in memories_of([self.record(slot)]))

    def check_forgotten(self) -> None:
        """No record holds what it may not hold, and its runs are those of what it may."""
        for slot in self._slots:
            record = run_alone(self.records.get(slot))
            if record is None:
                continue
            said = run_alone(self.assertions.of_slot(slot))
            assert record.runs == folded(*standing(record.bar, said))
            if record.bar is not None and not record.runs:
                assert (record.key, record.subject) == ("", "")

    def finish(self) -> None:
        """Let the waker do what is left, until every lease from then has ended."""
        for _ in range(3):
            self.now_ms += int(2 * LEASE / timedelta(milliseconds=1))
            self.sweep()
            run_alone(self.process().forgetter.sweep(100))
        self.check_forgotten()

        assert self.tombstones.undone() == []
        assert [one for one in self.said() if is_barred(self.record(one.slot).bar, one)] == []

    def _process(self, wrap: Callable[[object], object]) -> Process:
        self._processes += 1
        process, names = self._processes, count()
        records = cast("Records", wrap(self.records))
        assertions = cast("Assertions", wrap(self.assertions))
        folder = Folder(assertions, records, cast("Publisher", wrap(self.broker)), FrozenClock())

        def new_name() -> str:
            return f"{process}.{next(names)}"

        return Process(
            folder=folder,
            forgetter=Forgetter(
                # Each process has its own, so that their order among others' steps says nothing.
                tombstones=self.tombstones,
                records=records,
                assertions=assertions,
                answers=NoAnswers(),
                vectors=NoVectors(),
                folder=folder,
                server_time=Time(self),
                new_name=new_name,
                lease=LEASE,
            ),
            saver=Saver(
                folder=folder,
                records=records,
                ids=IDS,
                server_time=Time(self),
                new_name=new_name,
            ),
        )


class Time:
    """Port `ServerTime`: the world's."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def now_ms(self) -> int:
        """Return it."""
        return self._world.now_ms


def draft(text: str) -> Draft:
    """Return where somebody lives, as an agent saves it."""
    return Draft(scope=SCOPE, kind=Kind.SEMANTIC, content=home(text))
