"""The fold's loop on MongoDB: many processes at one slot, and none gets lost."""

import asyncio

from pipeline.clock import SystemClock
from pipeline.folding.refolding import Folder
from pipeline.folding.slots import slots_of
from pipeline.stores.assertions import MongoAssertions
from pipeline.stores.mongo import Database
from pipeline.stores.records import MongoRecords
from tests.assertion_builder import assertion
from tests.fold_world import Broker, runs_of

SAID = [
    assertion(
        f"Home {number % 4}",
        on=number,
        relation="replaces" if number % 3 else "adds",
        extraction_id=f"run-{number}:0",
    )
    for number in range(12)
]
SLOT = SAID[0].slot


async def test_many_writers_of_one_slot_make_the_fold_of_all(db: Database) -> None:
    """Some assert, some remove, some sweep, all at once."""
    assertions, records, broker = MongoAssertions(db), MongoRecords(db), Broker()

    def folder() -> Folder:
        return Folder(assertions, records, broker, SystemClock())

    async def announced(number: int) -> None:
        process = folder()
        await process.announce(await process.assert_all([SAID[number]]))

    await asyncio.gather(*(announced(number) for number in range(8)))
    await asyncio.gather(
        *(announced(number) for number in range(8, 12)),
        *(folder().remove_run(f"run-{number}:0") for number in range(4)),
        *(folder().sweep_dirty(10) for _ in range(2)),
    )
    record = await records.get(SLOT)

    assert record is not None
    assert {SLOT: record.runs} == runs_of(SAID[4:])
    assert await records.dirty(10) == []

    await folder().sweep_unannounced(10)

    assert await records.unannounced(10) == []


async def test_what_a_dead_writer_left_is_swept(db: Database) -> None:
    """Marked and written, but not folded."""
    assertions, records, broker = MongoAssertions(db), MongoRecords(db), Broker()
    await records.mark_dirty(slots_of(SAID[:1]))
    await assertions.write(SAID[:1])
    folder = Folder(assertions, records, broker, SystemClock())

    assert await folder.sweep_dirty(10) == 1
    assert await folder.sweep_unannounced(10) == 1

    record = await records.get(SLOT)

    assert record is not None
    assert {SLOT: record.runs} == runs_of(SAID[:1])
    assert [event.data.rev for event in broker.events] == [record.rev]
