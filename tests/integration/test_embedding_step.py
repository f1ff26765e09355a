"""The embedding step on a real database: whatever fails comes to an end that is recorded."""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import timedelta

import numpy as np
import pytest

from consumers.embedding_wiring import embedding_step
from consumers.operating import letter_desk
from consumers.wiring import Installation, wire
from pipeline import crash_points
from pipeline.crash_points import CrashPoint
from pipeline.embedding.batching import BatchedEmbedder
from pipeline.embedding.checking import check_embedder
from pipeline.embedding.choosing import embedder_from
from pipeline.embedding.ledger import texts_of
from pipeline.embedding.ports import Purpose, Refused, Vector, content_hash
from pipeline.embedding.step import EmbeddingStep
from pipeline.errors import AnswerError, ConfigurationError
from pipeline.failing.gating import HeldError
from pipeline.ports.letters import LetterQuery
from pipeline.reading.memories import memories_of
from pipeline.settings import EmbeddingSettings, Settings
from pipeline.stores.mongo import Database
from schemas.assertion import Assertion
from schemas.embedding import Embedding, EmbeddingState
from schemas.failure import Coordinates, FailureClass
from schemas.message import TICKET_HEADER, IncomingMessage
from schemas.topics import RECORD_CHANGED, RETRY_TIERS, Stage
from tests.assertion_builder import assertion
from tests.embedding import HashedEmbedder
from tests.embedding_world import Broker, FailingEmbedder, LaterTime, delivered, down, pending
from tests.scripted_endpoint import Json, Reply, ScriptedEndpoint, sends, status

OSLO = assertion("Lives in Oslo.", on=1)
ROME = assertion("Lives in Rome.", on=2)
SLOT = OSLO.slot
SETTINGS = Settings(embedding=EmbeddingSettings(provider="local"))
TIERS = {tier.topic.name for tier in RETRY_TIERS[Stage.EMBEDDING]}


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def time(db: Database) -> LaterTime:
    return LaterTime(db)


@pytest.fixture
async def parts(db: Database, broker: Broker, time: LaterTime) -> Installation:
    return await wire(SETTINGS, db, broker, server_time=time)


async def said(parts: Installation, *assertions: Assertion) -> None:
    await parts.folder.announce(await parts.folder.assert_all(assertions))


async def embedding(parts: Installation, slot: str = SLOT) -> Embedding:
    found = await parts.embeddings.get(slot)
    assert found is not None
    return found.embedding


async def texts(parts: Installation, slot: str = SLOT, model: str = "hashed:words:64") -> set[str]:
    """Return which texts of a record have their vector, and that there is no other."""
    record = await parts.records.get(slot)
    assert record is not None
    known = texts_of(record)
    found = (await parts.vectors.of_owners(model, [slot])).get(slot, {})
    for vector in found.values():
        assert np.linalg.norm(vector) == pytest.approx(1)
    assert found.keys() <= known.keys(), "a vector of no text"
    return {known[one] for one in found}


async def woken(parts: Installation, time: LaterTime, step: EmbeddingStep, broker: Broker) -> None:
    """Let the waker find what is lost, until nothing is pending."""
    for _ in range(8):
        if (await embedding(parts)).state is not EmbeddingState.PENDING:
            return
        time.later += timedelta(hours=2)
        await pending(parts).sweep(10)
        await delivered(step, broker)
    raise AssertionError("it stays pending")


async def test_a_changed_record_gets_the_vectors_of_its_texts(
    parts: Installation, broker: Broker
) -> None:
    embedder = HashedEmbedder()
    step = embedding_step(parts, embedder)
    await said(parts, OSLO)
    await delivered(step, broker)
    first = await embedding(parts)
    await said(parts, ROME)
    between = await embedding(parts)
    await delivered(step, broker)
    stored = await parts.database["vectors"].find_one(
        {"content_hash": content_hash("Lives in Rome.")}
    )

    assert (first.state, first.model) == (EmbeddingState.EMBEDDED, embedder.model)
    assert between.state is EmbeddingState.PENDING
    assert (await embedding(parts)).state is EmbeddingState.EMBEDDED
    assert await texts(parts) == {"Lives in Oslo.", "Lives in Rome."}
    assert embedder.asked == [("Lives in Oslo.",), ("Lives in Rome.",)], "each paid for once"
    assert stored is not None
    assert stored["scope"]["project_id"] == OSLO.scope.project_id
    assert stored["dimension"] == 64


