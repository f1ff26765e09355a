"""One contract, two stores of records: the twin in memory and MongoDB."""

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo.errors import DocumentTooLarge

from pipeline.folding.folder import fold
from pipeline.folding.slots import slots_of
from pipeline.ports.records import Records, SlotKey
from pipeline.stores.in_memory import MemoryRecords
from pipeline.stores.mongo import Database
from pipeline.stores.records import RUNS_BYTES, MongoRecords
from schemas.assertion import Assertion
from schemas.embedding import Embedding, EmbeddingState
from schemas.identity import ReadScope, Scope, Visibility
from schemas.memory import EpisodicContent, Kind, ProceduralContent, TaxonomicContent
from schemas.record import Record
from schemas.tombstone import Bar, BarredTurns
from tests.assertion_builder import assertion, day

NOTHING = timedelta(0)
LONG = timedelta(hours=1)
SAID = assertion("Lives in Oslo", on=1)


def _epoch_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


@pytest.fixture(params=["memory", "mongo"])
def stores(request: pytest.FixtureRequest) -> dict[timedelta, Records]:
    """Two stores by their grace, of which a test uses one."""
    if request.param == "memory":
        return {grace: MemoryRecords(_epoch_ms, grace=grace) for grace in (NOTHING, LONG)}
    db: Database = request.getfixturevalue("db")
    return {grace: MongoRecords(db, grace=grace) for grace in (NOTHING, LONG)}


@pytest.fixture
def records(stores: dict[timedelta, Records]) -> Records:
    """A store whose marks are never too old."""
    return stores[LONG]


async def marked(records: Records, *said: Assertion) -> tuple[SlotKey, Record]:
    """Mark the slot of assertions; return it and its record."""
    (slot,) = slots_of(said)
    await records.mark_dirty([slot])
    record = await records.get(slot.slot)
    assert record is not None
    return slot, record


async def stored(
    records: Records, record: Record, said: Sequence[Assertion], **how: Any
) -> Record | None:
    """Store the fold of assertions; return it if nobody was faster."""
    runs = fold(slots_of(said)[0], said)
    after = record.model_copy(update={"runs": runs, "rev": record.rev + 1})
    how = {"changed": True, "ends_mark": True} | how
    return after if await records.store(after, read_rev=record.rev, **how) else None


async def test_a_slot_without_a_record_has_none(records: Records) -> None:
    """Reading makes no shell."""
    assert await records.get("rec_none") is None
    assert await records.dirty(10) == []


async def test_a_mark_makes_a_shell_and_raises_its_rev(records: Records) -> None:
    """Each mark is a new revision of the same record."""
    slot, record = await marked(records, SAID)

    assert record == Record(
        record_id=slot.slot,
        scope=slot.scope,
        kind=Kind.SEMANTIC,
        key="user/home",
        subject="user",
        runs=(),
        rev=1,
    )
    assert await records.dirty(10) == [slot.slot]

    _, again = await marked(records, SAID)

    assert again == record.model_copy(update={"rev": 2})


async def test_a_fold_is_stored_as_it_was(records: Records) -> None:
    """Runs of each kind, words that look like operators, names and times come back."""
    contents = {
        Kind.EPISODIC: EpisodicContent(title="$t", summary="$$NOW", participants=("a.b", "")),
        Kind.PROCEDURAL: ProceduralContent(name="$n", description="$set", steps=("$a", "b\x00")),
        Kind.TAXONOMIC: TaxonomicContent(domain="d", term="$t", definition="$d"),
    }
    said = [
        assertion(content, kind=kind, subject="$subject", valid_from=day(3), confidence=0.25)
        for kind, content in contents.items()
    ]
    for one in [SAID, *said]:
        _, record = await marked(records, one)
        after = await stored(records, record, [one])

        assert after is not None
        assert await records.get(one.slot) == after


async def test_a_fold_of_what_is_no_longer_so_is_refused(records: Records) -> None:
    """A mark in between, or another fold, and nothing is written."""
    _, before = await marked(records, SAID)
    _, record = await marked(records, SAID)

    assert await stored(records, before, [SAID]) is None
    assert await records.get(SAID.slot) == record
    assert await stored(records, record, [SAID]) is not None
    assert await stored(records, record, [SAID]) is None


async def test_a_fold_of_no_record_is_refused(records: Records) -> None:
    """Nothing is made by it."""
    _, record = await marked(records, SAID)
    other = record.model_copy(update={"record_id": "rec_other"})

    assert await stored(records, other, [SAID]) is None
    assert await records.get("rec_other") is None


async def test_a_slot_is_clean_when_every_marker_has_folded(records: Records) -> None:
    """A fold of nobody's own ends no mark."""
    await marked(records, SAID)
    _, record = await marked(records, SAID)
    for ends_mark, is_dirty in [(False, True), (True, True), (False, True), (True, False)]:
        after = await stored(records, record, [SAID], ends_mark=ends_mark)
        assert after is not None
        record = after

        assert (await records.dirty(10) == [SAID.slot]) == is_dirty


