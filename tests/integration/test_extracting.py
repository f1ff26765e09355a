"""The extraction step on a real database: whatever fails comes to an end that is recorded."""

import asyncio
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from consumers.extraction_wiring import extraction_step
from consumers.wiring import Installation, wire
from pipeline.errors import AnswerError
from pipeline.extracting.planning import FIRST_TICKET, ready_data, ready_event
from pipeline.failing.gating import HeldError
from pipeline.failing.resuming import resume_breaker
from pipeline.messages import encode
from pipeline.ports.model import ModelRequest
from pipeline.settings import Settings
from pipeline.stores.mongo import Database
from pipeline.stores.switches import MongoBreakers
from schemas.extraction import Extraction, Outcome, Reply
from schemas.failure import Coordinates, FailureClass
from schemas.identity import ReadScope
from schemas.message import TICKET_HEADER, IncomingMessage, OutgoingMessage
from schemas.snapshot import Snapshot
from schemas.topics import DEAD, RECORD_CHANGED, SNAPSHOT_READY, Stage
from tests.builders import IDENTITY, SAID_AT, snapshot, turn

PATIENCE_SECONDS = 30


class Broker:
    """Delivers what is published to the extraction topics, in order and at once."""

    def __init__(self) -> None:
        self.waiting: deque[IncomingMessage] = deque()
        self.dead: list[OutgoingMessage] = []
        self.offset = 0

    async def publish(self, message: OutgoingMessage) -> None:
        if message.topic == DEAD[Stage.EXTRACTION].name:
            self.dead.append(message)
        elif message.topic != RECORD_CHANGED.name:
            self.offset += 1
            at = Coordinates(
                topic=message.topic,
                partition=0,
                offset=self.offset,
                timestamp_ms=0,
                group="g",
            )
            self.waiting.append(
                IncomingMessage(
                    at=at, key=message.key, value=message.value, headers=message.headers
                )
            )


class ScriptedModel:
    """Answers or raises as told; the last saying stands for all that follow."""

    name = "model-1"
    version = "v1"
    max_tokens = 1000

    def __init__(
        self, *sayings: dict[str, Any] | Exception, gate: asyncio.Event | None = None
    ) -> None:
        self.sayings = list(sayings)
        self.gate = gate
        self.requests: list[ModelRequest] = []

    async def answer(self, request: ModelRequest) -> Reply:
        self.requests.append(request)
        if self.gate is not None:
            await self.gate.wait()
        saying = self.sayings.pop(0) if len(self.sayings) > 1 else self.sayings[0]
        if isinstance(saying, Exception):
            raise saying
        return Reply(
            answer=saying,
            model="m",
            finish_reason="stop",
            request_id=None,
            calls=1,
            prompt_tokens=1,
            completion_tokens=1,
            answered_at=datetime.now(UTC),
        )


def home(seq: int, quote: str = "I live in Porto.") -> dict[str, Any]:
    return {
        "attribute": "home",
        "label": "Porto",
        "text": "The user lives in Porto.",
        "evidence": [seq],
        "quote": quote,
    }


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
async def parts(db: Database, broker: Broker) -> Installation:
    return await wire(Settings(), db, broker)


async def announced(parts: Installation, broker: Broker, *contents: str) -> Snapshot:
    """Store turns and their snapshot, and announce it."""
    for seq, content in enumerate(contents, 1):
        await parts.turns.insert(turn(seq, content), idempotency=None)
    cut = snapshot(1, len(contents))
    await parts.snapshots.insert(cut, wake_at_ms=2**60)
    event = ready_event(ready_data(cut), SAID_AT)
    await broker.publish(encode(SNAPSHOT_READY.name, event, ticket=FIRST_TICKET))
    return cut


async def run(parts: Installation, broker: Broker, model: ScriptedModel) -> Extraction:
    """Deliver until nothing waits; return the extraction."""
    step = extraction_step(parts, model)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while broker.waiting:
            await step(broker.waiting.popleft())
    found = await parts.extractions.get(f"{snapshot().snapshot_id}:0")
    assert found is not None
    return found