async def test_delivering_it_again_changes_nothing(parts: Installation, broker: Broker) -> None:
    embedder = HashedEmbedder()
    step = embedding_step(parts, embedder)
    await said(parts, OSLO)
    message = broker.waiting[0]
    await delivered(step, broker)
    before = await parts.database["records"].find_one({"_id": SLOT})
    await step(message)

    assert await parts.database["records"].find_one({"_id": SLOT}) == before
    assert len(embedder.asked) == 1


async def test_readers_are_told_when_there_are_vectors(parts: Installation, broker: Broker) -> None:
    await said(parts, OSLO)
    await delivered(embedding_step(parts, HashedEmbedder()), broker)
    stored = await parts.database["records"].find_one({"_id": SLOT})

    assert stored is not None
    assert abs(stored["changed_ms"] - await parts.server_time.now_ms()) < 60_000


async def test_what_is_refused_is_an_outcome_and_its_neighbours_go_through(
    parts: Installation, broker: Broker
) -> None:
    other = assertion("Walks.", on=3, subject="Ana")
    embedder = HashedEmbedder(refusing=["Lives in Oslo."])
    step = embedding_step(parts, embedder)
    await said(parts, OSLO, ROME, other)
    await delivered(step, broker)
    refused = await embedding(parts)

    assert (refused.state, refused.reason) == (EmbeddingState.REFUSED, "content.too_long")
    assert refused.refused == (content_hash("Lives in Oslo."),)
    assert await texts(parts) == {"Lives in Rome."}
    assert (await embedding(parts, other.slot)).state is EmbeddingState.EMBEDDED
    assert await parts.letters.count() == 0
    record = await parts.records.get(SLOT)
    assert record is not None
    assert len(memories_of([record])) == 2, "it is there for whoever searches by words"


async def test_a_service_that_is_down_is_tried_again_by_the_tiers(
    parts: Installation, broker: Broker
) -> None:
    embedder = FailingEmbedder(down(), down())
    step = embedding_step(parts, embedder)
    await said(parts, OSLO)
    duplicate = broker.waiting[0]
    await step(broker.waiting.popleft())
    waiting = await embedding(parts)
    await step(duplicate)
    assert len(embedder.asked) == 1, "the ticket tells which message is live"
    retry = broker.waiting[0]
    await delivered(step, broker)

    assert waiting.state is EmbeddingState.PENDING
    assert [one.failure.reason for one in waiting.attempts] == ["http_503"]
    assert retry.at.topic in TIERS
    assert retry.header(TICKET_HEADER) == waiting.ticket
    assert [topic for topic in broker.topics if topic in TIERS] == [
        "afterturn.embedding.retry.30s.v1",
        "afterturn.embedding.retry.2m.v1",
    ]
    assert (await embedding(parts)).state is EmbeddingState.EMBEDDED
    assert await texts(parts) == {"Lives in Oslo."}


async def test_what_outlasts_the_ladder_is_a_letter_and_the_record_stays(
    parts: Installation, broker: Broker
) -> None:
    class AlwaysDown(HashedEmbedder):
        async def embed(self, texts: Sequence[str], purpose: Purpose) -> list[Vector | Refused]:
            raise ValueError(texts)

    step = embedding_step(parts, AlwaysDown())
    await said(parts, OSLO)
    await delivered(step, broker)
    letter = await parts.database["letters"].find_one({})

    assert (await embedding(parts)).state is EmbeddingState.DEAD
    assert letter is not None
    assert (letter["stage"], letter["disposition"]) == ("embedding", "exhausted")
    assert letter["failure_class"] == FailureClass.UNCLASSIFIED
    assert len(letter["attempts"]) == 3
    assert "Oslo" not in str(letter)
    assert len(broker.dead) == 1
    await said(parts, ROME)
    await delivered(embedding_step(parts, HashedEmbedder()), broker)
    assert (await embedding(parts)).state is EmbeddingState.EMBEDDED


