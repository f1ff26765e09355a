"""A record is embedded while others change it, forget it and embed it, in every order of steps.

The law: when an embedding is not pending, the vectors are exactly those of the texts of the
record's runs. The same with a process that dies anywhere, once the waker's sweep has passed.
"""

from collections.abc import Callable, Coroutine, Hashable, Sequence
from datetime import timedelta
from itertools import count
from typing import Any, cast

import pytest

from pipeline.embedding.cleaning import Cleaner
from pipeline.embedding.filling import Filler
from pipeline.embedding.ledger import texts_of
from pipeline.embedding.ports import EmbeddingLedger, Refused, Vectors
from pipeline.stores.in_memory import MemoryEmbeddingLedger, MemoryVectors
from schemas.assertion import Assertion
from schemas.embedding import EmbeddingState
from tests.assertion_builder import assertion
from tests.embedding import HashedEmbedder
from tests.fold_world import World
from tests.forgetting_world import Time
from tests.interleaving import Gated, Race, explore, run_alone

OSLO = assertion("Oslo", on=1, extraction_id="a:0")
ROME = assertion("Rome", on=2, extraction_id="b:0")
SLOT = OSLO.slot
GRACE = timedelta(seconds=30)
OTHER_MODEL = "other:model:64"


class EmbeddingWorld(World):
    """The fold's world with vectors."""

    def __init__(self, *, refusing: Sequence[str] = ()) -> None:
        super().__init__()
        self.ledger = MemoryEmbeddingLedger(self.records)
        self.vectors = MemoryVectors()
        self.embedder = HashedEmbedder(refusing=refusing)
        self.knows((OSLO, ROME))
        self._processes = 0

    def state(self) -> Hashable:
        """Return what the processes share, and the answers that each gated one got."""
        kept = run_alone(self.ledger.get(SLOT))
        return (super().state(), self.vectors.stored(), kept and kept.embedding)

    def filler(self, *, model: str | None = None, gated: bool = True) -> Filler:
        """Return a process that embeds."""
        ledger, vectors = self._ports(gated=gated)
        embedder = self.embedder if model is None else HashedEmbedder(model=model)
        return Filler(
            ledger=ledger,
            vectors=vectors,
            embedder=embedder,
            server_time=Time(self),
            new_name=self._names(),
            grace=GRACE,
        )

    def cleaner(self) -> Cleaner:
        """Return a process that deletes vectors of what was forgotten."""
        ledger, vectors = self._ports(gated=True)
        return Cleaner(
            ledger=ledger, vectors=vectors, server_time=Time(self), new_name=self._names()
        )

    async def embeds(self, filler: Filler, *, settles: bool = True) -> None:
        """Do as the step does."""
        found = await self.ledger.get(SLOT)
        if found is not None:
            await filler.fill(await filler.look(found), _nothing, settles=settles)

    def check_vectors(self) -> None:
        """What is not pending has the vectors of its texts, and no other."""
        found = run_alone(self.ledger.get(SLOT))
        if found is None or found.embedding.state is EmbeddingState.PENDING:
            return
        texts = texts_of(found.owner).keys() - set(found.embedding.refused)
        there = {one for _, model, one in self.vectors.stored() if model == self.embedder.model}
        assert there == texts
        of_others = {one for _, model, one in self.vectors.stored() if model == OTHER_MODEL}
        assert of_others <= texts

    def finish(self) -> None:
        """Let the waker do what is left, until every writer from then must be dead."""
        for _ in range(3):
            self.now_ms += int(GRACE / timedelta(milliseconds=1)) * 2
            self.sweep()
            for found in run_alone(self.ledger.due(self.now_ms, 10)):
                filler = self.filler(gated=False)
                run_alone(filler.fill(run_alone(filler.look(found)), _nothing))
        found = run_alone(self.ledger.get(SLOT))
        assert found is not None
        assert found.embedding.state is not EmbeddingState.PENDING
        self.check_vectors()

    def _ports(self, *, gated: bool) -> tuple[EmbeddingLedger, Vectors]:
        if not gated:
            return self.ledger, self.vectors
        answers: list[Hashable] = []
        self._answers.append(answers)
        return (
            cast("EmbeddingLedger", Gated(self.ledger, answers)),
            cast("Vectors", Gated(self.vectors, answers)),
        )

    def _names(self) -> Callable[[], str]:
        self._processes += 1
        process, names = self._processes, count()
        return lambda: f"{process}.{next(names)}"


async def _nothing(refused: Sequence[Refused]) -> None:
    del refused


Work = Callable[[EmbeddingWorld], Coroutine[Any, Any, object]]


async def embeds(world: EmbeddingWorld) -> None:
    await world.embeds(world.filler())


async def embeds_it_with_another_model(world: EmbeddingWorld) -> None:
    await world.embeds(world.filler(model=OTHER_MODEL), settles=False)


async def says_more(world: EmbeddingWorld) -> None:
    await world.gated_folder().assert_all([ROME])


async def takes_it_back(world: EmbeddingWorld) -> None:
    """As a forgetting does: the fold without it, then the vectors."""
    await world.gated_folder().remove_run("a:0")
    await world.cleaner().clean(SLOT)


async def takes_it_back_and_embeds(world: EmbeddingWorld) -> None:
    await takes_it_back(world)
    await embeds(world)


async def says_more_and_embeds(world: EmbeddingWorld) -> None:
    await says_more(world)
    await embeds(world)


async def cleans(world: EmbeddingWorld) -> None:
    await world.cleaner().clean(SLOT)


RACES: dict[str, tuple[Sequence[Assertion], Work]] = {
    "embedded twice": ((OSLO,), embeds),
    "another model is built": ((OSLO,), embeds_it_with_another_model),
    "more is said": ((OSLO,), says_more),
    "it is taken back": ((OSLO,), takes_it_back),
    "one of two is taken back": ((OSLO, ROME), takes_it_back),
    "it is cleaned": ((OSLO, ROME), cleans),
    "it is taken back and embedded again": ((OSLO, ROME), takes_it_back_and_embeds),
}
SWITCHES = 3
"""How often a process is interrupted, or with one that dies once less."""


def a_race(
    before: Sequence[Assertion],
    work: Work,
    *,
    beside: Work = embeds,
    kills: int = 0,
    refusing: Sequence[str] = (),
) -> int:
    """Embed a record beside a work, in every order; return how many states there are."""

    def make() -> Race:
        world = EmbeddingWorld(refusing=refusing)
        run_alone(world.folder().assert_all(before))

        return Race(
            processes=(beside(world), work(world)),
            state=world.state,
            holds_always=world.check_vectors,
            holds_finally=world.finish,
        )

    return explore(make, kills=kills, switches=SWITCHES - kills)


@pytest.mark.parametrize("name", RACES)
def test_whoever_is_beside_it_the_vectors_are_those_of_its_texts(name: str) -> None:
    before, work = RACES[name]

    assert a_race(before, work) > 20


@pytest.mark.parametrize("name", RACES)
def test_one_of_them_may_die_anywhere(name: str) -> None:
    before, work = RACES[name]

    assert a_race(before, work, kills=1) > 20


def test_who_cleans_takes_nothing_that_was_said_meanwhile() -> None:
    assert a_race((OSLO,), cleans, beside=says_more_and_embeds) > 20


def test_what_is_refused_is_told_from_what_is_missing() -> None:
    assert a_race((OSLO, ROME), says_more, refusing=["Oslo"]) > 20
