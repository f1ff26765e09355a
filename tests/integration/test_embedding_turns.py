"""Turns of projects that want it are embedded: none is lost, none of another project is asked for.

`short_term.embed_on_write`, from the setting to what a search by meaning finds.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from pymongo.errors import AutoReconnect

from consumers.embedding_wiring import embedding_step, filler
from consumers.operating import letter_desk
from consumers.recording_wiring import recorder
from consumers.wiring import Installation, wire
from pipeline.auditing import Audit
from pipeline.embedding.ledger import texts_of
from pipeline.embedding.reembedding import Reembedder, Report
from pipeline.extracting.recalled import CLOSING, OPENING
from pipeline.ports.letters import LetterQuery
from pipeline.reading.index import Mode
from pipeline.reading.searching import Searcher
from pipeline.reading.spoken import LONGEST
from pipeline.settings import EmbeddingSettings, Settings
from pipeline.stores import embeds_turns
from pipeline.stores.audit_reads import MongoAuditReads
from pipeline.stores.mongo import Database
from pipeline.stores.record_reads import MongoRecordReads
from pipeline.stores.turn_reads import MongoTurnReads
from pipeline.stores.vectors import MongoReembeddings
from schemas.embedding import EmbeddingState
from schemas.identity import ReadScope
from schemas.project import ProjectSettings
from schemas.turn import Turn
from tests.embedding import HashedEmbedder
from tests.embedding_world import Broker, FailingEmbedder, LaterTime, delivered, down, pending

SETTINGS = Settings(embedding=EmbeddingSettings(provider="local"))
WANTS, WANTS_NOT = "wants", "wants not"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MODEL = HashedEmbedder().model


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def time(db: Database) -> LaterTime:
    return LaterTime(db)


@pytest.fixture
async def parts(
    db: Database, broker: Broker, time: LaterTime, monkeypatch: pytest.MonkeyPatch
) -> Installation:
    monkeypatch.setattr(embeds_turns, "FRESH_SECONDS", 0.0)
    made = await wire(SETTINGS, db, broker, server_time=time)
    await made.active_model.claim(MODEL)
    await sets(made, is_on=True)
    return made


async def sets(parts: Installation, *, is_on: bool) -> None:
    settings = ProjectSettings.model_validate({"short_term": {"embed_on_write": is_on}})
    state = await parts.projects.state(WANTS)
    number = await parts.projects.store(WANTS, settings, after=state.stored_revision, now=NOW)
    assert number is not None
    assert await parts.projects.apply(WANTS, number, now=NOW)
    await parts.embeds_turns.that_embed_turns()


async def says(
    parts: Installation, *contents: str, project: str = WANTS, session: str = "s"
) -> list[Turn]:
    whose = {"project_id": project, "user_id": "mara", "session_id": session}
    async with recorder(parts) as recording:
        return [
            await recording.record(whose, {"role": "user", "content": content})
            for content in contents
        ]


async def embedded(parts: Installation, turn: Turn) -> set[str]:
    """Return which texts of a turn have their vector, and that there is no other."""
    known = texts_of(turn)
    found = (await parts.vectors.of_owners(MODEL, [turn.turn_id])).get(turn.turn_id, {})
    assert found.keys() <= known.keys(), "a vector of no text"
    return {known[one] for one in found}


async def state_of(parts: Installation, turn: Turn) -> EmbeddingState | None:
    found = await parts.database["turns"].find_one({"_id": turn.turn_id}, {"embedding": 1})
    assert found is not None
    return EmbeddingState(found["embedding"]["state"]) if "embedding" in found else None


async def findings(parts: Installation) -> list[tuple[str, str]]:
    reads = MongoAuditReads(
        parts.database,
        sessions=parts.sessions,
        turns=parts.turns,
        extractions=parts.extractions,
        assertions=parts.assertions,
        records=parts.records,
    )
    report = await Audit(reads, parts.ids, pause_seconds=0).run(lambda _sessions, _slots: None)
    return [(one.law, one.finding) for one in report.violations]


async def test_a_turn_is_found_by_its_meaning_where_its_project_wants_it(
    parts: Installation, broker: Broker
) -> None:
    embedder = HashedEmbedder()
    (oslo,) = await says(parts, "The ferry leaves from Oslo.")
    (other,) = await says(parts, "The ferry leaves from Rome.", project=WANTS_NOT)
    before = await state_of(parts, oslo)
    await delivered(embedding_step(parts, embedder), broker)
    stored = await parts.database["vectors"].find_one({"owner": oslo.turn_id})

    assert (before, await state_of(parts, oslo)) == ("pending", "embedded")
    assert await state_of(parts, other) is None
    assert embedder.asked == [("The ferry leaves from Oslo.",)], "the other project pays nothing"
    assert stored is not None
    assert (stored["scope"]["project_id"], stored["scope"]["owner"]) == (WANTS, "mara")
    assert (stored["kind"], stored["session_id"]) == ("turn", "s")
    searcher = Searcher(
        records=MongoRecordReads(parts.database),
        turns=MongoTurnReads(parts.database),
        server_time=parts.server_time,
        command_timeout=parts.settings.mongo.timeout,
        embedder=embedder,
        vectors=parts.vectors,
    )
    query = await searcher.understood("ferry", {Mode.SEMANTIC})
    scope = ReadScope(project_id=WANTS, session_id="s")
    found = await searcher.turns(scope, query, mode=Mode.SEMANTIC, limit=5)
    assert found.effective_mode is Mode.SEMANTIC
    assert [hit.item.turn_id for hit in found.hits] == [oslo.turn_id]
    assert await findings(parts) == []


async def test_a_lost_event_loses_no_vector(
    parts: Installation, broker: Broker, time: LaterTime
) -> None:
    broker.is_up = False
    (oslo,) = await says(parts, "Oslo.")
    broker.is_up = True
    assert not broker.waiting
    time.later += timedelta(minutes=3)

    assert await pending(parts).sweep(10) == 1
    await delivered(embedding_step(parts, HashedEmbedder()), broker)
    assert await embedded(parts, oslo) == {"Oslo."}


async def test_delivering_it_again_asks_for_nothing(parts: Installation, broker: Broker) -> None:
    embedder = HashedEmbedder()
    step = embedding_step(parts, embedder)
    await says(parts, "Oslo.")
    message = broker.waiting[0]
    await delivered(step, broker)
    await step(message)

    assert len(embedder.asked) == 1


async def test_what_memory_put_into_a_turn_is_no_part_of_what_it_means(
    parts: Installation, broker: Broker
) -> None:
    recalled = f'{OPENING} note="x">\nMara lives in Rome.\n{CLOSING}'
    asked, bare = await says(parts, f"{recalled}\nWhere is the ferry?", recalled)
    (book,) = await says(parts, "word " * LONGEST)
    embedder = HashedEmbedder()
    await delivered(embedding_step(parts, embedder), broker)

    assert await embedded(parts, asked) == {"Where is the ferry?"}
    assert await embedded(parts, bare) == set()
    assert await state_of(parts, bare) is EmbeddingState.EMBEDDED
    assert await state_of(parts, book) is EmbeddingState.EMBEDDED
    assert max(len(text) for asked in embedder.asked for text in asked) == LONGEST


async def test_what_is_refused_is_an_outcome_and_what_is_down_is_tried_again(
    parts: Installation, broker: Broker
) -> None:
    embedder = FailingEmbedder(down(), refusing=["Rome."])
    oslo, rome = await says(parts, "Oslo.", "Rome.")
    await delivered(embedding_step(parts, embedder), broker)

    assert await embedded(parts, oslo) == {"Oslo."}
    assert await state_of(parts, rome) is EmbeddingState.REFUSED
    assert "afterturn.embedding.retry.30s.v1" in broker.topics
    assert await parts.letters.count() == 0
    assert await findings(parts) == []


async def test_a_letter_of_a_turn_is_sent_back_and_resolved(
    parts: Installation, broker: Broker
) -> None:
    step = embedding_step(parts, FailingEmbedder(*[KeyError("a bug") for _ in range(3)]))
    (oslo,) = await says(parts, "Oslo.")
    message = broker.waiting[0]
    await delivered(step, broker)
    (letter,) = await parts.letters.matching(LetterQuery())
    await letter_desk(parts, by="an operator").redrive(letter)
    await delivered(step, broker)
    (after,) = await parts.letters.matching(LetterQuery())

    assert (letter.turn_id, letter.session, letter.record_id) == (oslo.turn_id, oslo.session, None)
    assert letter.project_id == WANTS
    assert (letter.state, after.state) == ("dead", "resolved")
    assert await embedded(parts, oslo) == {"Oslo."}
    assert step.subject(message) == f"turn.recorded:{oslo.session}:{oslo.seq}"


async def test_a_turn_that_kills_its_process_is_set_aside_and_no_other_of_its_session(
    parts: Installation, broker: Broker
) -> None:
    step = embedding_step(parts, HashedEmbedder())
    oslo, rome = await says(parts, "Oslo.", "Rome.")
    killing = broker.waiting.popleft()

    assert await step.bury(killing)
    await delivered(step, broker)
    assert await state_of(parts, oslo) is EmbeddingState.DEAD
    assert await embedded(parts, rome) == {"Rome."}
    assert await parts.letters.count() == 1


async def test_a_turn_that_goes_while_it_is_embedded_leaves_no_vector(
    parts: Installation, broker: Broker
) -> None:

    (oslo,) = await says(parts, "Oslo.")
    put = parts.vectors.put

    async def put_too_late(vectors: Sequence[object]) -> None:
        await parts.database["turns"].delete_one({"_id": oslo.turn_id})
        await parts.vectors.delete_of([oslo.turn_id])
        await put(vectors)  # pyright: ignore[reportArgumentType] (they are what it is given)

    parts.vectors.put = put_too_late
    await delivered(embedding_step(parts, HashedEmbedder()), broker)

    assert await parts.database["vectors"].count_documents({}) == 0
    assert await findings(parts) == []


async def test_a_project_that_changes_its_mind_has_its_marks_taken_off(
    parts: Installation, broker: Broker, time: LaterTime
) -> None:
    broker.is_up = False
    (oslo,) = await says(parts, "Oslo.")
    broker.is_up = True
    await sets(parts, is_on=False)
    time.later += timedelta(hours=1)
    assert await pending(parts).sweep(10) == 0

    assert await state_of(parts, oslo) is None
    assert not broker.waiting


async def test_reembed_has_turns_too_and_those_from_before_the_setting(
    parts: Installation, broker: Broker
) -> None:
    await sets(parts, is_on=False)
    (early,) = await says(parts, "Early.")
    await sets(parts, is_on=True)
    (late,) = await says(parts, "Late.")
    (others,) = await says(parts, "Others.", project=WANTS_NOT)
    broker.waiting.clear()
    new = HashedEmbedder(model="hashed:words:32", dimension=32)
    work = Reembedder(
        ledger=parts.embeddings,
        vectors=parts.vectors,
        filler=filler(parts, new),
        cleaner=parts.cleaner,
        active=parts.active_model,
        reembeddings=MongoReembeddings(parts.database),
        page=1,
        late=timedelta(0),
    )

    def nobody(report: Report) -> None:
        del report

    await work.run(nobody)
    ids = [early.turn_id, late.turn_id, others.turn_id]
    found = await parts.vectors.of_owners(new.model, ids)
    assert found.keys() == {early.turn_id, late.turn_id}
    assert await state_of(parts, early) is EmbeddingState.EMBEDDED
    assert len(new.asked) == 2
    assert await findings(parts) == []


async def test_recording_goes_on_where_nobody_knows_what_projects_want(
    parts: Installation, broker: Broker, time: LaterTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unreadable:
        def find(self, *_: object) -> object:
            raise AutoReconnect

    fresh = await wire(SETTINGS, parts.database, broker, server_time=time)
    monkeypatch.setattr(fresh.embeds_turns, "_revisions", Unreadable())
    (unknown,) = await says(fresh, "Oslo.", project=WANTS_NOT)

    assert await state_of(parts, unknown) is EmbeddingState.PENDING, "rather too many than lost"
    time.later += timedelta(hours=1)
    broker.waiting.clear()
    await pending(parts).sweep(10)
    assert await state_of(parts, unknown) is None


async def test_the_audit_finds_a_turn_without_its_vector_and_a_vector_without_its_turn(
    parts: Installation, broker: Broker
) -> None:
    oslo, rome = await says(parts, "Oslo.", "Rome.")
    await delivered(embedding_step(parts, HashedEmbedder()), broker)
    assert await findings(parts) == []
    await parts.vectors.delete_of([oslo.turn_id])
    assert await findings(parts) == [("I9", "texts without a vector, and not refused: 1")]
    await sets(parts, is_on=False)
    assert await findings(parts) == [], "nobody wants it any more"

    await parts.database["turns"].delete_one({"_id": rome.turn_id})
    assert ("I8", "vectors of what is gone: 1") in await findings(parts)
