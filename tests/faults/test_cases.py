"""What went wrong in systems like this one, tried end to end: turns in, records or letters out.

Recording, cutting, extraction and folding are the real ones on a real database, the model is the
real adapter at a scripted endpoint; only Kafka is a queue in memory.
"""

import asyncio
import json
import threading
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from pymongo.errors import AutoReconnect, PyMongoError

from consumers.extraction_wiring import extraction_step
from consumers.recording_wiring import recorder, snapshot_step
from consumers.wiring import Installation, wire
from pipeline.cutting import SnapshotStep
from pipeline.errors import BrokerUnavailableError, InvalidInputError
from pipeline.extracting.step import ExtractionStep
from pipeline.failing.gating import HeldError
from pipeline.models.choosing import model_from
from pipeline.ports.extractions import Extractions
from pipeline.reading.memories import text_of
from pipeline.settings import LLMSettings, Settings
from pipeline.stores.mongo import Database
from schemas.extraction import Extraction, Outcome
from schemas.failure import Coordinates, FailureClass
from schemas.identity import ReadScope, SessionIdentity
from schemas.message import IncomingMessage, OutgoingMessage
from schemas.record import Record, RunState
from schemas.snapshot import Snapshot
from schemas.topics import DEAD, RECORD_CHANGED, RETRY_TIERS, TURN_RECORDED, Stage
from tests import scripted_endpoint as scripted
from tests.faults.test_crash_points import turns_of
from tests.scripted_endpoint import Json, Reply, ScriptedEndpoint
from tests.virtual_time import VirtualTime

PATIENCE_SECONDS = 60
TALK = SessionIdentity(user_id="noor", session_id="talk")
OTHER = SessionIdentity(user_id="noor", session_id="other")
SECRET = "sk-test-0000000000000000000000"
HASH = "3f5a9c0d1e2b4a6f8c7d5e3b1a0f9e8d7c6b5a43"
DELAYS = {tier.topic.name: tier.delay for tier in RETRY_TIERS[Stage.EXTRACTION]}


class Queue:
    """Kafka in memory: what is published waits until it is delivered."""

    def __init__(self) -> None:
        self.published: list[OutgoingMessage] = []
        self.waiting: deque[IncomingMessage] = deque()
        self.is_away = False

    async def publish(self, message: OutgoingMessage) -> None:
        if self.is_away:
            raise BrokerUnavailableError("Kafka is away")
        self.published.append(message)
        self.redeliver([message])

    def redeliver(self, messages: Sequence[OutgoingMessage]) -> None:
        for message in messages:
            if message.topic in {RECORD_CHANGED.name, *(topic.name for topic in DEAD.values())}:
                continue
            at = Coordinates(
                topic=message.topic,
                partition=0,
                offset=self.published.index(message),
                timestamp_ms=0,
                group="g",
            )
            self.waiting.append(
                IncomingMessage(
                    at=at, key=message.key, value=message.value, headers=message.headers
                )
            )

    @property
    def dead(self) -> list[OutgoingMessage]:
        return [message for message in self.published if message.topic == _DEAD]

    @property
    def retries(self) -> list[OutgoingMessage]:
        return [message for message in self.published if message.topic in DELAYS]


_DEAD = DEAD[Stage.EXTRACTION].name


