"""Going over to another model on a real database: readers never miss what they had."""

from collections import deque
from collections.abc import Sequence
from datetime import timedelta

import pytest

from consumers.embedding_wiring import embedding_step, filler
from consumers.wiring import Installation, wire
from pipeline.embedding.ledger import texts_of
from pipeline.embedding.naming import wake_up
from pipeline.embedding.ports import Purpose, Refused, Vector
from pipeline.embedding.reembedding import Reembedder, Report
from pipeline.errors import AnswerError
from pipeline.failing.gating import HeldError
from pipeline.messages import encode
from pipeline.settings import EmbeddingSettings, Settings
from pipeline.stores.mongo import Database
from pipeline.stores.vectors import MongoReembeddings
from schemas.embedding import EmbeddingState
from schemas.failure import Coordinates, FailureClass
from schemas.message import IncomingMessage, OutgoingMessage
from tests.assertion_builder import START, assertion
from tests.embedding import HashedEmbedder

PEOPLE = [assertion(f"Likes tea number {n}.", on=n, subject=f"p{n}") for n in range(5)]
MORE = assertion("Likes coffee.", on=9, subject="p0")
OLD = HashedEmbedder()
NEW = "hashed:words:128"
NOTHING = timedelta(0)


class Nowhere:
    """Port `Publisher`: nobody listens."""

    async def publish(self, message: OutgoingMessage) -> None:
        del message


class Wider(HashedEmbedder):
    """Another model of another dimension; it raises what it is told, once each."""

    def __init__(self, *errors: Exception | None, refusing: Sequence[str] = ()) -> None:
        super().__init__(model=NEW, dimension=128, refusing=refusing)
        self.errors = deque(errors)

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> list[Vector | Refused]:
        error = self.errors.popleft() if self.errors else None
        if error is not None:
            raise error
        return await super().embed(texts, purpose)


@pytest.fixture
async def parts(db: Database) -> Installation:
    """An installation whose records are embedded with the first model."""
    settings = Settings(embedding=EmbeddingSettings(provider="local"))
    made = await wire(settings, db, Nowhere())
    await made.active_model.claim(OLD.model)
    await made.folder.assert_all(PEOPLE)
    await embeds(made, OLD)
    return made


async def embeds(parts: Installation, embedder: HashedEmbedder) -> None:
    """Deliver the news of every record."""
    step = embedding_step(parts, embedder)
    for found in await parts.embeddings.after("", 100, project_id=None):
        topic, event = wake_up(found.owner, START)
        out = encode(topic.name, event)
        at = Coordinates(topic=out.topic, partition=0, offset=1, timestamp_ms=0, group="g")
        await step(IncomingMessage(at=at, key=out.key, value=out.value, headers=out.headers))


def reembedder(parts: Installation, embedder: HashedEmbedder, *, waits: int = 0) -> Reembedder:
    return Reembedder(
        ledger=parts.embeddings,
        vectors=parts.vectors,
        filler=filler(parts, embedder),
        cleaner=parts.cleaner,
        active=parts.active_model,
        reembeddings=MongoReembeddings(parts.database),
        page=2,
        late=NOTHING,
        waits=[NOTHING] * waits,
    )


async def is_whole(parts: Installation, model: str) -> bool:
    """Return whether every text of every record has its vector of a model."""
    found = await parts.embeddings.after("", 100, project_id=None)
    owners = [one.owner_id for one in found]
    vectors = await parts.vectors.of_owners(model, owners)
    return all(vectors.get(one.owner_id, {}).keys() == texts_of(one.owner).keys() for one in found)


def nobody(report: Report) -> None:
    del report