async def test_what_is_configured_wrongly_holds_everything_and_spends_nothing(
    parts: Installation, broker: Broker
) -> None:
    wrong = AnswerError(FailureClass.PARAMETER_UNKNOWN, "wrong_dimension")
    step = embedding_step(parts, FailingEmbedder(wrong))
    await said(parts, OSLO)

    with pytest.raises(HeldError, match="wrong_dimension"):
        await delivered(step, broker)

    kept = await embedding(parts)
    assert (kept.state, kept.attempts, kept.writers) == (EmbeddingState.PENDING, (), ())


async def test_many_refusals_one_after_another_are_a_bad_deploy(
    parts: Installation, broker: Broker
) -> None:
    class RefusesAll(HashedEmbedder):
        async def embed(self, texts: Sequence[str], purpose: Purpose) -> list[Vector | Refused]:
            return [Refused(reason="http_400") for _ in texts]

    step = embedding_step(parts, RefusesAll())
    await said(parts, *(assertion(f"Likes {n}.", on=n, subject=f"p{n}") for n in range(22)))

    with pytest.raises(HeldError, match="mass_guard"):
        await delivered(step, broker)

    refused = {"embedding.state": EmbeddingState.REFUSED.value}
    assert await parts.database["records"].count_documents(refused) == 20


async def test_a_message_that_got_lost_is_sent_again_with_its_ticket(
    parts: Installation, broker: Broker, time: LaterTime
) -> None:
    step = embedding_step(parts, FailingEmbedder(down()))
    await said(parts, OSLO)
    broker.waiting.clear()
    assert await pending(parts).sweep(10) == 0, "it may be on its way"
    time.later += timedelta(minutes=3)
    assert await pending(parts).sweep(10) == 1
    assert await pending(parts).sweep(10) == 0
    broker.is_up = False
    await step(broker.waiting.popleft())
    broker.is_up = True
    assert broker.waiting == deque()
    await woken(parts, time, step, broker)

    assert (await embedding(parts)).state is EmbeddingState.EMBEDDED


async def test_records_of_before_there_was_a_ledger_are_found(
    parts: Installation, broker: Broker, time: LaterTime
) -> None:
    await said(parts, OSLO)
    broker.waiting.clear()
    old = {"$set": {"embedding": {"state": "pending"}}}
    await parts.database["records"].update_one({"_id": SLOT}, old)

    await woken(parts, time, embedding_step(parts, HashedEmbedder()), broker)

    assert await texts(parts) == {"Lives in Oslo."}


async def test_a_letter_that_is_sent_back_is_embedded_or_dies_as_the_same_letter(
    parts: Installation, broker: Broker
) -> None:
    bugs = [KeyError("a bug") for _ in range(6)]
    step = embedding_step(parts, FailingEmbedder(*bugs))
    desk = letter_desk(parts, by="an operator")
    await said(parts, OSLO)
    await delivered(step, broker)
    (first,) = await parts.letters.matching(LetterQuery())

    await desk.redrive(first)
    await delivered(step, broker)
    (second,) = await parts.letters.matching(LetterQuery())
    await desk.redrive(second)
    (under_way,) = await parts.letters.matching(LetterQuery())
    await delivered(step, broker)
    (third,) = await parts.letters.matching(LetterQuery())

    assert (first.state, first.deaths, second.state, second.deaths) == ("dead", 1, "dead", 2)
    assert second.letter_id == first.letter_id
    assert len(second.attempts) == len(first.attempts)
    assert (under_way.state, third.state) == ("waiting", "resolved")
    assert (await embedding(parts)).state is EmbeddingState.EMBEDDED
    assert await texts(parts) == {"Lives in Oslo."}


async def test_a_letter_of_what_says_something_else_now_is_not_sent_back_twice(
    parts: Installation, broker: Broker
) -> None:
    step = embedding_step(parts, FailingEmbedder(*[KeyError("a bug") for _ in range(3)]))
    await said(parts, OSLO)
    await delivered(step, broker)
    (letter,) = await parts.letters.matching(LetterQuery())
    await said(parts, ROME)
    await delivered(step, broker)

    (after,) = await parts.letters.matching(LetterQuery())
    assert (letter.state, after.state) == ("dead", "resolved")


