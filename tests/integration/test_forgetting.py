"""A memory that was deleted is gone for good: from records, assertions, answers and the client."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from consumers.wiring import Installation
from pipeline.auditing import Audit
from pipeline.extracting.planning import FIRST_TICKET, ready_data, ready_event
from pipeline.messages import encode
from pipeline.reading.memories import memories_of
from pipeline.stores.audit_reads import MongoAuditReads
from pipeline.stores.indexes import apply_indexes
from pipeline.stores.mongo import Database
from schemas.extraction import BLANK, Outcome
from schemas.identity import ReadScope
from schemas.record import Record
from schemas.snapshot import Snapshot
from schemas.topics import SNAPSHOT_READY
from tests.builders import IDENTITY, SAID_AT, SNAPSHOT, snapshot, turn
from tests.integration.serving import Server, ask
from tests.integration.test_extracting import (
    Broker,
    ScriptedModel,
    announced,
    broker,
    home,
    parts,
    run,
)

__all__ = ["broker", "parts"]

SCOPE = ReadScope(project_id=IDENTITY.project_id, user_id=IDENTITY.user_id)
RUN = f"{SNAPSHOT}:0"
SAID = ("I live in Porto.", "I have a cat called Miso.")
CAT: dict[str, Any] = {
    "attribute": "pet",
    "label": "Miso",
    "text": "The user has a cat called Miso.",
    "evidence": [2],
    "quote": "I have a cat called Miso.",
}


async def records_of(parts: Installation) -> list[Record]:
    return [record async for record in parts.records.of_scope(SCOPE)]


async def told(parts: Installation) -> list[str]:
    return sorted(memory.text for memory in memories_of(await records_of(parts)))


async def forget(parts: Installation, text: str) -> Record:
    """Forget what reads so; return its record as it was."""
    (memory,) = (one for one in memories_of(await records_of(parts)) if one.text == text)
    await parts.forgetter.forget(memory)
    return memory.record


async def everything(db: Database) -> str:
    """Return all that is stored beside the turns, as one text."""
    names = [name for name in await db.list_collection_names() if name != "turns"]
    return "".join([str(await db[name].find({}).to_list()) for name in names])


async def violations(parts: Installation, db: Database) -> list[Any]:
    await apply_indexes(db)
    reads = MongoAuditReads(
        db,
        sessions=parts.sessions,
        turns=parts.turns,
        extractions=parts.extractions,
        assertions=parts.assertions,
        records=parts.records,
    )
    report = await Audit(reads, parts.ids, pause_seconds=0.0).run(lambda _sessions, _slots: None)
    return report.violations


def answering() -> ScriptedModel:
    return ScriptedModel({"semantic": [home(1), CAT], "summary": "A cat in Porto."})


async def test_nothing_of_it_is_left_but_the_turns(
    parts: Installation, broker: Broker, db: Database
) -> None:
    await announced(parts, broker, *SAID)
    await run(parts, broker, answering())
    assert "Miso" in await everything(db)

    record = await forget(parts, CAT["text"])

    stored = await everything(db)
    assert await told(parts) == [home(1)["text"]]
    assert [word for word in ("Miso", "user/pet", "A cat") if word in stored] == []
    shell = await parts.records.get(record.record_id)
    assert shell is not None
    assert (shell.runs, shell.key, shell.subject) == ((), "", "")
    assert shell.rev > record.rev
    assert record.record_id in [one.record_id for one in await parts.records.unannounced(9)]
    assert await violations(parts, db) == []


async def test_what_was_set_aside_beside_it_goes_with_it(
    parts: Installation, broker: Broker, db: Database
) -> None:
    unquoted = CAT | {"text": "Miso is a cat.", "quote": "Nobody said so."}
    nothing = CAT | {"text": "Miso purrs.", "evidence": [9]}
    again = home(1)
    await announced(parts, broker, *SAID)
    said = {"semantic": [home(1), again, CAT, unquoted, nothing], "summary": "A cat in Porto."}
    settled = await run(parts, broker, ScriptedModel(said))
    assert [item.reason for item in settled.parts[0].set_aside] == [
        "repeated",
        "quote_not_found",
        "evidence_outside",
    ]

    await forget(parts, CAT["text"])

    assert "Miso" not in await everything(db)
    assert await told(parts) == [home(1)["text"]]
    assert await violations(parts, db) == []


async def test_what_an_answer_says_that_was_given_up_on_goes_with_it(
    parts: Installation, broker: Broker, db: Database
) -> None:
    """A part that is buried keeps its answer; who retries it asks anew."""
    await announced(parts, broker, *SAID)
    await run(parts, broker, answering())
    ledger = await db["extractions"].find_one({"_id": RUN})
    assert ledger is not None
    buried = ledger["parts"][0] | {"state": "dead"}
    await db["extractions"].update_one({"_id": RUN}, {"$push": {"parts": buried}})

    await forget(parts, CAT["text"])

    assert "Miso" not in await everything(db)


async def test_delivering_it_again_brings_nothing_back(
    parts: Installation, broker: Broker, db: Database
) -> None:
    cut = await announced(parts, broker, *SAID)
    first = broker.waiting[0]
    await run(parts, broker, answering())
    await forget(parts, CAT["text"])

    broker.waiting.append(first)
    await run(parts, broker, answering())
    await unsettle(db, cut)
    broker.waiting.append(first)
    settled = await run(parts, broker, answering())

    assert settled.outcome is Outcome.RECORDS
    assert [(item.index, item.reason) for item in settled.parts[0].set_aside] == [(1, "forgotten")]
    assert await told(parts) == [home(1)["text"]]
    assert await violations(parts, db) == []


async def test_an_answer_that_was_not_concluded_from_is_set_aside_and_blanked(
    parts: Installation, broker: Broker, db: Database
) -> None:
    """The talk was recorded before, and extracted once more by a run of its own."""
    cut = await announced(parts, broker, *SAID)
    first = broker.waiting[0]
    await run(parts, broker, answering())
    await forget(parts, CAT["text"])
    await db["extractions"].delete_one({"snapshot_id": cut.snapshot_id})
    await db["snapshots"].update_one({}, {"$set": {"settled": False}})

    broker.waiting.append(first)
    settled = await run(parts, broker, answering())

    reply = settled.parts[0].reply
    assert reply is not None
    assert reply.answer["semantic"][1] == BLANK
    assert "Miso" not in await everything(db)
    assert await told(parts) == [home(1)["text"]]
    assert await violations(parts, db) == []


async def test_what_is_said_anew_is_learned_anew(
    parts: Installation, broker: Broker, db: Database
) -> None:
    await announced(parts, broker, *SAID)
    await run(parts, broker, answering())
    record = await forget(parts, CAT["text"])
    later = datetime.now(UTC) + timedelta(hours=1)
    again = turn(3, SAID[1], created_at=later, recorded_at=later, effective_at=later)
    await parts.turns.insert(again, idempotency=None)
    cut = snapshot(3, 3, snapshot_id="snp_" + "c" * 32)
    await parts.snapshots.insert(cut, wake_at_ms=2**60)
    event = ready_event(ready_data(cut), SAID_AT)
    await broker.publish(encode(SNAPSHOT_READY.name, event, ticket=FIRST_TICKET))

    await run(parts, broker, ScriptedModel({"semantic": [CAT | {"evidence": [3]}], "summary": ""}))

    assert await told(parts) == sorted([home(1)["text"], CAT["text"]])
    learned = await parts.records.get(record.record_id)
    assert learned is not None
    assert (learned.key, learned.subject) == (record.key, record.subject)
    assert learned.runs[0].memory_id != record.runs[0].memory_id
    assert await violations(parts, db) == []


async def test_the_audit_finds_what_came_back(
    parts: Installation, broker: Broker, db: Database
) -> None:
    await announced(parts, broker, *SAID)
    await run(parts, broker, answering())
    (said,) = [one for one in await parts.assertions.of_extraction(RUN) if one.key == "user/pet"]
    await forget(parts, CAT["text"])
    await parts.assertions.write([said])
    assert await violations(parts, db) == []

    await db["tombstones"].update_many({}, {"$unset": {"due_ms": ""}})

    (found,) = await violations(parts, db)
    assert (found.law, found.where) == ("I8", said.slot)


async def test_the_second_pass_removes_what_others_wrote_meanwhile(
    parts: Installation, broker: Broker, db: Database
) -> None:
    await announced(parts, broker, *SAID)
    await run(parts, broker, answering())
    (said,) = [one for one in await parts.assertions.of_extraction(RUN) if one.key == "user/pet"]
    await forget(parts, CAT["text"])
    await parts.assertions.write([said])
    assert await parts.forgetter.sweep(9) == 0

    later = {"due_ms": {"$exists": True}}
    await db["tombstones"].update_many(later, {"$set": {"due_ms": 0}})

    assert await parts.forgetter.sweep(9) == 1
    assert await parts.assertions.of_slot(said.slot) == []
    await db["tombstones"].update_many(later, {"$set": {"due_ms": 0}})
    assert await parts.forgetter.sweep(9) == 0


async def test_a_client_deletes_one_memory_and_no_other(server: Server, db: Database) -> None:
    client = server.internal()
    whose: dict[str, Any] = {"org_id": "", "project_id": "", "user_id": "mara"}
    one = await ask(client.create_semantic, label="seat", text="Likes the window.", **whose)
    other = await ask(client.create_semantic, label="seat", text="Or the aisle.", **whose)
    async with httpx.AsyncClient(base_url=f"{server.url}/api/v1/memory", timeout=30) as http:
        answer = await http.delete(f"/semantic/{one.id}", params={"user_id": "mara"})
        again = await http.delete(f"/semantic/{one.id}", params={"user_id": "mara"})

    assert answer.json() == {"deleted_count": 1, "acknowledged": True}
    assert (again.status_code, again.json()["code"]) == (404, "MEMORY_NOT_FOUND")
    assert (await ask(client.get_semantic, id=other.id, **whose))["text"] == "Or the aisle."
    assert "window" not in await everything(db)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("semantic", {"label": "seat", "text": "planted"}),
        ("episodic", {"title": "t", "content": "planted", "session_id": "s"}),
        ("taxonomic", {"domain": "d", "term": "t", "definition": "planted"}),
        ("procedural", {"procedure": "p", "description": "planted", "content": "planted"}),
    ],
)
async def test_each_kind_is_forgotten(
    kind: str, body: dict[str, Any], server: Server, db: Database
) -> None:
    mara = {"user_id": "mara"}
    async with httpx.AsyncClient(base_url=f"{server.url}/api/v1/memory", timeout=30) as http:
        saved = (await http.post(f"/{kind}", json=body | mara)).json()
        hard = {"soft": "false"} if kind == "procedural" else {}
        answer = await http.delete(f"/{kind}/{saved['id']}", params=mara | hard)
        renewed = await http.post(f"/{kind}", json=body | mara)

        assert answer.json() == {"deleted_count": 1, "acknowledged": True}
        assert renewed.status_code == 201
        assert renewed.json()["id"] != saved["id"]
        await http.delete(f"/{kind}/{renewed.json()['id']}", params=mara | hard)
        assert "planted" not in await everything(db)


async def test_what_is_history_only_is_forgotten_too(server: Server, db: Database) -> None:
    mara = {"user_id": "mara", "label": "seat"}
    async with httpx.AsyncClient(base_url=f"{server.url}/api/v1/memory", timeout=30) as http:
        old = (await http.post("/semantic", json={"text": "planted", **mara})).json()
        await http.post("/semantic", json={"text": "Or the aisle.", **mara})
        new = (await http.post("/semantic", json={"text": "None.", "upsert": True, **mara})).json()

        answer = await http.delete(f"/semantic/{old['id']}", params={"user_id": "mara"})
        left = await http.get(f"/semantic/{new['id']}", params={"user_id": "mara"})

    assert old["id"] != new["id"]
    assert answer.json() == {"deleted_count": 1, "acknowledged": True}
    assert left.json()["text"] == "None."
    assert "planted" not in await everything(db)


async def test_a_procedure_is_forgotten_only_where_that_is_asked_for(
    server: Server, db: Database
) -> None:
    client = server.internal()
    whose: dict[str, Any] = {"org_id": "", "project_id": "", "user_id": "mara"}
    await ask(client.create_procedural, procedure="p", description="d", content="planted", **whose)
    await ask(client.delete_procedural, procedure="p", **whose)
    kept = await ask(client.get_procedural, procedure="p", include_deleted=True, **whose)
    assert kept["content"] == "planted"

    result = await ask(client.delete_procedural, id=kept["id"], soft=False, **whose)

    assert result.deleted_count == 1
    assert await ask(client.get_procedural, procedure="p", include_deleted=True, **whose) is None
    assert "planted" not in await everything(db)


async def test_a_memory_that_was_given_another_reach_is_forgotten_where_it_was_too(
    server: Server, db: Database
) -> None:
    mara = {"user_id": "mara"}
    async with httpx.AsyncClient(base_url=f"{server.url}/api/v1/memory", timeout=30) as http:
        body = {"label": "seat", "text": "planted", **mara}
        saved = (await http.post("/semantic", json=body)).json()
        await http.patch(f"/semantic/{saved['id']}", json={"visibility": "org", **mara})

        await http.delete(f"/semantic/{saved['id']}", params={"visibility": "org", **mara})

        assert "planted" not in await everything(db)


async def unsettle(db: Database, snapshot: Snapshot) -> None:
    """Let an extraction be as it was before it was settled."""
    await db["extractions"].update_one(
        {"snapshot_id": snapshot.snapshot_id}, {"$set": {"outcome": None, "settled_at": None}}
    )