async def test_readers_have_whole_vectors_all_the_time(parts: Installation) -> None:
    seen: list[tuple[str | None, bool]] = []

    class Looks(Wider):
        async def embed(self, texts: Sequence[str], purpose: Purpose) -> list[Vector | Refused]:
            active = await parts.active_model.active()
            seen.append((active, await is_whole(parts, active or "")))
            return await super().embed(texts, purpose)

    report = await reembedder(parts, Looks()).run(nobody)

    assert set(seen) == {(OLD.model, True)}
    assert await parts.active_model.active() == NEW
    assert await is_whole(parts, NEW)
    assert (report.embedded, report.refused, report.deleted) == (5, 0, 5)
    assert await parts.database["vectors"].count_documents({"model": {"$ne": NEW}}) == 0
    states = {
        (one.embedding.state, one.embedding.model)
        for one in await parts.embeddings.after("", 100, project_id=None)
    }
    assert states == {(EmbeddingState.EMBEDDED, NEW)}
    assert await MongoReembeddings(parts.database).get() is None


async def test_one_that_was_cut_off_goes_on_and_pays_nothing_twice(parts: Installation) -> None:
    fails = AnswerError(FailureClass.QUOTA, "insufficient_quota")
    broken = Wider(None, None, None, fails, fails)
    with pytest.raises(AnswerError):
        await reembedder(parts, broken).run(nobody)
    between = await parts.active_model.active()
    stored = await MongoReembeddings(parts.database).get()
    whole = Wider()
    await reembedder(parts, whole).run(nobody)

    assert between == OLD.model
    assert stored is not None
    assert (stored.phase, stored.cursor != "") == ("building", True)
    asked = [text for call in (*broken.asked, *whole.asked) for text in call]
    assert sorted(asked) == sorted(f"Likes tea number {n}." for n in range(5))
    assert await is_whole(parts, NEW)


async def test_a_service_that_fails_is_waited_for(parts: Installation) -> None:
    down = AnswerError(FailureClass.UNAVAILABLE, "http_503")
    await reembedder(parts, Wider(down, down), waits=2).run(nobody)

    assert await is_whole(parts, NEW)


async def test_what_others_change_meanwhile_is_made_up_for(parts: Installation) -> None:
    """A consumer with the model of before works on while the other's vectors are built."""

    class Meanwhile(Wider):
        async def embed(self, texts: Sequence[str], purpose: Purpose) -> list[Vector | Refused]:
            if len(self.asked) == 4:
                await parts.folder.assert_all([MORE])
                await embeds(parts, OLD)
            return await super().embed(texts, purpose)

    await reembedder(parts, Meanwhile()).run(nobody)

    assert await is_whole(parts, NEW)
    with pytest.raises(HeldError, match="embedding_model_not_active"):
        await parts.folder.assert_all([assertion("Likes milk.", on=11, subject="p1")])
        await embeds(parts, OLD)
    await embeds(parts, Wider())
    assert await is_whole(parts, NEW)


async def test_what_the_other_model_refuses_is_no_obstacle(parts: Installation) -> None:
    report = await reembedder(parts, Wider(refusing=["Likes tea number 2."])).run(nobody)
    found = await parts.embeddings.get(PEOPLE[2].slot)

    assert report.refused > 0
    assert await parts.active_model.active() == NEW
    assert found is not None
    assert found.embedding.state is EmbeddingState.REFUSED


async def test_of_one_project_it_builds_and_switches_nothing(parts: Installation) -> None:
    project = PEOPLE[0].scope.project_id
    await reembedder(parts, Wider()).build("another", nobody)
    none = await parts.database["vectors"].count_documents({"model": NEW})
    await reembedder(parts, Wider()).build(project, nobody)

    assert none == 0
    assert await is_whole(parts, NEW)
    assert await is_whole(parts, OLD.model)
    assert await parts.active_model.active() == OLD.model


async def test_with_the_active_model_what_was_given_up_is_tried_again(parts: Installation) -> None:
    dead = {"$set": {"embedding.state": "dead"}}
    await parts.database["records"].update_one({"_id": PEOPLE[1].slot}, dead)
    await parts.vectors.delete_of([PEOPLE[1].slot])
    embedder = HashedEmbedder()
    await reembedder(parts, embedder).run(nobody)

    assert embedder.asked == [("Likes tea number 1.",)]
    assert await is_whole(parts, OLD.model)