@dataclass(slots=True, kw_only=True)
class World:
    """The pipeline of one process, delivered to by hand."""

    parts: Installation
    queue: Queue
    time: VirtualTime
    cut: SnapshotStep
    extract: ExtractionStep
    held: list[IncomingMessage] = field(default_factory=list[IncomingMessage])

    async def says(
        self, *turns: str | Json, identity: SessionIdentity = TALK, closes: bool = True
    ) -> None:
        """Record turns, of the user where only their text is given."""
        async with recorder(self.parts) as recording:
            for turn in turns:
                said = {"role": "user", "content": turn} if isinstance(turn, str) else turn
                await recording.record(identity, said)
            if closes:
                await recording.close(identity)

    async def deliver(self, most: int = 500) -> None:
        """Deliver until nothing waits; what a step holds is put aside."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            for _ in range(most):
                if not self.queue.waiting:
                    return
                message = self.queue.waiting.popleft()
                is_turn = message.at.topic == TURN_RECORDED.name
                self.time.passes(DELAYS.get(message.at.topic, timedelta(0)))
                try:
                    await (self.cut if is_turn else self.extract)(message)
                except (HeldError, PyMongoError):
                    self.held.append(message)
        raise AssertionError("it is delivered for ever")

    async def cut_only(self) -> None:
        """Cut what was said, and leave what is ready for extraction waiting."""
        for message in list(self.queue.waiting):
            if message.at.topic == TURN_RECORDED.name:
                self.queue.waiting.remove(message)
                await self.cut(message)

    async def snapshots(self, identity: SessionIdentity = TALK) -> list[Snapshot]:
        session = self.parts.ids.session(identity, 1)
        return await self.parts.snapshots.covering(session, 1) if session else []

    async def ledger(self) -> list[Extraction]:
        """Return every extraction, in the order of their beginning."""
        ids = [one["_id"] async for one in self.parts.database["extractions"].find()]
        found = [await self.parts.extractions.get(each) for each in ids]
        return [one for one in found if one is not None]

    async def records(self, user: str = "noor") -> list[Record]:
        """Return what a user is remembered by; shells are none."""
        of_scope = self.parts.records.of_scope(ReadScope(project_id="default", user_id=user))
        return [record async for record in of_scope if record.runs]

    async def letters(self) -> list[dict[str, Any]]:
        return [letter async for letter in self.parts.database["letters"].find()]

    async def tiles(self) -> list[tuple[int, int]]:
        found = self.parts.database["snapshots"].find().sort("first_seq")
        return [(one["first_seq"], one["last_seq"]) async for one in found]


@asynccontextmanager
async def world_on(database: Database, endpoint: ScriptedEndpoint) -> AsyncGenerator[World]:
    """Bring a pipeline up on a database."""
    queue = Queue()
    time = VirtualTime()
    parts = await wire(Settings(), database, queue, server_time=time)
    model = model_from(
        LLMSettings(
            provider="openai_compatible",
            model="scripted-1",
            base_url=endpoint.url,
            timeout=timedelta(seconds=5),
            max_tokens=1000,
        )
    )
    await model.prepare()
    yield World(
        parts=parts,
        queue=queue,
        time=time,
        cut=snapshot_step(parts),
        extract=extraction_step(parts, model),
    )
    await model.aclose()


@pytest.fixture
async def world(db: Database, endpoint: ScriptedEndpoint) -> AsyncIterator[World]:
    async with world_on(db, endpoint) as running:
        yield running


def fact(text: str, seq: int, *, attribute: str = "note", **more: Any) -> Json:
    """Return an item about the user; its quote is its text unless told otherwise."""
    return {
        "attribute": attribute,
        "label": text,
        "text": text,
        "evidence": [seq],
        "quote": text,
    } | more


def contents(records: Sequence[Record], state: RunState = RunState.CURRENT) -> list[str]:
    return sorted(
        text_of(run.content) for record in records for run in record.runs if run.state is state
    )


# --- nothing found, and failed -------------------------------------------------------------------


async def test_nothing_worth_keeping_and_a_model_that_fails_are_two_outcomes(
    world: World, endpoint: ScriptedEndpoint
) -> None:
    endpoint.script(scripted.answers())
    endpoint.always(scripted.status(500))
    await world.says("ok", "thanks", identity=TALK)
    await world.deliver()
    await world.says("ok", "thanks", identity=OTHER)
    await world.deliver()

    outcomes = {one.session: one.outcome for one in await world.ledger()}

    ids = world.parts.ids
    assert outcomes == {
        ids.session(TALK, 1): Outcome.NOTHING_FOUND,
        ids.session(OTHER, 1): Outcome.DEAD,
    }
    assert len(world.queue.dead) == len(await world.letters()) == 1


NO_ITEMS: Json = {"semantic": [], "episodic": [], "procedural": [], "taxonomic": [], "summary": ""}
TEA = fact("Noor likes tea", 1)
LOSING: dict[str, tuple[Reply, FailureClass]] = {
    "braces in prose": (
        scripted.says(f'Using {{schema}} now: {{"semantic": [{json.dumps(TEA)}]}}'),
        FailureClass.INVALID_OUTPUT,
    ),
    "two tool calls": (
        scripted.calls_tool({**NO_ITEMS, "semantic": [TEA]}, {**NO_ITEMS, "semantic": [TEA]}),
        FailureClass.INVALID_OUTPUT,
    ),
    "a key twice": (
        scripted.calls_tool(json.dumps(NO_ITEMS).replace("{", '{"semantic": [1], ', 1)),
        FailureClass.INVALID_OUTPUT,
    ),
    "cut off, one turn only": (scripted.cut_off(), FailureClass.TRUNCATED),
    "an apology": (scripted.says("Sorry, I cannot help with that."), FailureClass.INVALID_OUTPUT),
    "no answer": (scripted.says(None), FailureClass.INVALID_OUTPUT),
    "a refusal": (scripted.refuses(), FailureClass.REFUSED),
    "a filter": (scripted.filtered(), FailureClass.FILTERED),
    "a filter by status": (
        scripted.status(400, error_code="content_filter"),
        FailureClass.FILTERED,
    ),
    "too long": (
        scripted.status(400, error_code="context_length_exceeded"),
        FailureClass.CONTEXT_LENGTH,
    ),
}


@pytest.mark.parametrize("case", LOSING)
async def test_an_answer_that_would_lose_something_is_a_letter_and_never_nothing(
    case: str, world: World, endpoint: ScriptedEndpoint
) -> None:
    reply, failure_class = LOSING[case]
    endpoint.always(reply)
    await world.says("Noor likes tea")

    await world.deliver()

    (settled,) = await world.ledger()
    (letter,) = await world.letters()
    assert settled.outcome is Outcome.DEAD
    assert (letter["failure_class"], letter["disposition"]) == (failure_class, "content")
    assert world.queue.retries == []
    assert endpoint.count <= 2


@pytest.mark.parametrize(
    "reply",
    [
        scripted.status(503),
        scripted.resets(),
        scripted.completes([]),
        scripted.sends({"weird": 1}),
        scripted.html(),
    ],
)
async def test_what_is_no_fault_of_the_words_waits_and_then_succeeds(
    reply: Reply, world: World, endpoint: ScriptedEndpoint
) -> None:
    endpoint.script(reply, scripted.answers(semantic=[TEA]))
    await world.says("Noor likes tea")

    await world.deliver()

    (settled,) = await world.ledger()
    assert settled.outcome is Outcome.RECORDS
    assert [one.failure.failure_class.is_environmental for one in settled.attempts] == [True]
    assert len(world.queue.retries) == 1
    assert contents(await world.records()) == ["Noor likes tea"]
    assert await world.letters() == []


async def test_a_rate_limit_is_waited_for_as_long_as_it_says(
    world: World, endpoint: ScriptedEndpoint
) -> None:
    endpoint.script(*[scripted.status(429, retry_after=7)] * 2, scripted.answers(semantic=[TEA]))
    await world.says("Noor likes tea")

    await world.deliver()

    (settled,) = await world.ledger()
    waits = [DELAYS[message.topic] for message in world.queue.retries]
    assert len(waits) == 2
    assert min(waits) >= timedelta(seconds=7)
    assert [one.failure.retry_after_seconds for one in settled.attempts] == [7, 7]
    assert len(await world.records()) == 1
    assert world.queue.dead == []


async def test_a_vendor_that_stays_away_costs_one_call_a_delivery_and_then_a_letter(
    world: World, endpoint: ScriptedEndpoint
) -> None:
    endpoint.always(scripted.status(503))
    await world.says("Noor likes tea")

    await world.deliver()

    (letter,) = await world.letters()
    assert letter["disposition"] == "exhausted"
    assert len(letter["attempts"]) == endpoint.count == 1 + len(world.queue.retries) == 8


async def test_a_model_nobody_knows_buries_nothing(
    world: World, endpoint: ScriptedEndpoint
) -> None:
    endpoint.script(scripted.status(404, error_code="model_not_found"))
    endpoint.always(scripted.answers(semantic=[TEA]))
    await world.says("Noor likes tea")
    await world.says("ok", identity=OTHER)

    await world.deliver()
    held, world.held = world.held, []
    assert len(held) == 2
    assert world.queue.dead == world.queue.retries == []
    assert endpoint.count == 1

    world.time.passes(timedelta(minutes=2))
    world.queue.waiting.extend(held)
    await world.deliver()

    assert {one.outcome for one in await world.ledger()} == {Outcome.RECORDS, Outcome.SET_ASIDE}
    assert all(one.attempts == () for one in await world.ledger())


# --- crashes, bugs, stops ------------------------------------------------------------------------


async def test_a_bug_with_one_snapshot_keeps_no_other_from_its_records(
    world: World, endpoint: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.always(scripted.answers(semantic=[TEA]))
    await world.says("Noor likes tea", identity=TALK)
    await world.says("Noor likes tea", identity=OTHER)
    first = world.parts.ids.session(TALK, 1)
    read = type(world.parts.turns).read

    async def broken(store: Any, session: str, *place: int) -> Any:
        if session == first:
            raise KeyError("Noor")
        return await read(store, session, *place)

    await world.cut_only()
    monkeypatch.setattr(type(world.parts.turns), "read", broken)

    await world.deliver()

    outcomes = {one.session: one.outcome for one in await world.ledger()}
    (letter,) = await world.letters()
    assert outcomes[first] is Outcome.DEAD
    assert Outcome.RECORDS in outcomes.values()
    assert letter["failure_class"] == FailureClass.UNCLASSIFIED
    assert len(letter["attempts"]) == 3
    assert len(await world.records()) == 1


async def test_a_turn_recorded_during_an_extraction_that_fails_is_neither_lost_nor_done(
    world: World, endpoint: ScriptedEndpoint
) -> None:
    gate = threading.Event()
    endpoint.script(scripted.held(scripted.status(500), gate))
    endpoint.respond_with(
        lambda request: scripted.answers(
            semantic=[fact(turn["content"], turn["seq"]) for turn in turns_of(request)]
        )
    )
    await world.says("I like tea.", "I like rain.", "I like snow.")
    await world.cut_only()
    delivering = asyncio.create_task(world.deliver())
    await asyncio.to_thread(endpoint.wait_for, 1)

    await world.says("I like hail.", closes=False)
    session = world.parts.ids.session(TALK, 1)
    still_open = [turn.seq for turn in await world.parts.turns.open_turns(session)]
    assert [one.outcome for one in await world.ledger()] == [None]
    gate.set()
    await delivering
    await world.says()
    await world.deliver()

    assert still_open == [4]
    assert await world.tiles() == [(1, 3), (4, 4)]
    assert len(contents(await world.records())) == 4


async def test_a_cancelled_extraction_spends_nothing_and_is_done_once_later(
    world: World, endpoint: ScriptedEndpoint
) -> None:
    endpoint.script(scripted.hangs(), scripted.answers(semantic=[TEA]))
    await world.says("Noor likes tea")
    await world.cut_only()
    message = world.queue.waiting[0]
    delivering = asyncio.create_task(world.extract(message))
    await asyncio.to_thread(endpoint.wait_for, 1)

    delivering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await delivering
    (stopped,) = await world.ledger()
    assert (stopped.attempts, stopped.claim, stopped.outcome) == ((), None, None)
    assert world.queue.retries == []
    await world.deliver()

    assert [one.outcome for one in await world.ledger()] == [Outcome.RECORDS]
    assert len(await world.records()) == 1


@pytest.mark.parametrize("times", [1, 2])
async def test_an_answer_the_database_did_not_take_is_kept_and_not_asked_for_again(
    times: int, world: World, endpoint: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.script(scripted.answers(semantic=[TEA]))
    await world.says("Noor likes tea")
    store = type(world.parts.extractions).store_reply
    failures = iter(range(times))

    async def shaky(extractions: Extractions, *given: Any, **more: Any) -> Extraction:
        if next(failures, None) is not None:
            raise AutoReconnect("gone")
        return await store(extractions, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(type(world.parts.extractions), "store_reply", shaky)

    await world.deliver()

    (settled,) = await world.ledger()
    assert (settled.outcome, settled.attempts) == (Outcome.RECORDS, ())
    assert endpoint.count == 1


@pytest.mark.parametrize(
    "reply", [scripted.status(503), scripted.refuses()], ids=["wait", "letter"]
)
async def test_a_fate_that_kafka_did_not_take_is_sent_by_the_sweep(
    reply: Reply, world: World, endpoint: ScriptedEndpoint
) -> None:
    """Not before its sender must have failed, and once."""
    endpoint.script(reply)
    await world.says("Noor likes tea")
    await world.cut_only()
    world.queue.is_away = True
    await world.deliver()
    world.queue.is_away = False
    before = len(world.queue.published)

    early = await world.parts.fates.sweep_unsent(10)
    world.time.passes(world.parts.settings.waker.lost_after + timedelta(seconds=30))
    due = await world.parts.fates.sweep_unsent(10)
    again = await world.parts.fates.sweep_unsent(10)

    assert (early, due, again) == (0, 1, 0)
    (sent,) = world.queue.published[before:]
    assert sent in world.queue.retries + world.queue.dead


async def test_without_a_database_nobody_is_asked_and_the_message_stays(
    world: World, endpoint: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.says("Noor likes tea")
    await world.cut_only()

    async def gone(*_given: Any, **_more: Any) -> Extraction:
        raise AutoReconnect("gone")

    with monkeypatch.context() as patch:
        patch.setattr(type(world.parts.extractions), "claim", gone)
        await world.deliver()

    assert endpoint.count == 0
    assert len(world.held) == 1
    assert [(one.attempts, one.outcome) for one in await world.ledger()] == [((), None)]
    assert world.queue.retries == world.queue.dead == []


async def test_a_turn_event_a_hundred_times_is_one_snapshot(
    world: World, endpoint: ScriptedEndpoint
) -> None:
    endpoint.always(scripted.answers(semantic=[TEA]))
    await world.says("Noor likes tea")
    world.queue.redeliver(world.queue.published[:1] * 100)

    await world.deliver()

    assert await world.tiles() == [(1, 1)]
    assert endpoint.count == 1


async def test_every_topic_from_its_beginning_three_times_grows_nothing(
    world: World, endpoint: ScriptedEndpoint
) -> None:
    endpoint.script(scripted.status(503))
    endpoint.respond_with(
        lambda request: scripted.answers(
            semantic=[fact(turn["content"], turn["seq"]) for turn in turns_of(request)]
        )
    )
    await world.says("I like tea.", "I like rain.")
    await world.deliver()
    before, calls, sent = await world.records(), endpoint.count, list(world.queue.published)

    for _ in range(3):
        world.queue.redeliver(sent)
        await world.deliver()

    assert await world.records() == before
    assert len(contents(before)) == 2
    assert endpoint.count == calls == 2
    assert await world.tiles() == [(1, 2)]
    assert world.queue.published == sent


# --- size, text ----------------------------------------------------------------------------------


async def test_a_fact_in_the_first_of_forty_long_turns_is_found(
    world: World, endpoint: ScriptedEndpoint
) -> None:
    long = ("so it went on and on " * 100)[:2000]

    def find(request: Json) -> Reply:
        firsts = [turn for turn in turns_of(request) if "Noor likes tea" in turn["content"]]
        return scripted.answers(semantic=[fact("Noor likes tea", turn["seq"]) for turn in firsts])

    endpoint.respond_with(find)
    await world.says(f"Noor likes tea. {long}"[:2000], *[long] * 39)

    await world.deliver()

    tiles = await world.tiles()
    assert len(tiles) > 1
    assert [seq for first, last in tiles for seq in range(first, last + 1)] == list(range(1, 41))
    asked = [turn["seq"] for one in endpoint.requests for turn in turns_of(one.json)]
    assert sorted(asked) == list(range(1, 41))
    assert contents(await world.records()) == ["Noor likes tea"]


@pytest.mark.parametrize(
    "text",
    [
        "abc\x00def",
        "a family 👩‍👩‍👧 of mine",
        "می‌خواهم",
        "क्‍ष",
        "مرحبا\u200f!",
        "e\u0301 is not \u00e9",
        "half \ufffd emoji",
    ],
)
async def test_text_comes_through_to_the_byte(
    text: str, world: World, endpoint: ScriptedEndpoint
) -> None:
    endpoint.script(scripted.answers(semantic=[fact(text, 1)]))
    await world.says(text)

    await world.deliver()

    (turn,) = await world.parts.turns.read(world.parts.ids.session(TALK, 1), 1, 9)
    assert turn.content == text
    (settled,) = await world.ledger()
    assert settled.outcome is Outcome.RECORDS
    assert settled.attempts == ()
    assert contents(await world.records()) == [text]


async def test_half_a_character_is_mended_on_both_ways(
    world: World, endpoint: ScriptedEndpoint
) -> None:
    said = "half \ud83d emoji"
    arguments = json.dumps({**NO_ITEMS, "semantic": [fact(said, 1)], "summary": said})
    assert "\\ud83d" in arguments
    endpoint.script(scripted.calls_tool(arguments))
    await world.says(said)

    await world.deliver()

    assert contents(await world.records()) == ["half \ufffd emoji"]
    assert world.queue.retries == world.queue.dead == []


async def test_turns_a_hair_apart_keep_their_order(
    world: World, endpoint: ScriptedEndpoint
) -> None:
    endpoint.respond_with(
        lambda request: scripted.answers(
            semantic=[
                fact(turn["content"], turn["seq"], attribute="home", relation="replaces")
                for turn in turns_of(request)
            ]
        )
    )
    moments = ["2026-03-01T10:00:00.000900Z", "2026-03-01T10:00:00.000700Z"]
    await world.says(
        *(
            {"role": "user", "content": content, "created_at": moment}
            for content, moment in zip(["I live in Lima.", "I live in Rome."], moments, strict=True)
        )
    )

    await world.deliver()

    assert contents(await world.records()) == ["I live in Rome."]


async def test_what_is_too_large_is_refused_and_nothing_of_it_is_kept(world: World) -> None:
    with pytest.raises(InvalidInputError):
        await world.says("x" * (2 * 1024 * 1024 + 1))

    assert await world.parts.turns.read(world.parts.ids.session(TALK, 1), 1, 9) == []
    assert world.queue.published == []


async def test_a_large_turn_is_announced_by_reference(
    world: World, endpoint: ScriptedEndpoint
) -> None:
    endpoint.script(scripted.answers(semantic=[fact("Noor likes tea", 1)]))
    await world.says("Noor likes tea. " + "x " * 750_000)

    await world.deliver()

    assert max(len(message.value or b"") for message in world.queue.published) < 10_000
    assert contents(await world.records()) == ["Noor likes tea"]


# --- what is worth keeping -----------------------------------------------------------------------


async def test_one_fact_in_three_spellings_is_one_record(
    world: World, endpoint: ScriptedEndpoint
) -> None:
    quote = {"quote": "I moved to Oslo", "attribute": "home"}
    spellings = ["Ade moved to Oslo", "Ade moved to Oslo.", "ade moved to  Oslo"]
    endpoint.script(scripted.answers(semantic=[fact(text, 1, **quote) for text in spellings]))
    await world.says("I moved to Oslo")

    await world.deliver()

    (record,) = await world.records()
    assert len(record.runs) == 1
    (settled,) = await world.ledger()
    assert [item.reason for item in settled.parts[0].set_aside] == ["repeated"] * 2


async def test_neither_instructions_nor_what_an_assistant_made_up_is_remembered(
    world: World, endpoint: ScriptedEndpoint
) -> None:
    prompt = "You are a helpful assistant for Acme"
    invented = "You are a keen sailor."
    endpoint.script(
        scripted.answers(
            semantic=[fact(prompt, 1), fact(prompt, 2), fact(invented, 3), fact("hi", 2)],
            procedural=[
                {
                    "name": "help",
                    "description": "Help Acme.",
                    "steps": ["help"],
                    "evidence": [1, 2],
                    "quote": prompt,
                }
            ],
        )
    )
    await world.says(
        {"role": "system", "content": prompt}, "hi", {"role": "assistant", "content": invented}
    )

    await world.deliver()

    (settled,) = await world.ledger()
    assert settled.outcome is Outcome.SET_ASIDE
    assert await world.records() == []
    assert "Acme" not in endpoint.requests[0].messages[-1]["content"]


@pytest.mark.parametrize("relation", ["adds", "replaces", "corrects"])
async def test_saying_it_again_deletes_nothing(
    relation: str, world: World, endpoint: ScriptedEndpoint
) -> None:
    endpoint.always(scripted.answers(semantic=[TEA | {"relation": relation}]))
    await world.says("Noor likes tea", identity=TALK)
    await world.says("Noor likes tea", identity=OTHER)

    await world.deliver()

    (record,) = await world.records()
    (run,) = record.runs
    assert run.state is RunState.CURRENT
    assert len(run.assertions) == 2


async def test_a_vague_remark_takes_no_allergy_away(
    world: World, endpoint: ScriptedEndpoint
) -> None:
    allergy, remark = "I am allergic to peanuts", "that peanut sauce looks nice"
    sauce = fact(remark, 2, attribute="preference:food", relation="replaces")
    endpoint.script(scripted.answers(semantic=[fact(allergy, 1, attribute="allergy"), sauce]))
    await world.says(f"{allergy}, confirmed by my doctor", remark)

    await world.deliver()

    assert contents(await world.records()) == sorted([allergy, remark])


LIVES = ["Ana lives in Lima", "Ana manages payroll", "Bo moved to Quito", "Ana runs the audit"]


@pytest.mark.parametrize("relation", ["adds", "replaces"])
async def test_facts_that_share_a_name_only_close_none_of_each_other(
    relation: str, world: World, endpoint: ScriptedEndpoint
) -> None:
    attributes = [("Ana", "home"), ("Ana", "role"), ("Bo", "home"), ("Ana", "duty")]
    items = [
        fact(text, seq, subject=subject, attribute=attribute, relation=relation)
        for seq, (text, (subject, attribute)) in enumerate(
            zip(LIVES, attributes, strict=True), start=1
        )
    ]
    endpoint.script(scripted.answers(semantic=items))
    await world.says(*LIVES)

    await world.deliver()

    assert contents(await world.records()) == sorted(LIVES)


@pytest.mark.parametrize("older_last", [False, True])
async def test_what_was_said_earlier_and_is_extracted_later_replaces_nothing(
    older_last: bool, world: World, endpoint: ScriptedEndpoint
) -> None:
    endpoint.respond_with(
        lambda request: scripted.answers(
            semantic=[
                fact(turn["content"], turn["seq"], attribute="home", relation="replaces")
                for turn in turns_of(request)
            ]
        )
    )
    await world.says("I live in Lima.", identity=TALK)
    await world.says("I live in Rome.", identity=OTHER)
    await world.cut_only()
    if older_last:
        world.queue.waiting.reverse()

    await world.deliver()

    records = await world.records()
    assert contents(records) == ["I live in Rome."]
    assert contents(records, RunState.REPLACED) == ["I live in Lima."]


async def test_a_key_is_kept_nowhere_and_a_hash_is_no_key(
    world: World, endpoint: ScriptedEndpoint
) -> None:
    commit = f"the fix is commit {HASH}"
    endpoint.script(
        scripted.answers(
            semantic=[
                fact("I like tea", 1),
                fact(f"my key is {SECRET}", 1, attribute="key"),
                fact("I have a key", 1, attribute="key", label=SECRET, quote="I like tea"),
                fact(commit, 2, attribute="fix"),
            ],
            summary=f"The key is {SECRET}.",
        )
    )
    await world.says(f"my key is {SECRET} and I like tea", commit)

    await world.deliver()

    assert contents(await world.records()) == sorted(["I like tea", commit])
    assert SECRET not in endpoint.requests[0].body.decode()
    for collection in ("records", "assertions", "extractions", "snapshots", "letters"):
        kept = [one async for one in world.parts.database[collection].find()]
        assert SECRET not in json.dumps(kept, default=repr)
    assert SECRET not in repr(world.queue.published)