async def test_one_item_in_five_is_right_and_four_are_set_aside_with_their_reasons(
    parts: Installation, broker: Broker
) -> None:
    await announced(parts, broker, "I live in Porto.", "You seem to like tea.", "My key is sk-x.")
    await parts.database["turns"].update_one({"seq": 2}, {"$set": {"role": "assistant"}})
    secret = "sk-test-0000000000000000000000"
    model = ScriptedModel(
        {
            "semantic": [
                home(1),
                home(1, "I live in Braga."),
                home(9),
                home(2, "You seem to like tea."),
                home(1) | {"text": f"The key is {secret}."},
            ]
        }
    )

    settled = await run(parts, broker, model)

    assert settled.outcome is Outcome.RECORDS
    assert len(await parts.assertions.of_extraction(settled.extraction_id)) == 1
    reasons = [item.reason for item in settled.parts[0].set_aside]
    assert len(reasons) == len(set(reasons)) == 4


async def test_a_snapshot_that_vanished_ends_as_a_letter_and_not_in_a_loop(
    parts: Installation, broker: Broker
) -> None:
    cut = await announced(parts, broker, "I live in Porto.")
    await parts.database["snapshots"].delete_one({"_id": cut.snapshot_id})

    settled = await run(parts, broker, ScriptedModel({}))

    assert settled.outcome is Outcome.DEAD
    assert len(broker.dead) == await parts.letters.count() == 1


async def test_a_letter_names_the_model_and_why_it_stopped(
    parts: Installation, broker: Broker
) -> None:
    await announced(parts, broker, "I live in Porto.")
    refusal = AnswerError(
        FailureClass.REFUSED, "refusal", finish_reason="content_filter", request_id="req-7"
    )

    await run(parts, broker, ScriptedModel(refusal))

    letter = await parts.database["letters"].find_one()
    assert letter is not None
    assert letter["model"] == ScriptedModel.name
    failure = letter["attempts"][-1]["failure"]
    assert (failure["finish_reason"], failure["request_id"]) == ("content_filter", "req-7")


async def test_turns_that_are_gone_settle_as_gone_without_a_call(
    parts: Installation, broker: Broker
) -> None:
    await announced(parts, broker, "I live in Porto.")
    await parts.database["turns"].delete_many({})
    model = ScriptedModel({})

    settled = await run(parts, broker, model)

    assert settled.outcome is Outcome.GONE
    assert model.requests == []