async def test_a_new_mark_counts_from_nothing(records: Records) -> None:
    """A fold too many does not end the next writer's mark."""
    _, record = await marked(records, SAID)
    for _ in range(2):
        after = await stored(records, record, [SAID])
        assert after is not None
        record = after
    _, record = await marked(records, SAID)
    await stored(records, record, [SAID], ends_mark=False)

    assert await records.dirty(10) == [SAID.slot]


async def test_any_fold_ends_marks_of_the_dead(stores: dict[timedelta, Records]) -> None:
    """Those older than the grace."""
    records = stores[NOTHING]
    await marked(records, SAID)
    _, record = await marked(records, SAID)
    await stored(records, record, [SAID], ends_mark=False)

    assert await records.dirty(10) == []


async def test_the_oldest_marks_come_first(records: Records) -> None:
    """And no more than were asked for."""
    said = [assertion("x", subject=name) for name in ("b", "c", "a")]
    for one in said:
        await marked(records, one)
        await asyncio.sleep(0.003)

    assert await records.dirty(2) == [said[0].slot, said[1].slot]

    await marked(records, said[0])

    assert await records.dirty(1) == [said[1].slot]


async def test_several_slots_are_marked_at_once(records: Records) -> None:
    """Each once."""
    slots = slots_of([assertion("x", item=item, subject=str(item)) for item in range(5)])
    await records.mark_dirty(slots)
    await records.mark_dirty([])

    assert sorted(await records.dirty(10)) == [slot.slot for slot in slots]


async def test_what_changed_waits_to_be_announced(records: Records) -> None:
    """Until its revision is, or a later one."""
    _, record = await marked(records, SAID)
    same = await stored(records, record, [SAID], changed=False)

    assert same is not None
    assert await records.unannounced(10) == []

    changed = await stored(records, same, [SAID])

    assert changed is not None
    assert await records.unannounced(10) == [changed]

    await records.mark_announced(SAID.slot, changed.rev - 1)

    assert await records.unannounced(10) == [changed]

    await records.mark_announced(SAID.slot, changed.rev)
    await records.mark_announced(SAID.slot, changed.rev)

    assert await records.unannounced(10) == []


async def test_a_revision_that_changed_nothing_needs_no_event(records: Records) -> None:
    """Marks and idle folds after a change don't make its announcement count for less."""
    _, record = await marked(records, SAID)
    changed = await stored(records, record, [SAID])
    assert changed is not None
    _, remarked = await marked(records, SAID)
    await stored(records, remarked, [SAID], changed=False)
    await records.mark_announced(SAID.slot, changed.rev)

    assert await records.unannounced(10) == []


async def test_a_later_change_stays_unannounced(records: Records) -> None:
    """The event of an earlier revision says nothing of it."""
    _, record = await marked(records, SAID)
    first = await stored(records, record, [SAID])
    assert first is not None
    second = await stored(records, first, [SAID])
    assert second is not None
    await records.mark_announced(SAID.slot, first.rev)

    assert await records.unannounced(10) == [second]

    await records.mark_announced(SAID.slot, second.rev)

    assert await records.unannounced(10) == []


async def test_the_oldest_changes_are_announced_first(records: Records) -> None:
    """A record that changes again keeps its place."""
    said = [assertion("x", subject=name) for name in ("b", "a")]
    latest: dict[str, Record] = {}
    for one in (*said, said[0]):
        _, record = await marked(records, one)
        after = await stored(records, record, [one])
        assert after is not None
        latest[one.slot] = after
        await asyncio.sleep(0.003)

    assert await records.unannounced(10) == [latest[said[0].slot], latest[said[1].slot]]
    assert await records.unannounced(1) == [latest[said[0].slot]]


async def test_a_scope_is_read_by_equality(records: Records) -> None:
    """Each given field is one; what is not given is none."""
    scopes = [
        Scope(project_id="p", owner="ade", visibility=Visibility.PRIVATE, org_id="o"),
        Scope(project_id="p", owner="bo", visibility=Visibility.ORG),
        Scope(project_id="p", owner=None, visibility=Visibility.ORG),
        Scope(project_id="q", owner="ade", visibility=Visibility.PRIVATE),
    ]
    slots = [
        SlotKey(slot=f"rec_{number}", scope=scope, kind=Kind.SEMANTIC, key="k", subject="user")
        for number, scope in enumerate(scopes)
    ]
    await records.mark_dirty(slots)

    async def ids(**scope: Any) -> set[str]:
        named = ReadScope.model_validate(scope)
        return {record.record_id async for record in records.of_scope(named)}

    assert await ids(project_id="p") == {"rec_0", "rec_1", "rec_2"}
    assert await ids(project_id="p", user_id="ade") == {"rec_0"}
    assert await ids(project_id="p", visibility="org") == {"rec_1", "rec_2"}
    assert await ids(project_id="p", user_id="ade", visibility="org") == set()
    assert await ids(project_id="p", org_id="o") == {"rec_0"}
    assert await ids(project_id="q", user_id="bo") == set()


