"""Searching by MongoDB's own search, behind a server that is scripted; all else is real."""

from typing import Any

import pytest

from consumers.reading_wiring import searcher
from consumers.wiring import wire
from pipeline.embedding.ports import content_hash
from pipeline.errors import ConfigurationError
from pipeline.reading.filters import parse
from pipeline.reading.index import Mode
from pipeline.reading.native import SearchIndexError
from pipeline.reading.search_pipelines import TEXT_INDEX
from pipeline.reading.wanted import Wanted
from pipeline.settings import SearchSettings, Settings
from pipeline.stores.mongo import Database
from pipeline.stores.search_server import BUILDING, MISSING, MongoSearchServer, reason_of
from tests.embedding import HashedEmbedder
from tests.integration.serving import Silent
from tests.searching_world import World


class Scripted:
    """Finds what it is told, of each collection; lacks the indexes it is told."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.lacking: dict[str, str] = {}
        self.asked: list[tuple[str, list[Any]]] = []

    async def found(self, collection: str, pipeline: list[Any]) -> list[Any]:
        self.asked.append((collection, pipeline))
        return self.rows.get(collection, [])

    async def lacks(self, collection: str, name: str) -> str | None:
        return self.lacking.get(f"{collection}.{name}")


@pytest.fixture
def server() -> Scripted:
    return Scripted()


@pytest.fixture
async def world(db: Database, server: Scripted) -> World:
    parts = await wire(Settings(), db, Silent())
    return World(parts, embedder=HashedEmbedder(), server=server)


async def test_what_the_server_finds_is_confirmed_by_the_last_query(
    world: World, server: Scripted
) -> None:
    tea = await world.save("Likes tea.")
    others = await world.save("Likes tea as well.", user="noor")
    server.rows = {
        "records": [
            {"_id": others.record.record_id, "score": 3.0},
            {"_id": tea.record.record_id, "score": 2.0},
            {"_id": "rec_gone", "score": 1.0},
        ],
        "vectors": [
            {
                "owner": others.record.record_id,
                "content_hash": content_hash(others.text),
                "score": 1,
            },
            {"owner": tea.record.record_id, "content_hash": content_hash(tea.text), "score": 0.75},
        ],
    }
    by_words = await world.search("tea", Mode.TEXT)
    by_meaning = await world.search("tea", Mode.SEMANTIC)
    by_both = await world.search("tea", Mode.HYBRID)

    assert [hit.item.text for hit in by_words.hits] == ["Likes tea."]
    assert [(hit.item.text, hit.score) for hit in by_meaning.hits] == [("Likes tea.", 0.5)]
    assert [hit.item.text for hit in by_both.hits] == ["Likes tea."]
    modes = [by_words.effective_mode, by_meaning.effective_mode, by_both.effective_mode]
    assert modes == [Mode.TEXT, Mode.SEMANTIC, Mode.HYBRID]


async def test_a_filter_goes_to_the_server_as_the_ids_that_pass(
    world: World, server: Scripted
) -> None:
    tea = await world.save("Likes tea.", metadata={"tier": "gold"})
    milk = await world.save("Likes milk.", metadata={"tier": "tin"})
    server.rows = {
        "records": [{"_id": each.record.record_id, "score": 1.0} for each in (milk, tea)]
    }
    wanted = Wanted(filter=parse({"metadata.tier": "gold"}, None))
    found = await world.search("likes", Mode.TEXT, wanted=wanted)

    assert [hit.item.text for hit in found.hits] == ["Likes tea."]
    ((_, pipeline),) = server.asked
    assert {"in": {"path": "_id", "value": [tea.record.record_id]}} in pipeline[0]["$search"][
        "compound"
    ]["filter"]


async def test_an_index_that_is_missing_or_built_is_left_out_and_said(
    world: World, server: Scripted
) -> None:
    tea = await world.save("Likes tea.")
    server.rows = {"records": [{"_id": tea.record.record_id, "score": 1.0}]}
    server.lacking = {"vectors.afterturn_vectors_64": BUILDING}
    by_words = await world.search("tea", Mode.HYBRID)
    assert (by_words.effective_mode, by_words.error) == (Mode.TEXT, BUILDING)
    assert [hit.item.text for hit in by_words.hits] == ["Likes tea."]
    server.lacking |= {f"records.{TEXT_INDEX}": MISSING}

    with pytest.raises(SearchIndexError, match=BUILDING):
        await world.search("tea", Mode.HYBRID)


async def test_of_a_record_with_several_contents_the_one_with_the_words_is_meant(
    world: World, server: Scripted
) -> None:
    first = await world.save("Likes tea.", label="drink")
    await world.save("Likes milk.", label="drink", upsert=False)
    server.rows = {"records": [{"_id": first.record.record_id, "score": 1.0}]}

    assert [hit.item.text for hit in (await world.search("milk")).hits] == ["Likes milk."]
    assert (await world.search(" ")).hits == []


async def test_a_server_without_search_is_told_at_the_start(db: Database) -> None:
    settings = Settings(search=SearchSettings(backend="mongodb"))
    parts = await wire(settings, db, Silent())

    assert await MongoSearchServer(db).absence() is not None
    with pytest.raises(ConfigurationError, match="AFTERTURN_SEARCH__BACKEND=plain"):
        async with searcher(parts):
            pass


def test_what_a_server_says_of_an_index_is_understood() -> None:
    listed = {
        "id": "6524096020da840844a4c4a7",
        "name": "afterturn_text",
        "status": "BUILDING",
        "queryable": False,
        "latestDefinition": {"mappings": {"dynamic": False}},
    }

    assert reason_of(None) == MISSING
    assert reason_of(listed) == BUILDING
    assert reason_of(listed | {"status": "READY", "queryable": True}) is None
    assert reason_of(listed | {"status": "STALE", "queryable": True}) is None
