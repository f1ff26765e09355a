"""Turns, sessions, snapshots and the installation's key on a real database."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pymongo
import pytest
from pymongo.errors import DuplicateKeyError

from pipeline.errors import ConfigurationError
from pipeline.ids import OpaqueIds
from pipeline.ports.turns import IdempotencyKey, OpenTurn
from pipeline.stores.installation import installation_key
from pipeline.stores.mongo import Database
from pipeline.stores.sessions import MongoSessions
from pipeline.stores.snapshots import MongoSnapshots
from pipeline.stores.turns import MongoTurns, document_of
from schemas.identity import SessionIdentity
from schemas.snapshot import Snapshot
from schemas.turn import Role, ToolCall, Turn
from tests import builders

IDS = OpaqueIds(b"k" * 32)
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
QUICK_SECONDS = 1.0
"""Hundreds of times less than a scan of 20,000 documents takes on a loaded machine."""


def identity(name: str) -> SessionIdentity:
    return SessionIdentity(user_id="ana", session_id=name)


def turn(seq: int, *, session: str = "talk", **fields: Any) -> Turn:
    key = IDS.session(identity(session), 1)
    defaults: dict[str, Any] = {
        "turn_id": IDS.turn(key, seq),
        "session": key,
        "identity": identity(session),
        "recorded_at": NOW + timedelta(seconds=seq),
        "tokens": 7,
    }
    return builders.turn(seq, **(defaults | fields))


def snapshot(first_seq: int, last_seq: int, **fields: Any) -> Snapshot:
    key = IDS.session(identity("talk"), 1)
    defaults = {"snapshot_id": IDS.snapshot(key, first_seq), "session": key}
    return builders.snapshot(first_seq, last_seq, **(defaults | fields))


SESSION = turn(1).session


async def test_the_key_is_made_once_however_many_start_at_once(db: Database) -> None:
    keys = await asyncio.gather(*(installation_key(db) for _ in range(12)))

    assert len(set(keys)) == 1
    assert len(keys[0]) == 32
    assert await installation_key(db) == keys[0]


async def test_a_broken_key_is_said_and_never_replaced(db: Database) -> None:
    await db["installation"].insert_one({"_id": "ids", "key": b"short"})
    with pytest.raises(ConfigurationError):
        await installation_key(db)

    assert (await db["installation"].find_one({"_id": "ids"}) or {})["key"] == b"short"


async def test_a_session_is_made_once_and_found_by_both_names(db: Database) -> None:
    sessions = MongoSessions(db, IDS)
    states = await asyncio.gather(*(sessions.open(identity("talk")) for _ in range(8)))

    assert [state.is_new for state in states].count(True) == 1
    assert {state.session for state in states} == {SESSION}
    assert await sessions.by_key(SESSION) == await sessions.open(identity("talk"))
    assert await sessions.by_key("ses_" + "0" * 32) is None
    assert await db["sessions"].count_documents({}) == 1


async def test_the_first_note_of_a_gap_stands(db: Database) -> None:
    sessions = MongoSessions(db, IDS)
    await sessions.open(identity("talk"))
    await sessions.note_gap(SESSION, [3, 4], 1000)
    await sessions.note_gap(SESSION, [4, 5], 2000)
    state = await sessions.by_key(SESSION)

    assert state is not None
    assert state.gaps == {3: 1000, 4: 1000, 5: 2000}


async def test_a_turn_comes_back_as_it_was_stored(db: Database) -> None:
    turns = MongoTurns(db)
    stored = turn(
        1,
        role=Role.ASSISTANT,
        content="می‌خواهم 👩‍👩‍👧 \x00",
        tool_calls=(
            ToolCall(id="1", name="x", arguments={"a": None, "$b": [1, 2.5, {"c.d": ""}]}),
        ),
        metadata={"": None, "$set": {"a.b": 2**62}, "role": "mine"},
        model_name="m",
        is_error=True,
        repairs=2,
    )
    await turns.insert(stored, idempotency=None)

    assert await turns.read(SESSION, 1, 1) == [stored]


async def test_a_taken_place_and_a_taken_key_are_told_apart(db: Database) -> None:
    turns = MongoTurns(db)
    key = IdempotencyKey(key="k", body="b")
    await turns.insert(turn(1), idempotency=key)
    with pytest.raises(DuplicateKeyError) as place:
        await turns.insert(turn(1), idempotency=None)
    with pytest.raises(DuplicateKeyError) as name:
        await turns.insert(turn(2), idempotency=key)
    await turns.insert(turn(1, session="other"), idempotency=key)

    assert "idempotency" not in (place.value.details or {})["keyPattern"]
    assert "idempotency" in (name.value.details or {})["keyPattern"]
    assert await turns.by_idempotency_key(SESSION, "k") == (turn(1), "b")
    assert await turns.by_idempotency_key(SESSION, "other") is None


async def test_open_turns_are_those_not_cleared(db: Database) -> None:
    turns = MongoTurns(db)
    for seq in range(1, 7):
        await turns.insert(turn(seq), idempotency=None)
    await turns.insert(turn(1, session="other"), idempotency=None)

    newest = await turns.newest(SESSION)
    assert newest is not None
    assert newest.seq == 6
    assert await turns.newest("ses_" + "0" * 32) is None
    assert await turns.clear_open(SESSION, 1, 4) == 4
    assert await turns.clear_open(SESSION, 1, 4) == 0

    await turns.mark_closing(SESSION, 6)
    await turns.mark_closing(SESSION, 6)

    assert await turns.open_turns(SESSION) == [
        OpenTurn(seq=5, tokens=7, recorded_at=NOW + timedelta(seconds=5)),
        OpenTurn(seq=6, tokens=7, recorded_at=NOW + timedelta(seconds=6), closes=True),
    ]

    sessions = {each.session: each for each in await turns.open_sessions()}

    assert set(sessions) == {SESSION, turn(1, session="other").session}
    assert (sessions[SESSION].oldest_seq, sessions[SESSION].newest_seq) == (5, 6)
    assert (sessions[SESSION].turns, sessions[SESSION].tokens) == (2, 14)
    assert sessions[SESSION].oldest_recorded_at == NOW + timedelta(seconds=5)
    assert sessions[SESSION].newest_recorded_at == NOW + timedelta(seconds=6)
    assert sessions[SESSION].is_closed
    assert not sessions[turn(1, session="other").session].is_closed


async def test_a_closed_turn_that_is_cut_closes_nothing_more(db: Database) -> None:
    turns = MongoTurns(db)
    await turns.insert(turn(1), idempotency=None)
    await turns.mark_closing(SESSION, 1)
    await turns.clear_open(SESSION, 1, 1)
    await turns.insert(turn(2), idempotency=None)
    (session,) = await turns.open_sessions()

    assert not session.is_closed


async def test_snapshots_are_one_chain(db: Database) -> None:
    snapshots = MongoSnapshots(db)
    await snapshots.insert(snapshot(1, 4), wake_at_ms=10)
    await snapshots.insert(snapshot(5, 6), wake_at_ms=20)
    with pytest.raises(DuplicateKeyError):
        await snapshots.insert(snapshot(5, 9), wake_at_ms=20)

    assert await snapshots.last(SESSION) == snapshot(5, 6)
    assert await snapshots.last("ses_" + "0" * 32) is None
    assert await snapshots.get(snapshot(1, 4).snapshot_id) == snapshot(1, 4)
    assert await snapshots.get("snp_" + "0" * 32) is None
    assert await snapshots.covering(SESSION, 4) == [snapshot(1, 4), snapshot(5, 6)]
    assert await snapshots.covering(SESSION, 5) == [snapshot(5, 6)]
    assert await snapshots.covering(SESSION, 7) == []


async def test_an_unsettled_snapshot_is_looked_at_when_it_is_time(db: Database) -> None:
    snapshots = MongoSnapshots(db)
    await snapshots.insert(snapshot(1, 4), wake_at_ms=10)
    await snapshots.insert(snapshot(5, 6), wake_at_ms=20)

    assert await snapshots.unsettled_due(9, 10) == []
    assert await snapshots.unsettled_due(20, 10) == [snapshot(1, 4), snapshot(5, 6)]
    assert await snapshots.unsettled_due(20, 1) == [snapshot(1, 4)]

    await snapshots.wake_later(snapshot(1, 4).snapshot_id, 30)
    await snapshots.settle(snapshot(5, 6).snapshot_id, run=0, summary="Tea.")
    await snapshots.settle(snapshot(5, 6).snapshot_id, run=0, summary="Tea.")
    await snapshots.wake_later(snapshot(5, 6).snapshot_id, 5)

    assert await snapshots.unsettled_due(29, 10) == []
    assert await snapshots.unsettled_due(30, 10) == [snapshot(1, 4)]
    assert await snapshots.last(SESSION) == snapshot(5, 6, settled=True, summary="Tea.")


async def test_what_is_open_is_found_quickly_among_twenty_thousand(db: Database) -> None:
    turns = MongoTurns(db)
    sessions = [document_of(turn(1, session=f"s{n}"), None) for n in range(200)]
    documents: list[dict[str, Any]] = [
        first | {"_id": f"{first['_id']}{seq}", "seq": seq}
        for first in sessions
        for seq in range(1, 101)
    ]
    for document in documents[50:]:
        if document["seq"] < 100:
            del document["open"]
    for start in range(0, len(documents), 1000):
        await db["turns"].insert_many(documents[start : start + 1000])
    key = turn(1, session="s0").session

    async def seconds(call: Any) -> float:
        began = time.monotonic()
        await call
        return time.monotonic() - began

    assert len(await turns.open_sessions()) == 200
    assert await seconds(turns.open_sessions()) < QUICK_SECONDS
    assert await seconds(turns.open_turns(key)) < QUICK_SECONDS
    assert await seconds(turns.newest(key)) < QUICK_SECONDS
    assert await seconds(turns.clear_open(key, 1, 20)) < QUICK_SECONDS
    assert await seconds(turns.mark_closing(key, 100)) < QUICK_SECONDS
    with pymongo.timeout(120):
        await db.drop_collection("turns")