async def test_what_is_no_news_of_a_record_is_a_letter(parts: Installation, broker: Broker) -> None:
    at = Coordinates(topic=RECORD_CHANGED.name, partition=0, offset=1, timestamp_ms=0, group="g")
    step = embedding_step(parts, HashedEmbedder())
    await step(IncomingMessage(at=at, key=b"\xff", value=b"\xff", headers=()))

    letter = await parts.database["letters"].find_one({})
    assert letter is not None
    assert (letter["stage"], letter["reason"]) == ("embedding", "not_utf8")


async def test_a_record_that_kills_its_process_is_set_aside(
    parts: Installation, broker: Broker
) -> None:
    step = embedding_step(parts, HashedEmbedder())
    await said(parts, OSLO)
    message = broker.waiting.popleft()

    assert step.subject(message) == SLOT
    assert await step.bury(message)
    assert await step.bury(message)
    kept = await embedding(parts)
    assert (kept.state, kept.reason) == (EmbeddingState.DEAD, "crash_loop")
    assert await parts.letters.count() == 1


async def test_a_forgotten_memory_has_no_vector_at_once(
    parts: Installation, broker: Broker
) -> None:
    step = embedding_step(parts, HashedEmbedder())
    await said(parts, OSLO, ROME)
    await delivered(step, broker)
    record = await parts.records.get(SLOT)
    assert record is not None
    (oslo,) = (one for one in memories_of([record]) if one.text == "Lives in Oslo.")
    await parts.forgetter.forget(oslo)

    assert await texts(parts) == {"Lives in Rome."}
    await parts.folder.sweep_unannounced(10)
    await delivered(step, broker)
    assert (await embedding(parts)).state is EmbeddingState.EMBEDDED
    assert await texts(parts) == {"Lives in Rome."}


async def test_a_memory_that_is_forgotten_while_it_is_embedded_stays_forgotten(
    parts: Installation, broker: Broker
) -> None:
    class Slow(HashedEmbedder):
        def __init__(self) -> None:
            super().__init__()
            self.begun = asyncio.Event()
            self.goes_on = asyncio.Event()

        async def embed(self, texts: Sequence[str], purpose: Purpose) -> list[Vector | Refused]:
            self.begun.set()
            await self.goes_on.wait()
            return await super().embed(texts, purpose)

    embedder = Slow()
    await said(parts, OSLO)
    step = embedding_step(parts, embedder)
    embeds = asyncio.create_task(step(broker.waiting.popleft()))
    await embedder.begun.wait()
    record = await parts.records.get(SLOT)
    assert record is not None
    await parts.forgetter.forget(memories_of([record])[0])
    embedder.goes_on.set()
    await embeds

    assert await texts(parts) == set()
    assert await parts.database["vectors"].count_documents({}) == 0


async def test_another_model_than_the_active_one_embeds_nothing(
    parts: Installation, broker: Broker
) -> None:
    await check_embedder(HashedEmbedder(), parts.active_model)
    other = HashedEmbedder(model="hashed:words:128", dimension=128)
    await check_embedder(other, parts.active_model)
    await said(parts, OSLO)

    with pytest.raises(HeldError, match="embedding_model_not_active"):
        await delivered(embedding_step(parts, other), broker)

    assert await parts.active_model.active() == "hashed:words:64"
    assert other.asked == [("afterturn",)]


class DiedError(BaseException):
    """The process is no more."""