async def test_what_runs_rest_on_narrows_a_scope_too(records: Records) -> None:
    """Agent and session are those of any run, and both must be had where both are named."""
    said = assertion("Porto", agent_id="a1", session_id="monday")
    _, record = await marked(records, said)
    await stored(records, record, [said])

    async def ids(**scope: Any) -> list[str]:
        named = ReadScope.model_validate({"project_id": "p", **scope})
        return [record.record_id async for record in records.of_scope(named)]

    assert await ids(agent_id="a1") == await ids(session_id="monday") == [said.slot]
    assert await ids(agent_id="a1", session_id="tuesday") == await ids(agent_id="a2") == []


async def test_a_memory_is_found_by_its_id_within_its_scope_only(records: Records) -> None:
    """Whoever may not read it is told no more than of what does not exist."""
    _, record = await marked(records, SAID)
    await stored(records, record, [SAID])
    (found,) = await records.of_memory(SAID.assertion_id, ReadScope(project_id="p", user_id="ade"))
    assert found.record_id == SAID.slot
    assert await records.of_memory(SAID.assertion_id, ReadScope(project_id="q")) == []
    assert await records.of_memory("ast_0", ReadScope(project_id="p")) == []


async def test_racing_marks_of_a_new_slot_all_count(records: Records) -> None:
    """Two processes that make the same shell at once both mark it."""
    slots = slots_of([assertion("x", item=item, subject=str(item)) for item in range(3)])
    await asyncio.gather(*(records.mark_dirty(slots) for _ in range(10)))
    found = [await records.get(slot.slot) for slot in slots]

    assert [record.rev for record in found if record] == [10, 10, 10]


async def test_of_racing_folds_one_is_stored(records: Records) -> None:
    """The others read again."""
    _, record = await marked(records, SAID)
    results = await asyncio.gather(*(stored(records, record, [SAID]) for _ in range(10)))

    assert sum(result is not None for result in results) == 1


async def test_a_change_makes_the_embedding_pending(db: Database) -> None:
    """Of an older one stays who may be writing vectors of it; an idle fold leaves it alone."""
    records = MongoRecords(db)
    _, record = await marked(records, SAID)
    changed = await stored(records, record, [SAID])
    assert changed is not None
    writers = [{"name": "w", "since_ms": 1}]
    done = {"state": "embedded", "model": "m", "rev": 4, "reason": "r", "writers": writers}
    done |= {"deaths": 2, "ticket": "t", "refused": ["h"]}
    await db["records"].update_one({"_id": SAID.slot}, {"$set": {"embedding": done}})
    idle = await stored(records, changed, [SAID], changed=False)
    assert idle is not None
    kept = await db["records"].find_one({"_id": SAID.slot})
    await stored(records, idle, [SAID])
    anew = await db["records"].find_one({"_id": SAID.slot})

    assert kept is not None
    assert anew is not None
    assert kept["embedding"] == done
    since_ms = anew["embedding"].pop("since_ms")
    assert anew["embedding"].pop("due_ms") == since_ms
    assert abs(since_ms - time.time() * 1000) < 60_000
    fresh = Embedding(state=EmbeddingState.PENDING).model_dump(mode="json")
    del fresh["since_ms"], fresh["due_ms"]
    assert anew["embedding"] == {**fresh, "rev": 5, "writers": writers, "deaths": 2}


async def test_what_is_done_leaves_no_field_behind(db: Database) -> None:
    """So that the sparse indexes hold exactly what is left to do."""
    records = MongoRecords(db)
    _, record = await marked(records, SAID)
    changed = await stored(records, record, [SAID])
    assert changed is not None
    await records.mark_announced(SAID.slot, changed.rev)
    document = await db["records"].find_one({"_id": SAID.slot})

    assert document is not None
    assert {"dirty", "writers", "unannounced"} & set(document) == set()


async def test_a_record_that_is_full_leaves_room_for_what_must_be_forgotten(db: Database) -> None:
    """Else it could not be deleted any more: what may not come back is kept with it."""
    records = MongoRecords(db)
    slot, record = await marked(records, SAID)
    (run,) = fold(slot, [SAID])
    filler = {"note": "x" * (RUNS_BYTES - 10_000)}
    full = record.model_copy(update={"runs": (run.model_copy(update={"metadata": filler}),)})
    too_full = full.model_copy(update={"runs": (*full.runs, *full.runs)})

    with pytest.raises(DocumentTooLarge):
        await records.store(too_full, read_rev=record.rev, changed=True, ends_mark=True)
    assert await records.store(full, read_rev=record.rev, changed=True, ends_mark=True)
    evidence = tuple(
        BarredTurns(session=f"ses_{number:032}", seqs=tuple(range(1, 50))) for number in range(500)
    )
    bar = Bar(as_of=day(9), spared=frozenset(), evidence=evidence)
    assert await records.bar(slot.slot, bar, read_rev=record.rev + 1)
