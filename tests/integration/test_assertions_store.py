"""One contract, two stores of assertions: the twin in memory and MongoDB."""

import asyncio
from typing import Any

import pytest
from pymongo.errors import BulkWriteError

from pipeline.ports.records import Assertions
from pipeline.stores.assertions import MongoAssertions, duplicates
from pipeline.stores.in_memory import MemoryAssertions
from pipeline.stores.mongo import Database
from schemas.memory import EpisodicContent, Kind, ProceduralContent, TaxonomicContent
from tests.assertion_builder import assertion, day

OSLO = assertion("Lives in Oslo", on=1)
ROME = assertion("Lives in Rome", on=2, extraction_id=None, evidence=None)


@pytest.fixture(params=["memory", "mongo"])
def assertions(request: pytest.FixtureRequest) -> Assertions:
    """An empty store."""
    if request.param == "memory":
        return MemoryAssertions()
    return MongoAssertions(request.getfixturevalue("db"))


async def test_assertions_come_back_as_they_were_written(assertions: Assertions) -> None:
    """Each kind, with words that look like operators, without evidence or extraction."""
    said = [
        OSLO,
        ROME,
        assertion(
            EpisodicContent(title="$t", summary="$$NOW", outcome=None),
            kind=Kind.EPISODIC,
            subject="$x.y",
            valid_from=day(3),
            valid_until=day(4),
            is_time_assumed=True,
        ),
        assertion(
            ProceduralContent(name="$n", description="d", steps=("$a", "b\x00")),
            kind=Kind.PROCEDURAL,
        ),
        assertion(
            TaxonomicContent(domain="d", term="t", definition="x", related_terms=("$y",)),
            kind=Kind.TAXONOMIC,
        ),
    ]
    await assertions.write(said)
    found = [one for each in said for one in await assertions.of_slot(each.slot)]

    assert {one.assertion_id: one for one in found} == {one.assertion_id: one for one in said}


async def test_what_is_written_twice_stays_as_it_was(assertions: Assertions) -> None:
    """An assertion never changes."""
    await assertions.write([OSLO])
    await assertions.write([OSLO.model_copy(update={"confidence": 0.1}), ROME])
    await assertions.write([])

    found = await assertions.of_slot(OSLO.slot)

    assert sorted(found, key=lambda one: one.position.key()) == [OSLO, ROME]


async def test_a_run_has_its_own_assertions(assertions: Assertions) -> None:
    """And what belongs to no run is in none."""
    other = assertion("Lives in Oslo", on=3, extraction_id="other:0")
    await assertions.write([OSLO, ROME, other])

    assert await assertions.of_extraction("snapshot-1:0") == [OSLO]
    assert await assertions.of_extraction("other:0") == [other]
    assert await assertions.of_extraction("nobody:0") == []


async def test_a_slot_has_its_own_assertions(assertions: Assertions) -> None:
    """Another subject's are not among them."""
    await assertions.write([OSLO, assertion("Lives in Oslo", item=1, subject="Ana")])

    assert await assertions.of_slot(OSLO.slot) == [OSLO]
    assert await assertions.of_slot("rec_none") == []


async def test_what_is_removed_is_gone(assertions: Assertions) -> None:
    """However often, and may be written anew."""
    await assertions.write([OSLO, ROME])
    for _ in range(2):
        await assertions.remove([OSLO.assertion_id])
    await assertions.remove([])

    assert await assertions.of_slot(OSLO.slot) == [ROME]

    await assertions.write([OSLO])

    assert len(await assertions.of_slot(OSLO.slot)) == 2


async def test_racing_writers_of_one_assertion_write_it_once(assertions: Assertions) -> None:
    """None of them fails, and their other assertions are written."""
    own = [assertion(f"Home {number}", on=number, item=7) for number in range(10)]
    await asyncio.gather(*(assertions.write([OSLO, one]) for one in own))

    assert len(await assertions.of_slot(OSLO.slot)) == 11


async def test_what_belongs_to_no_run_is_not_in_its_index(db: Database) -> None:
    """The field is left out, so that the sparse index is sparse."""
    await MongoAssertions(db).write([ROME])
    document = await db["assertions"].find_one({"_id": ROME.assertion_id})

    assert document is not None
    assert "extraction_id" not in document


LOST = {"index": 3, "code": 11000}


@pytest.mark.parametrize(
    "details",
    [
        {"writeErrors": [LOST, {"index": 4, "code": 121}], "writeConcernErrors": []},
        {"writeErrors": [LOST], "writeConcernErrors": [{"code": 64}]},
        {"writeErrors": [], "writeConcernErrors": [{"code": 64}]},
        {},
    ],
)
def test_no_failure_passes_for_a_lost_race(details: dict[str, Any]) -> None:
    """Only duplicate keys are, and only where nothing else went wrong."""
    with pytest.raises(BulkWriteError):
        duplicates(BulkWriteError(details))


def test_a_lost_race_names_its_writes() -> None:
    """By their places in the bulk."""
    assert duplicates(BulkWriteError({"writeErrors": [LOST], "writeConcernErrors": []})) == [3]
