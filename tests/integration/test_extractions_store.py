"""The ledger of extraction: of two workers one gets through, and nothing is half done."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from pydantic import SecretStr
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import AutoReconnect
from structlog.testing import capture_logs

from pipeline.extracting.planning import new_extraction
from pipeline.settings import MongoSettings
from pipeline.stores.extractions import MongoExtractions
from pipeline.stores.letters import MongoLetters
from pipeline.stores.mongo import Database, MongoServerTime, connect, database
from schemas.event import SnapshotReadyData
from schemas.extraction import Extraction, NextMessage, Outcome, Part, PartState, Reply, SetAside
from schemas.failure import Attempt, Coordinates, Failure, FailureClass, Letter
from schemas.memory import Kind
from tests.faults.proxy import Proxy, proxy_to

NOW = datetime(2026, 3, 1, tzinfo=UTC)
READY = SnapshotReadyData(
    session="ses_" + "a" * 32, snapshot="snp_" + "b" * 32, first_seq=1, last_seq=4
)
FAILED = Attempt(
    failure=Failure(
        failure_class=FailureClass.UNAVAILABLE, reason="http_503", exception="openai.X"
    ),
    failed_at=NOW,
)


@pytest.fixture
def store(db: Database) -> MongoExtractions:
    return MongoExtractions(db)


@pytest.fixture
def server_time(db: Database) -> MongoServerTime:
    return MongoServerTime(db)


def reply(text: str) -> Reply:
    return Reply(
        answer={"summary": text},
        model="m",
        finish_reason="stop",
        request_id=None,
        calls=1,
        prompt_tokens=1,
        completion_tokens=1,
        answered_at=NOW,
    )


def letter(letter_id: str) -> Letter:
    return Letter(
        letter_id=letter_id,
        stage="extraction",
        failure_class=FailureClass.REFUSED,
        reason="refused",
        disposition="content",
        fingerprint="f",
        action="a",
        attempts=(FAILED,),
        original=Coordinates(topic="t", partition=0, offset=1, timestamp_ms=2, group="g"),
        value=b"\xff\x00",
        headers=(("a", b"\xff"), ("a", None)),
        created_at=NOW,
    )


def following(ticket: str, at_ms: int) -> NextMessage:
    return NextMessage(ticket=ticket, topic="t", scheduled_ms=at_ms, due_ms=at_ms, sent=False)


async def claimed(
    store: MongoExtractions, now_ms: int, *, lease: timedelta = timedelta(minutes=1)
) -> Extraction:
    extraction = await store.ensure(new_extraction(READY, now_ms))
    claim = await store.claim(extraction, owner="o", message="m", now_ms=now_ms, lease=lease)
    assert claim is not None
    return claim


@pytest.fixture
async def shaky(db: Database, mongo_uri: str) -> AsyncIterator[tuple[MongoExtractions, Proxy]]:
    """The store behind connections whose answers can be lost; the driver tries again."""
    async with proxy_to(urlsplit(mongo_uri).port or 27017) as proxy:
        settings = MongoSettings(
            uri=SecretStr(f"mongodb://127.0.0.1:{proxy.port}/?directConnection=true"),
            database=db.name,
        )
        client = connect(settings)
        yield MongoExtractions(database(client, settings)), proxy
        await client.close()


@pytest.mark.parametrize("every", [4, 5, 7])
async def test_an_update_whose_answer_is_lost_is_done_once_and_said_to_be(
    every: int,
    store: MongoExtractions,
    shaky: tuple[MongoExtractions, Proxy],
    server_time: MongoServerTime,
) -> None:
    """The driver sends it again, and a server without memory finds the state changed already."""
    through, proxy = shaky
    now_ms = await server_time.now_ms()
    await store.ensure(new_extraction(READY, now_ms))
    half = Part(first_seq=1, last_seq=2, kinds=(Kind.SEMANTIC,))
    lease = timedelta(minutes=1)
    proxy.lose_answers(every=every)
    for turn in range(3):
        at = f"m{turn}"
        read = await through.get(f"{READY.snapshot}:0")
        assert read is not None
        claim = await through.claim(read, owner="o", message=at, now_ms=now_ms, lease=lease)
        assert claim is not None
        assert await through.schedule(
            claim, following(f"t{turn}", now_ms), attempt=FAILED, ends_claim=True
        )
    last = await through.get(f"{READY.snapshot}:0")
    assert last is not None
    claim = await through.claim(last, owner="o", message="m", now_ms=now_ms, lease=lease)
    assert claim is not None
    assert await through.split(claim, 0, (half, half))
    split = await through.get(f"{READY.snapshot}:0")
    assert split is not None
    assert await through.bury(split, {1: letter("l1")}, FAILED)
    assert await through.settle(split, Outcome.DEAD, set_aside={}, settled_at=NOW)
    proxy.lose_answers(every=None)
    after = await store.get(f"{READY.snapshot}:0")

    assert proxy.lost > 0
    assert after is not None
    assert (len(after.attempts), after.fence, after.crashes) == (4, 4, 0)
    assert (len(after.parts), len(after.unsent_letters)) == (3, 1)
    assert after.outcome is Outcome.DEAD


async def test_of_many_workers_that_read_the_same_state_one_claims(
    store: MongoExtractions, server_time: MongoServerTime
) -> None:
    now_ms = await server_time.now_ms()
    read = await store.ensure(new_extraction(READY, now_ms))

    claims = await asyncio.gather(
        *(
            store.claim(read, owner=f"o{n}", message="m", now_ms=now_ms, lease=timedelta(minutes=1))
            for n in range(20)
        )
    )

    won = [claim for claim in claims if claim is not None]
    assert len(won) == 1
    stored = await store.get(read.extraction_id)
    assert stored is not None
    assert stored.claim is not None
    assert stored.claim.owner == won[0].claim.owner if won[0].claim else False
    assert (stored.fence, stored.crashes) == (1, 0)
    assert stored.claim.lease_until_ms - now_ms == pytest.approx(60_000, abs=5_000)


async def test_a_lease_that_ran_out_counts_as_a_crash_and_is_taken(
    store: MongoExtractions, server_time: MongoServerTime
) -> None:
    now_ms = await server_time.now_ms()
    first = await claimed(store, now_ms)
    early = await store.claim(
        first, owner="p", message="m", now_ms=now_ms, lease=timedelta(minutes=1)
    )

    late = await store.claim(
        first, owner="p", message="m", now_ms=now_ms + 61_000, lease=timedelta(minutes=1)
    )

    assert early is None
    assert late is not None
    assert (late.fence, late.crashes) == (2, 1)


async def test_an_owner_takes_over_its_own_claim_on_the_same_message_without_a_crash(
    store: MongoExtractions, server_time: MongoServerTime
) -> None:
    now_ms = await server_time.now_ms()
    first = await claimed(store, now_ms)

    again = await store.claim(
        first, owner="o", message="m", now_ms=now_ms, lease=timedelta(minutes=1)
    )

    assert again is not None
    assert (again.fence, again.crashes) == (2, 0)


async def test_the_first_stored_answer_and_its_version_stand(
    store: MongoExtractions, server_time: MongoServerTime
) -> None:
    first = await claimed(store, await server_time.now_ms())

    await store.store_reply(first, 0, reply("first"), version="v1")
    after = await store.store_reply(first, 0, reply("second"), version="v2")

    assert after.parts[0].reply is not None
    assert after.parts[0].reply.answer == {"summary": "first"}
    assert after.version == "v1"


async def test_no_answer_is_stored_without_its_version_whenever_a_worker_dies(
    store: MongoExtractions, server_time: MongoServerTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = await claimed(store, await server_time.now_ms())
    write = AsyncCollection[dict[str, Any]].update_one

    async def last_write(*arguments: Any, **options: Any) -> Any:
        await write(*arguments, **options)
        raise AutoReconnect("killed")

    with monkeypatch.context() as patch, pytest.raises(AutoReconnect):
        patch.setattr(AsyncCollection, "update_one", last_write)
        await store.store_reply(claim, 0, reply("first"), version="v1")
    after = await store.get(claim.extraction_id)

    assert after is not None
    assert (after.parts[0].state, after.version) == (PartState.ANSWERED, "v1")


async def test_a_worker_whose_claim_is_lost_changes_nothing(
    store: MongoExtractions, server_time: MongoServerTime
) -> None:
    now_ms = await server_time.now_ms()
    old = await claimed(store, now_ms)
    new = await store.claim(
        old, owner="p", message="n", now_ms=now_ms + 61_000, lease=timedelta(minutes=1)
    )
    assert new is not None
    half = Part(first_seq=1, last_seq=2, kinds=(Kind.SEMANTIC,))

    results = [
        await store.settle(old, Outcome.RECORDS, set_aside={}, settled_at=NOW),
        await store.schedule(old, following("t", now_ms), attempt=FAILED, ends_claim=True),
        await store.bury(old, {0: letter("l")}, FAILED),
        await store.split(old, 0, (half, half)),
        await store.enlarge(old, 0, 99),
    ]
    await store.release(old)

    assert not any(results)
    assert await store.get(new.extraction_id) == new.model_copy(
        update={"claim": (await store.get(new.extraction_id) or new).claim}
    )


async def test_a_fate_is_written_whole_and_found_until_it_is_sent(
    store: MongoExtractions, server_time: MongoServerTime
) -> None:
    now_ms = await server_time.now_ms()
    first = await claimed(store, now_ms)

    assert await store.schedule(first, following("t1", now_ms), attempt=FAILED, ends_claim=True)

    stored = await store.get(first.extraction_id)
    assert stored is not None
    assert (stored.attempts, stored.claim, stored.next.ticket) == ((FAILED,), None, "t1")
    assert [found.extraction_id for found in await store.unsent(now_ms, 10)] == [
        first.extraction_id
    ]
    assert await store.unsent(now_ms - 1, 10) == []
    await store.mark_sent(first.extraction_id, "another")
    assert len(await store.unsent(now_ms, 10)) == 1
    await store.mark_sent(first.extraction_id, "t1")
    assert await store.unsent(now_ms, 10) == []


async def test_a_schedule_decided_on_an_older_ticket_is_refused(
    store: MongoExtractions, server_time: MongoServerTime
) -> None:
    now_ms = await server_time.now_ms()
    first = await claimed(store, now_ms)
    assert await store.schedule(first, following("t1", now_ms), attempt=None, ends_claim=False)

    again = await store.schedule(first, following("t2", now_ms), attempt=None, ends_claim=False)

    assert not again
    stored = await store.get(first.extraction_id)
    assert stored is not None
    assert stored.next.ticket == "t1"
    assert stored.claim is not None


async def test_letters_wait_in_the_ledger_until_they_are_safe(
    store: MongoExtractions, server_time: MongoServerTime, db: Database
) -> None:
    now_ms = await server_time.now_ms()
    first = await claimed(store, now_ms)

    assert await store.bury(first, {0: letter("l1")}, FAILED)

    stored = await store.get(first.extraction_id)
    assert stored is not None
    assert stored.parts[0].state is PartState.DEAD
    assert stored.parts[0].letter_id == "l1"
    assert stored.unsent_letters == (letter("l1"),)
    assert len(await store.unsent(now_ms, 10)) == 1
    letters = MongoLetters(db)
    await letters.put(letter("l1"))
    await letters.put(letter("l1"))
    await store.drop_letters(first.extraction_id, ["l1"])
    assert await store.unsent(now_ms, 10) == []
    assert await letters.unsent(now_ms, 10) == [letter("l1")]
    await letters.mark_sent("l1")
    assert await letters.unsent(now_ms, 10) == []
    assert await letters.count() == 1


async def test_splitting_appends_two_parts_and_settling_ends_everything(
    store: MongoExtractions, server_time: MongoServerTime
) -> None:
    now_ms = await server_time.now_ms()
    first = await claimed(store, now_ms)
    left = Part(first_seq=1, last_seq=2, kinds=(Kind.SEMANTIC,))
    right = Part(first_seq=3, last_seq=4, kinds=(Kind.SEMANTIC,))

    assert await store.enlarge(first, 0, 8192)
    assert await store.split(first, 0, (left, right))
    assert not await store.enlarge(first, 0, 1)
    aside = SetAside(kind=Kind.SEMANTIC, index=0, reason="secret")
    assert await store.settle(first, Outcome.SET_ASIDE, set_aside={1: [aside]}, settled_at=NOW)

    stored = await store.get(first.extraction_id)
    assert stored is not None
    assert [part.state for part in stored.parts] == [
        PartState.SPLIT,
        PartState.WAITING,
        PartState.WAITING,
    ]
    assert stored.parts[0].max_tokens == 8192
    assert stored.parts[1].set_aside == (aside,)
    assert stored.outcome is Outcome.SET_ASIDE
    assert stored.claim is None
    assert not await store.settle(first, Outcome.RECORDS, set_aside={}, settled_at=NOW)


async def test_a_document_that_is_none_hides_none_behind_it(
    store: MongoExtractions, server_time: MongoServerTime, db: Database
) -> None:
    now_ms = await server_time.now_ms()
    await store.ensure(new_extraction(READY, now_ms))
    await db["extractions"].update_one({}, {"$set": {"unsent_since_ms": now_ms}})
    await db["extractions"].insert_one(
        {"_id": "broken", "unsent_since_ms": now_ms - 1, "run": "a word that was said"}
    )

    with capture_logs() as logs:
        found = await store.unsent(now_ms, 10)

    assert [each.extraction_id for each in found] == [f"{READY.snapshot}:0"]
    assert [(log["event"], log["id"]) for log in logs] == [("document_unreadable", "broken")]
    assert "word" not in str(logs)


async def test_a_claim_that_was_expired_is_taken_over_at_once_and_counts_as_a_crash(
    store: MongoExtractions, server_time: MongoServerTime
) -> None:
    now_ms = await server_time.now_ms()
    await claimed(store, now_ms)

    assert await store.expire_claims() == 1
    assert await store.expire_claims() == 0

    held = await store.get(f"{READY.snapshot}:{READY.run}")
    assert held is not None
    taken = await store.claim(
        held, owner="p", message="n", now_ms=now_ms, lease=timedelta(minutes=1)
    )
    assert taken is not None
    assert taken.crashes == 1


async def test_a_settled_extraction_has_no_claim_to_expire(
    store: MongoExtractions, server_time: MongoServerTime
) -> None:
    extraction = await claimed(store, await server_time.now_ms())
    await store.settle(extraction, Outcome.GONE, set_aside={}, settled_at=NOW)
    settled = await store.get(extraction.extraction_id)

    assert await store.expire_claims() == 0
    assert await store.get(extraction.extraction_id) == settled