async def test_a_bug_while_concluding_is_tried_again_then_a_letter(
    parts: Installation, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await announced(parts, broker, "I live in Porto.")

    async def broken(_assertions: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(parts.folder, "assert_all", broken)
    model = ScriptedModel({"semantic": [home(1)]})

    settled = await run(parts, broker, model)

    assert settled.outcome is Outcome.DEAD
    assert [one.failure.failure_class for one in settled.attempts][:2] == ["bug.unclassified"] * 2
    assert len(model.requests) == 1
    assert len(broker.dead) == 1


async def test_delivering_a_settled_extraction_again_calls_nobody_and_changes_nothing(
    parts: Installation, broker: Broker
) -> None:
    await announced(parts, broker, "I live in Porto.")
    first = broker.waiting[0]
    model = ScriptedModel({"semantic": [home(1)]})
    settled = await run(parts, broker, model)

    broker.waiting.extend([first, first.model_copy(update={"headers": ()})])
    # Whoever begins what is settled can't claim it, and would go round for ever.
    async with asyncio.timeout(30):
        again = await run(parts, broker, model)

    assert again == settled
    assert len(model.requests) == 1


async def test_no_two_identities_share_a_record(parts: Installation, broker: Broker) -> None:
    await announced(parts, broker, "I live in Porto.")
    await run(parts, broker, ScriptedModel({"semantic": [home(1)]}))

    mine = [
        r
        async for r in parts.records.of_scope(
            ReadScope(project_id="default", user_id=IDENTITY.user_id)
        )
    ]
    others = [
        r async for r in parts.records.of_scope(ReadScope(project_id="default", user_id="bo"))
    ]

    assert len(mine) == 1
    assert others == []


async def test_a_redelivery_in_the_same_process_waits_for_the_first_and_spends_nothing(
    parts: Installation, broker: Broker
) -> None:
    await announced(parts, broker, "I live in Porto.")
    message = broker.waiting.popleft()
    gate = asyncio.Event()
    model = ScriptedModel(ConnectionResetError("reset"), gate=gate)
    step = extraction_step(parts, model)

    first, second = (asyncio.create_task(step(message)) for _ in range(2))
    await until(lambda: bool(model.requests))
    gate.set()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(first, second)

    ledger = await ledger_of(parts)
    assert len(model.requests) == len(ledger.attempts) == 1
    assert len(broker.waiting) == 1
    assert ledger.claim is None


async def test_a_worker_whose_lease_ran_out_never_gets_its_successors_claim(
    parts: Installation, broker: Broker
) -> None:
    await announced(parts, broker, "I live in Porto.", "I like tea.")
    message = broker.waiting.popleft()
    gate = asyncio.Event()
    too_long = AnswerError(FailureClass.CONTEXT_LENGTH, "context_length_exceeded")
    late = ScriptedModel({"semantic": [home(1)]}, gate=gate)
    stalled = asyncio.create_task(extraction_step(parts, late)(message))
    await until(lambda: bool(late.requests))
    await lapse(parts)
    other_gate = asyncio.Event()
    successor = ScriptedModel(too_long, {}, gate=other_gate)
    copy = message.model_copy(update={"at": message.at.model_copy(update={"offset": 99})})
    working = asyncio.create_task(extraction_step(parts, successor)(copy))
    await until(lambda: bool(successor.requests))
    claim = (await ledger_of(parts)).claim

    gate.set()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await stalled

    assert (await ledger_of(parts)).claim == claim
    assert len(late.requests) == 1
    other_gate.set()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await working
    assert (await ledger_of(parts)).outcome is not None


async def test_the_last_live_message_of_a_dead_holder_is_never_dropped(
    parts: Installation, broker: Broker
) -> None:
    await announced(parts, broker, "I live in Porto.")
    message = broker.waiting.popleft()
    dead = ScriptedModel({}, gate=asyncio.Event())
    holder = asyncio.create_task(extraction_step(parts, dead)(message))
    await until(lambda: bool(dead.requests))
    step = extraction_step(parts, ScriptedModel({"semantic": [home(1)]}))

    await step(message)
    deferred = broker.waiting.popleft()
    await step(deferred)
    again = broker.waiting.popleft()
    await step(deferred)

    assert (await ledger_of(parts)).outcome is None
    await lapse(parts)
    await step(again)
    assert (await ledger_of(parts)).outcome is Outcome.RECORDS
    holder.cancel()
    await asyncio.wait({holder})


async def test_a_live_holder_records_its_failure_though_its_message_was_deferred(
    parts: Installation, broker: Broker
) -> None:
    await announced(parts, broker, "I live in Porto.")
    message = broker.waiting.popleft()
    gate = asyncio.Event()
    model = ScriptedModel(ConnectionResetError("reset"), gate=gate)
    holder = asyncio.create_task(extraction_step(parts, model)(message))
    await until(lambda: bool(model.requests))
    await extraction_step(parts, ScriptedModel({}))(message)

    gate.set()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await holder

    ledger = await ledger_of(parts)
    assert [one.failure.failure_class for one in ledger.attempts] == ["env.network"]
    assert ledger.claim is None
    assert ledger.next.ticket == header_ticket(broker.waiting[-1])


async def test_a_run_that_is_not_active_is_neither_paid_for_nor_settles_the_snapshot(
    parts: Installation, broker: Broker
) -> None:
    cut = await announced(parts, broker, "I live in Porto.")
    broker.waiting.clear()
    other = ready_event(ready_data(cut, 1), SAID_AT)
    await broker.publish(encode(SNAPSHOT_READY.name, other, ticket=FIRST_TICKET))
    model = ScriptedModel({"semantic": [home(1)]})

    await extraction_step(parts, model)(broker.waiting.popleft())

    assert model.requests == []
    kept = await parts.snapshots.get(cut.snapshot_id)
    assert kept is not None
    assert not kept.settled


async def test_time_that_was_held_does_not_count_towards_the_age_cap(
    parts: Installation, broker: Broker
) -> None:
    await announced(parts, broker, "I live in Porto.")
    message = broker.waiting.popleft()
    unknown = AnswerError(FailureClass.MODEL_UNKNOWN, "model_not_found")
    limited = AnswerError(FailureClass.RATE_LIMITED, "http_429")
    step = extraction_step(parts, ScriptedModel(unknown, limited))
    with pytest.raises(HeldError):
        await step(message)
    two_days_ms = 48 * 3600 * 1000
    back = {"first_seen_ms": -two_days_ms, "held_since_ms": -two_days_ms}
    await parts.database["extractions"].update_one({}, {"$inc": back})
    breakers = MongoBreakers(parts.database)
    (breaker,) = await breakers.all()
    await resume_breaker(breaker.breaker_id, breakers, parts.server_time)

    await step(message)

    assert (await ledger_of(parts)).outcome is None
    assert len(broker.waiting) == 1


async def test_time_behind_what_was_held_does_not_count_either(
    parts: Installation, broker: Broker
) -> None:
    """A message that lay two days behind a held one was tried for none of them."""
    await announced(parts, broker, "I live in Porto.")
    limited = AnswerError(FailureClass.RATE_LIMITED, "http_429")
    step = extraction_step(parts, ScriptedModel(limited))
    await step(broker.waiting.popleft())
    two_days_ms = 48 * 3600 * 1000
    back = {"first_seen_ms": -two_days_ms, "next.due_ms": -two_days_ms}
    await parts.database["extractions"].update_one({}, {"$inc": back})
    seen_ms = (await ledger_of(parts)).first_seen_ms
    message = broker.waiting.popleft()

    await step(message)

    found = await ledger_of(parts)
    assert found.outcome is None
    assert len(found.attempts) == 2
    assert abs(found.first_seen_ms - seen_ms - two_days_ms) < 600_000


async def test_one_part_that_is_too_slow_takes_no_other_with_it(
    parts: Installation, broker: Broker
) -> None:
    await announced(parts, broker, "I live in Porto.", "I like tea.", "I run.", "I am Ana.")
    too_long = AnswerError(FailureClass.CONTEXT_LENGTH, "context_length_exceeded")
    slow = [TimeoutError()] * 3
    model = ScriptedModel(too_long, *slow, {"semantic": [home(3, "I run.")]})

    settled = await run(parts, broker, model)

    assert settled.outcome is Outcome.PARTIAL
    assert [part.state for part in settled.parts] == ["split", "dead", "answered"]


async def test_no_context_means_none(parts: Installation, broker: Broker) -> None:
    await announced(parts, broker, "I live in Porto.", "I like tea.")
    extraction = parts.settings.extraction.model_copy(update={"context_turns": 0})
    settings = parts.settings.model_copy(update={"extraction": extraction})
    bare = await wire(settings, parts.database, broker)
    too_long = AnswerError(FailureClass.CONTEXT_LENGTH, "context_length_exceeded")
    model = ScriptedModel(too_long, {})

    await run(bare, broker, model)

    assert [len(request.context) for request in model.requests] == [0, 0, 0]


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            if holds():
                return
            await asyncio.sleep(0.01)


async def ledger_of(parts: Installation) -> Extraction:
    found = await parts.extractions.get(f"{snapshot().snapshot_id}:0")
    assert found is not None
    return found


async def lapse(parts: Installation) -> None:
    """Let the lease of whoever holds the extraction have ended."""
    await parts.database["extractions"].update_one({}, {"$set": {"claim.lease_until_ms": 0}})


def header_ticket(message: IncomingMessage) -> str | None:
    return message.header(TICKET_HEADER)
