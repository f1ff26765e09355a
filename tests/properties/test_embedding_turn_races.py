"""A turn is embedded while somebody forgets it or embeds it too, in every order of steps.

The law: when an embedding is not pending, the vectors are those of what was said in the turn. When
the turn is gone and whoever was at it has ended, there are none; one that died in between leaves
some to the second pass of whoever forgot it, and never to readers, who read the turn last.
"""

from collections.abc import Callable, Hashable
from itertools import count
from typing import cast

import pytest

from pipeline.embedding.filling import Filler
from pipeline.embedding.ledger import texts_of
from pipeline.embedding.ports import Embedded, EmbeddingLedger, Vectors
from pipeline.stores.in_memory import MemoryVectors
from schemas.embedding import Embedding, EmbeddingState
from schemas.turn import Turn
from tests.builders import turn
from tests.embedding import HashedEmbedder
from tests.interleaving import Gated, Race, explore, run_alone
from tests.properties.test_embedding_races import GRACE, OTHER_MODEL, SWITCHES

SAID = turn(1, "I live in Oslo.")


class Turns:
    """One turn with its ledger, as the store keeps them together. Implements `EmbeddingLedger`."""

    def __init__(self) -> None:
        self.turn: Turn | None = SAID
        self.embedding = Embedding(state=EmbeddingState.PENDING)

    async def get(self, owner_id: str) -> Embedded | None:
        assert owner_id == SAID.turn_id
        return None if self.turn is None else Embedded(owner=self.turn, embedding=self.embedding)

    async def swap(self, owner_id: str, before: Embedding, after: Embedding) -> bool:
        assert owner_id == SAID.turn_id
        if self.turn is None or self.embedding.rev != before.rev:
            return False
        self.embedding = after
        return True

    async def remove(self) -> None:
        self.turn = None


class TurnWorld:
    """A turn, its vectors, and processes at them. It is a server's clock as well."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.vectors = MemoryVectors()
        self.now = 1_000_000
        self._answers: list[list[Hashable]] = []

    async def now_ms(self) -> int:
        return self.now

    def state(self) -> Hashable:
        kept = (self.turns.turn is not None, self.turns.embedding, self.vectors.stored())
        return (kept, tuple(tuple(answers) for answers in self._answers))

    async def embeds(self, *, model: str | None = None, gated: bool = True) -> None:
        embedder = HashedEmbedder() if model is None else HashedEmbedder(model=model)
        ledger, vectors = cast("EmbeddingLedger", self.turns), cast("Vectors", self.vectors)
        names: Callable[[], str] = map(str, count(1000 * len(self._answers))).__next__
        if gated:
            answers: list[Hashable] = []
            self._answers.append(answers)
            ledger = cast("EmbeddingLedger", Gated(self.turns, answers))
            vectors = cast("Vectors", Gated(self.vectors, answers))
        filler = Filler(
            ledger=ledger,
            vectors=vectors,
            embedder=embedder,
            server_time=self,
            new_name=names,
            grace=GRACE,
        )
        found = await self.turns.get(SAID.turn_id)
        if found is not None:
            await filler.fill(await filler.look(found), _nothing, settles=model is None)

    async def forgets(self) -> None:
        answers: list[Hashable] = []
        self._answers.append(answers)
        await Gated(self.turns, answers).remove()
        await Gated(self.vectors, answers).delete_of([SAID.turn_id])

    def check(self) -> None:
        """What is not pending has its vector, and never one of something else."""
        texts = texts_of(SAID).keys()
        stored = {one for _, _, one in self.vectors.stored()}
        assert stored <= texts
        if self.turns.turn is not None and self.turns.embedding.state is EmbeddingState.EMBEDDED:
            mine = {one for _, model, one in self.vectors.stored() if model != OTHER_MODEL}
            assert mine == texts

    def ends(self, *, has_death: bool) -> None:
        """The waker wakes it until it is done; who forgot it makes his second pass."""
        if self.turns.turn is None:
            if has_death:
                run_alone(self.vectors.delete_of([SAID.turn_id]))
            assert not self.vectors.stored()
            return
        for _ in range(3):
            self.now += 10 * int(GRACE.total_seconds() * 1000)
            run_alone(self.embeds(gated=False))
        assert self.turns.embedding.state is EmbeddingState.EMBEDDED
        self.check()


async def _nothing(refused: object) -> None:
    del refused


def race(*, beside: str, kills: int) -> int:
    """Embed a turn beside something, in every order; return how many states there are."""

    def make() -> Race:
        world = TurnWorld()
        work = {
            "it is forgotten": world.forgets,
            "it is embedded, too": world.embeds,
            "another model is built": lambda: world.embeds(model=OTHER_MODEL),
        }[beside]
        return Race(
            processes=(world.embeds(), work()),
            state=world.state,
            holds_always=world.check,
            holds_finally=lambda: world.ends(has_death=kills > 0),
        )

    return explore(make, kills=kills, switches=SWITCHES - kills)


@pytest.mark.parametrize("kills", [0, 1])
@pytest.mark.parametrize(
    "beside", ["it is forgotten", "it is embedded, too", "another model is built"]
)
def test_whatever_is_beside_it_the_vectors_are_those_of_a_turn_that_is_there(
    beside: str, kills: int
) -> None:
    assert race(beside=beside, kills=kills) > 10
