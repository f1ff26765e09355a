"""What an agent saves itself goes through the fold, and keeps its id however it is corrected."""

import asyncio
from itertools import count
from typing import Any

import pytest
from pydantic import JsonValue
from pymongo.errors import DocumentTooLarge

from pipeline.clock import SystemClock
from pipeline.errors import UnknownMemoryError
from pipeline.folding.refolding import Folder
from pipeline.reading.memories import Memory, memories_of
from pipeline.saving.direct import Author, Draft, Saver
from pipeline.stores.assertions import MongoAssertions
from pipeline.stores.indexes import apply_indexes
from pipeline.stores.mongo import Database
from pipeline.stores.records import MongoRecords
from schemas.identity import ReadScope, Scope, Visibility
from schemas.memory import EpisodicContent, Kind, ProceduralContent, SemanticContent
from schemas.record import RunState
from tests.assertion_builder import IDS, assertion
from tests.fold_world import Broker

MARA = Scope(project_id="p", owner="mara", visibility=Visibility.PRIVATE)
AGENT = Author(agent_id="a1")
MARAS = ReadScope(project_id="p", user_id="mara")


class StandingTime:
    """A server's time that stands still, so that only what we do orders what was saved."""

    async def now_ms(self) -> int:
        return 1_800_000_000_000


class World:
    """A saver over a real database."""

    def __init__(self, db: Database) -> None:
        self.records = MongoRecords(db)
        self.assertions = MongoAssertions(db)
        self.folder = Folder(self.assertions, self.records, Broker(), SystemClock())
        names = count()
        self.saver = Saver(
            folder=self.folder,
            records=self.records,
            ids=IDS,
            server_time=StandingTime(),
            new_name=lambda: f"save {next(names)}",
        )

    async def save(self, text: str, *, upsert: bool = True, **fields: Any) -> Memory:
        return await self.saver.save(fact(text, **fields), AGENT, upsert=upsert)

    async def current(self) -> list[str]:
        """Return what is current of hers, as it would be read."""
        read = [record async for record in self.records.of_scope(MARAS)]
        return sorted(memory.text for memory in memories_of(read))


def fact(text: str, *, scope: Scope = MARA, metadata: dict[str, JsonValue] | None = None) -> Draft:
    content = SemanticContent(attribute="seat", label="seat", text=text)
    return Draft(scope=scope, kind=Kind.SEMANTIC, content=content, metadata=metadata)


@pytest.fixture
async def world(db: Database) -> World:
    await apply_indexes(db)
    return World(db)


async def test_the_second_save_of_a_label_replaces_the_first_and_keeps_its_id(
    world: World,
) -> None:
    first = await world.save("window")
    second = await world.save("aisle", metadata={"tier": "gold"})

    assert second.memory_id == first.memory_id
    assert (second.text, second.run.metadata) == ("aisle", {"tier": "gold"})
    assert await world.current() == ["aisle"]
    assert [run.state for run in second.record.runs] == [RunState.REPLACED, RunState.CURRENT]


async def test_without_upsert_both_stand(world: World) -> None:
    first = await world.save("window", upsert=False)
    second = await world.save("aisle", upsert=False)

    assert first.memory_id != second.memory_id
    assert await world.current() == ["aisle", "window"]


async def test_what_a_full_record_could_not_take_is_not_kept_for_later(world: World) -> None:
    for number in range(3):
        await world.save(f"{number}", upsert=False, metadata={"a": "x" * 4_300_000})
    held = await world.current()

    with pytest.raises(DocumentTooLarge):
        await world.save("too much", upsert=False, metadata={"a": "x" * 4_300_000})

    (record,) = [one async for one in world.records.of_scope(MARAS)]
    said = await world.assertions.of_slot(record.record_id)
    assert (await world.current(), len(said)) == (held, 3)
    assert await world.folder.fold_slot(record.record_id) is None


async def test_a_save_replaces_what_was_extracted_of_the_same_attribute(world: World) -> None:
    said = assertion(
        SemanticContent(attribute="Seat", label="w", text="The user sits at the window."),
        scope=MARA,
    )
    slot = IDS.slot(MARA, Kind.SEMANTIC, said.key)
    await world.folder.assert_all([said.model_copy(update={"slot": slot})])

    saved = await world.save("aisle")

    assert saved.memory_id == said.assertion_id
    assert await world.current() == ["aisle"]


async def test_a_correction_keeps_the_id_and_the_history(world: World) -> None:
    saved = await world.save("window")
    found = await world.saver.find(saved.memory_id, MARAS)
    await world.saver.correct(found, fact("aisle"), AGENT)
    read = await world.saver.find(saved.memory_id, MARAS)

    assert read.text == "aisle"
    assert [run.state for run in read.record.runs] == [RunState.WRONG, RunState.CURRENT]


async def test_a_correction_of_the_reach_moves_a_memory_whole(world: World) -> None:
    saved = await world.save("window")
    shared = fact("window", scope=MARA.model_copy(update={"visibility": Visibility.ORG}))
    await world.saver.correct(saved, shared, AGENT)
    private = MARAS.model_copy(update={"visibility": Visibility.PRIVATE})
    org = MARAS.model_copy(update={"visibility": Visibility.ORG})

    with pytest.raises(UnknownMemoryError):
        await world.saver.find(saved.memory_id, private)
    assert (await world.saver.find(saved.memory_id, org)).text == "window"
    assert (await world.saver.find(saved.memory_id, MARAS)).record.scope.visibility == "org"
    assert await world.current() == ["window"]


async def test_what_was_ended_is_read_only_by_who_asks_for_it(world: World) -> None:
    saved = await world.save("window")
    await world.saver.end(saved, AGENT)

    with pytest.raises(UnknownMemoryError):
        await world.saver.find(saved.memory_id, MARAS)
    ended = await world.saver.find(saved.memory_id, MARAS, (RunState.ENDED,))
    assert ended.text == "window"


async def test_two_episodes_of_one_title_are_two(world: World) -> None:
    told = EpisodicContent(title="Trip", summary="We went.")
    draft = Draft(scope=MARA, kind=Kind.EPISODIC, content=told)

    one = await world.saver.save(draft, AGENT, upsert=False)
    other = await world.saver.save(draft, AGENT, upsert=False)

    assert one.memory_id != other.memory_id
    assert len(await world.current()) == 2
    again = EpisodicContent(title="Journey", summary="We went by train.")
    corrected = await world.saver.correct(
        one, Draft(scope=MARA, kind=Kind.EPISODIC, content=again), AGENT
    )
    assert corrected.record.record_id == one.record.record_id


async def test_a_procedure_is_read_as_it_was_saved(world: World) -> None:
    content = ProceduralContent(name="refund", description="Refunds.", steps=())
    draft = Draft(
        scope=MARA, kind=Kind.PROCEDURAL, content=content, fields={"content": "Ask first."}
    )

    assert (await world.saver.save(draft, AGENT, upsert=False)).text == "Ask first."


async def test_others_do_not_find_it(world: World) -> None:
    saved = await world.save("window")

    for scope in (ReadScope(project_id="q"), ReadScope(project_id="p", user_id="bo")):
        with pytest.raises(UnknownMemoryError):
            await world.saver.find(saved.memory_id, scope)


async def test_of_racing_saves_of_a_label_one_is_left(world: World) -> None:
    await asyncio.gather(*(world.save(f"seat {number}") for number in range(8)))

    assert len(await world.current()) == 1