@pytest.fixture
def deaths(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a process that dies be a coroutine that raises."""

    def dies(pid: int, signal: int) -> None:
        del pid, signal
        raise DiedError

    monkeypatch.setattr(crash_points.os, "kill", dies)
    yield
    crash_points.arm(None)


POINTS = [
    *(CrashPoint.EMBEDDER_ANSWERED, CrashPoint.EMBEDDING_BEGUN, CrashPoint.VECTORS_PUT),
    *(CrashPoint.VECTORS_CLEANED, CrashPoint.EMBEDDING_ENDED, CrashPoint.EMBEDDING_WAITS),
    *(CrashPoint.EMBEDDING_WOKEN, CrashPoint.EMBEDDING_POSTPONED, CrashPoint.CLEANER_NOTED),
    *(CrashPoint.FATE_PUBLISHED, CrashPoint.TOMBSTONE_ADVANCED, CrashPoint.SLOT_BARRED),
]


@pytest.mark.usefixtures("deaths")
@pytest.mark.parametrize("point", POINTS)
async def test_whoever_comes_after_a_death_finishes(
    point: CrashPoint, parts: Installation, broker: Broker, time: LaterTime
) -> None:
    """It is embedded, one of its memories is forgotten; somewhere in it a process dies."""
    embedder = FailingEmbedder(down())
    step = embedding_step(parts, embedder)
    await said(parts, OSLO, ROME)
    record = await parts.records.get(SLOT)
    assert record is not None
    (oslo,) = (one for one in memories_of([record]) if one.text == "Lives in Oslo.")
    crash_points.arm(point)

    async def goes_on() -> None:
        await delivered(step, broker)
        time.later += timedelta(hours=1)
        await pending(parts).sweep(10)
        await parts.forgetter.forget(oslo)
        await delivered(step, broker)

    died = False
    try:
        if point in {CrashPoint.EMBEDDING_WOKEN, CrashPoint.EMBEDDING_POSTPONED}:
            broker.waiting.clear()
        await goes_on()
    except DiedError:
        died = True
    assert died, f"{point} was never reached"
    crash_points.arm(None)

    for _ in range(3):
        time.later += timedelta(hours=1)
        await parts.folder.sweep_dirty(10)
        await parts.forgetter.sweep(10)
        await parts.folder.sweep_unannounced(10)
        record = await parts.records.get(SLOT)
        assert record is not None
        left = [one for one in memories_of([record]) if one.text == "Lives in Oslo."]
        for one in left:
            await parts.forgetter.forget(one)
        await delivered(step, broker)
    await woken(parts, time, step, broker)

    assert (await embedding(parts)).state is EmbeddingState.EMBEDDED
    assert await texts(parts) == {"Lives in Rome."}
    assert await parts.database["vectors"].count_documents({}) == 1


def configured(endpoint: ScriptedEndpoint, **changes: object) -> BatchedEmbedder:
    given: dict[str, object] = {
        "provider": "openai_compatible",
        "model": "vectors-1",
        "base_url": endpoint.url,
        "dimension": 3,
    }
    return embedder_from(EmbeddingSettings.model_validate(given | changes))


async def test_the_wrong_dimension_is_found_at_the_start(
    parts: Installation, endpoint: ScriptedEndpoint
) -> None:
    endpoint.always(sends({"data": [{"index": 0, "embedding": [1, 0]}]}))
    embedder = configured(endpoint)

    with pytest.raises(ConfigurationError, match="AFTERTURN_EMBEDDING__DIMENSION"):
        await check_embedder(embedder, parts.active_model)

    assert await parts.active_model.active() is None
    await embedder.aclose()


async def test_a_service_that_is_down_at_the_start_keeps_nothing_from_starting(
    parts: Installation, endpoint: ScriptedEndpoint
) -> None:
    endpoint.always(status(503))
    embedder = configured(endpoint)
    await check_embedder(embedder, parts.active_model)
    await embedder.aclose()

    assert endpoint.count == 1


async def test_over_the_wire_one_refused_text_costs_its_neighbours_nothing(
    parts: Installation, broker: Broker, endpoint: ScriptedEndpoint
) -> None:
    def answer(request: Json) -> Reply:
        if "Lives in Oslo." in request["input"]:
            return status(400)
        rows = [{"index": n, "embedding": [1, n, 0]} for n, _ in enumerate(request["input"])]
        return sends({"data": rows})

    endpoint.respond_with(answer)
    people = [assertion("Walks.", on=n, subject=f"p{n}") for n in range(10, 15)]
    embedder = configured(endpoint)
    step = embedding_step(parts, embedder)
    await said(parts, OSLO, *people)
    await asyncio.gather(*(step(message) for message in broker.waiting))
    states = [(await embedding(parts, one.slot)).state for one in people]

    assert states == [EmbeddingState.EMBEDDED] * 5
    assert (await embedding(parts)).state is EmbeddingState.REFUSED
    assert max(len(one.json["input"]) for one in endpoint.requests) > 1, "they go together"
    await embedder.aclose()
