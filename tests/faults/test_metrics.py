"""What each kind of fault changes in the metrics: that, and nothing else.

The step runs in a real pool, on a real database, with the real adapter at a scripted endpoint; the
numbers are read from the exported page before and after.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from aiokafka import TopicPartition
from pymongo.errors import AutoReconnect

from consumers.exporting import PrometheusExporter
from consumers.extraction_wiring import configured_model, extraction_step
from consumers.pool import Pool, PoolLimits
from consumers.recording_wiring import recorder, snapshot_step
from consumers.wiring import Installation, wire
from pipeline.ports.model import Model
from pipeline.settings import LLMSettings, Settings
from pipeline.stores.backlog import read_backlog
from pipeline.stores.mongo import Database
from schemas.failure import Coordinates
from schemas.message import IncomingMessage
from schemas.topics import SNAPSHOT_READY, TURN_RECORDED
from tests import scripted_endpoint as scripted
from tests.faults.test_cases import TALK, Queue, fact
from tests.scripted_endpoint import Reply, ScriptedEndpoint
from tests.unit.test_metrics import Broken, samples
from tests.unit.test_pool import Consumer

PATIENCE_SECONDS = 30
QUICK = timedelta(milliseconds=20)
TEA = scripted.answers(semantic=[fact("Noor likes tea", 1)])
Difference = dict[tuple[str, str], float]

ANSWERED: Difference = {
    ("model_calls_total", "answered openai_compatible"): 1,
    ("model_tokens_total", "prompt openai_compatible"): 100,
    ("model_tokens_total", "completion openai_compatible"): 20,
}
WELL: Difference = {**ANSWERED, ("extractions_settled_total", "records"): 1}
UNUSABLE: Difference = {
    ("model_calls_unkept_total", "unusable"): 1,
    ("model_tokens_unkept_total", "prompt"): 100,
    ("model_tokens_unkept_total", "completion"): 20,
    ("model_tokens_total", "prompt openai_compatible"): 100,
    ("model_tokens_total", "completion openai_compatible"): 20,
}
"""Of an answer that was paid for and is of no use."""


@dataclass(slots=True, kw_only=True)
class World:
    """One extraction process whose messages are delivered by hand, and its metrics."""

    parts: Installation
    queue: Queue
    model: Model
    exporter: PrometheusExporter
    pool: Pool
    delivered: int = 0

    async def says(self, content: str) -> IncomingMessage:
        """Record a turn and cut it; return the message that is ready for extraction."""
        async with recorder(self.parts) as recording:
            await recording.record(TALK, {"role": "user", "content": content})
            await recording.close(TALK)
        cut = snapshot_step(self.parts)
        while self.queue.waiting[0].at.topic == TURN_RECORDED.name:
            await cut(self.queue.waiting.popleft())
        return self.queue.waiting.popleft()

    async def deliver(self, message: IncomingMessage) -> None:
        """Deliver a message, and wait until the pool is done with it."""
        at = message.at.model_copy(update={"topic": "topic", "offset": self.delivered})
        self.delivered += 1
        self.pool.submit(message.model_copy(update={"at": at}))
        await until(lambda: self.pool.in_flight == self.pool.held == 0)

    async def deliver_all(self) -> None:
        """Deliver until nothing waits, whenever it is due."""
        while self.queue.waiting:
            await self.deliver(self.queue.waiting.popleft())

    async def read(self) -> Difference:
        """Return the metrics that do not depend on the clock."""
        self.parts.metrics.backlog(await read_backlog(self.parts.database, self.parts.server_time))
        return {
            (name.removeprefix("afterturn_"), labels): value
            for (name, labels), value in samples(self.exporter).items()
            if not name.endswith("_seconds")
        }


@asynccontextmanager
async def world(
    db: Database, endpoint: ScriptedEndpoint, exporter: PrometheusExporter
) -> AsyncGenerator[World]:
    queue = Queue()
    parts = await wire(Settings(), db, queue, exporter)
    consumer = Consumer()
    async with configured_model(asking(endpoint, timedelta(seconds=1))) as model:
        pool = Pool(
            extraction_step(parts, model),
            PoolLimits(
                concurrency=1,
                drain_timeout=QUICK,
                commit_timeout=QUICK,
                first_hold=QUICK,
                longest_hold=QUICK,
            ),
            name="extraction",
            consumer=lambda: consumer,
            metrics=parts.metrics,
        )
        pool.start()
        await pool.on_partitions_assigned([TopicPartition("topic", 0)])
        yield World(
            parts=parts,
            queue=queue,
            model=model,
            exporter=exporter,
            pool=pool,
        )
        await pool.stop()


def asking(endpoint: ScriptedEndpoint, timeout: timedelta) -> LLMSettings:
    return LLMSettings(
        provider="openai_compatible", model="scripted-1", base_url=endpoint.url, timeout=timeout
    )


@pytest.fixture
async def measured(db: Database, endpoint: ScriptedEndpoint) -> AsyncIterator[World]:
    async with world(db, endpoint, PrometheusExporter()) as running:
        yield running


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            await asyncio.sleep(0.005)
            if holds():
                return


def together(*differences: Mapping[tuple[str, str], float]) -> Difference:
    """Return the sum of differences."""
    total: Difference = {}
    for each in differences:
        for key, change in each.items():
            total[key] = total.get(key, 0) + change
    return total


def between(before: Difference, after: Difference) -> Difference:
    """Return what changed."""
    changed = {key: after.get(key, 0) - before.get(key, 0) for key in before | after}
    return {key: change for key, change in changed.items() if change}


def failed(failure_class: str) -> Difference:
    """Return what one failed attempt changes that asked the model once."""
    return {
        ("attempts_failed_total", failure_class): 1,
        ("model_calls_total", f"{failure_class} openai_compatible"): 1,
    }


DEAD: Difference = {("extractions_settled_total", "dead"): 1}
CUT_OFF: Difference = {("model_calls_unkept_total", "cut_off"): 1}
REFUSED: Difference = {("letters", "content.refused"): 1, ("guards", "passing"): 1}
NOTED: Difference = {("breakers", "closed"): 1}
"""A failure that speaks against the target is written down; one is not enough to open it."""
FAULTS: dict[str, tuple[list[Reply], Difference]] = {
    "none": ([TEA], WELL),
    "429": ([scripted.status(429), TEA], together(failed("env.rate_limited"), WELL)),
    "500": ([scripted.status(500), TEA], together(failed("env.unavailable"), NOTED, WELL)),
    "reset": ([scripted.resets(), TEA], together(failed("env.network"), NOTED, WELL)),
    "timeout": (
        [scripted.hangs(), TEA],
        together(failed("env.timeout"), CUT_OFF, NOTED, WELL),
    ),
    "truncated": (
        [scripted.cut_off(), TEA],
        together(failed("content.truncated"), UNUSABLE, WELL),
    ),
    "refusal": (
        [scripted.refuses()],
        together(failed("content.refused"), UNUSABLE, DEAD, REFUSED),
    ),
    "invalid, then valid": (
        [scripted.says("Sure!"), TEA],
        together(
            WELL,
            {
                ("model_calls_total", "reask openai_compatible"): 1,
                ("model_calls_unkept_total", "reask"): 1,
                ("model_tokens_total", "prompt openai_compatible"): 100,
                ("model_tokens_total", "completion openai_compatible"): 20,
            },
        ),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_of_the_model_changes_these_numbers_and_no_other(
    fault: str, measured: World, endpoint: ScriptedEndpoint
) -> None:
    replies, expected = FAULTS[fault]
    endpoint.script(*replies)
    message = await measured.says("Noor likes tea")
    before = await measured.read()

    await measured.deliver(message)
    await measured.deliver_all()

    assert between(before, await measured.read()) == expected


async def test_a_hold_for_mongodb_is_counted_and_ends(
    measured: World, endpoint: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.script(TEA)
    message = await measured.says("Noor likes tea")
    before = await measured.read()
    ensure = measured.parts.extractions.ensure
    gate = asyncio.Event()

    async def unreachable(new: Any) -> Any:
        if not gate.is_set():
            raise AutoReconnect("planted words")
        return await ensure(new)

    monkeypatch.setattr(measured.parts.extractions, "ensure", unreachable)
    delivering = asyncio.create_task(measured.deliver(message))
    await until(lambda: measured.pool.held == 1)
    during = between(before, await measured.read())
    gate.set()
    await delivering

    after = between(before, await measured.read())
    holds = after.pop(("holds_total", "extraction"))
    assert during[("messages_held", "extraction")] == 1
    assert holds >= 1
    assert after == WELL


async def test_stale_and_settled_messages_are_suppressed_and_counted(
    measured: World, endpoint: ScriptedEndpoint
) -> None:
    endpoint.script(scripted.status(500), TEA)
    message = await measured.says("Noor likes tea")
    await measured.deliver(message)
    before = await measured.read()

    await measured.deliver(message)
    stale = await measured.read()
    await measured.deliver_all()
    settled = await measured.read()
    await measured.deliver(message)

    assert between(before, stale) == {("duplicates_suppressed_total", "stale"): 1}
    assert between(stale, settled) == WELL
    assert between(settled, await measured.read()) == {
        ("duplicates_suppressed_total", "settled"): 1
    }


async def test_an_undecodable_message_is_one_failed_attempt_and_one_letter(
    measured: World,
) -> None:
    before = await measured.read()
    at = Coordinates(topic=SNAPSHOT_READY.name, partition=0, offset=0, timestamp_ms=0, group="g")

    await measured.deliver(IncomingMessage(at=at, key=None, value=b"\xff\x00", headers=()))

    assert between(before, await measured.read()) == {
        ("attempts_failed_total", "content.undecodable"): 1,
        ("letters", "content.undecodable"): 1,
    }


async def test_an_answer_that_came_too_late_is_the_cost_of_a_repeated_call(
    measured: World, endpoint: ScriptedEndpoint
) -> None:
    gate = threading.Event()
    endpoint.script(scripted.held(TEA, gate), TEA)
    message = await measured.says("Noor likes tea")
    before = await measured.read()
    async with configured_model(asking(endpoint, timedelta(seconds=PATIENCE_SECONDS))) as slow:
        late = asyncio.create_task(extraction_step(measured.parts, slow)(message))
        await until(lambda: endpoint.count == 1)
        lapsed = {"$set": {"claim.lease_until_ms": 0}}
        await measured.parts.database["extractions"].update_one({}, lapsed)
        await measured.deliver(message)
        gate.set()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await late

    assert between(before, await measured.read()) == together(
        WELL,
        ANSWERED,
        {
            ("model_calls_unkept_total", "superseded"): 1,
            ("model_tokens_unkept_total", "prompt"): 100,
            ("model_tokens_unkept_total", "completion"): 20,
            ("duplicates_suppressed_total", "settled"): 1,
        },
    )


async def test_a_call_that_nobody_waited_for_is_counted(
    measured: World, endpoint: ScriptedEndpoint
) -> None:
    endpoint.script(scripted.hangs())
    message = await measured.says("Noor likes tea")
    before = await measured.read()
    asking = asyncio.create_task(extraction_step(measured.parts, measured.model)(message))
    await until(lambda: endpoint.count == 1)
    asking.cancel()
    await asyncio.wait({asking})

    assert between(before, await measured.read()) == {
        ("model_calls_total", "cut_off openai_compatible"): 1,
        ("model_calls_unkept_total", "cut_off"): 1,
    }


async def test_ages_are_those_of_the_oldest(measured: World, endpoint: ScriptedEndpoint) -> None:
    endpoint.script(scripted.refuses())
    message = await measured.says("Noor likes tea")
    await measured.deliver(message)
    async with recorder(measured.parts) as recording:
        await recording.record(TALK, {"role": "user", "content": "Still open."})
    back = {"$add": ["$created_at", -3_600_000]}
    await measured.parts.database["letters"].update_one({}, [{"$set": {"created_at": back}}])
    await measured.read()

    found = samples(measured.exporter)
    assert 0 < found["afterturn_open_turn_age_seconds", ""] < PATIENCE_SECONDS
    assert 3600 <= found["afterturn_letter_age_seconds", ""] < 3600 + PATIENCE_SECONDS


@pytest.mark.parametrize("fault", ["500", "refusal", "truncated"])
async def test_an_exporter_that_raises_changes_no_outcome(
    fault: str, db: Database, endpoint: ScriptedEndpoint
) -> None:
    replies, expected = FAULTS[fault]
    endpoint.script(*replies)
    broken = Broken()
    async with world(db, endpoint, broken) as running:
        await running.deliver(await running.says("Noor likes tea"))
        await running.deliver_all()
        outcomes = await db["extractions"].distinct("outcome")
        letters = await running.parts.letters.count()

    assert broken.tried > 0
    assert [("extractions_settled_total", outcome) in expected for outcome in outcomes] == [True]
    assert letters == sum(count for (name, _), count in expected.items() if name == "letters")
