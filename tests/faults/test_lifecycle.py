"""A process of the command line from its start to its end, whatever Kafka does meanwhile."""

import asyncio
import signal
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from compose.embedded import embedded_kafka
from compose.processes import free_port
from compose.real_kafka import real_kafka
from consumers.deadlines import longest_stop
from consumers.recording_wiring import recorder
from pipeline.extracting.planning import FIRST_TICKET, ready_data, ready_event
from pipeline.messages import encode
from schemas.extraction import Extraction, Outcome
from schemas.identity import SessionIdentity
from schemas.topics import GROUPS, SNAPSHOT_READY, Stage
from tests import scripted_endpoint as scripted
from tests.builders import SAID_AT, snapshot, turn
from tests.faults.processes import PATIENCE_SECONDS, World, installed
from tests.faults.proxy import proxy_to
from tests.hanging import hanging
from tests.integration.kafka import committed
from tests.integration.test_health import Answer, get
from tests.scripted_endpoint import ScriptedEndpoint

TALK = SessionIdentity(user_id="noor", session_id="talk")


@pytest.fixture
async def world(
    mongo_uri: str, bootstrap_servers: str, endpoint: ScriptedEndpoint
) -> AsyncIterator[World]:
    async with installed(mongo_uri, bootstrap_servers, endpoint) as running:
        yield running


async def is_asking(world: World, endpoint: ScriptedEndpoint) -> None:
    """Announce a snapshot, and wait until the model is being asked for it."""
    await world.parts.turns.insert(turn(1, "I live in Porto."), idempotency=None)
    await world.parts.snapshots.insert(snapshot(1, 1), wake_at_ms=2**60)
    event = ready_event(ready_data(snapshot(1, 1)), SAID_AT)
    await world.parts.publisher.publish(encode(SNAPSHOT_READY.name, event, ticket=FIRST_TICKET))
    await asyncio.to_thread(endpoint.wait_for, 1, timeout=timedelta(seconds=PATIENCE_SECONDS))


async def nothing_was_spent(world: World) -> None:
    """See that the claim was given back as if it had not been taken."""
    ledger = await extracted(world)
    assert (ledger.claim, ledger.crashes, ledger.attempts) == (None, 0, ())


@pytest.mark.parametrize("role", ["waker", "snapshot", "extraction"])
async def test_a_role_says_how_it_is_and_ends_when_told(role: str, world: World) -> None:
    async with world.run(role) as process:
        port = (await process.says("health_served"))["port"]
        await process.says("started")
        answers = [await get(port, path) for path in ("/live", "/ready", "/metrics")]
        code, seconds = await process.ends()

    assert [answer.status for answer in answers] == [200, 200, 200]
    dependencies = {"mongo", "kafka", *(["model"] if role == "extraction" else [])}
    assert set(answers[1].json["dependencies"]) == dependencies
    assert b"afterturn_measured_timestamp_seconds 1." in answers[2].body
    assert (code, process.said[-1]["event"]) == (0, "stopped")
    assert seconds < longest_stop(world.kafka).total_seconds()


async def test_deadlines_that_contradict_each_other_keep_a_role_from_starting(
    world: World,
) -> None:
    async with world.run("snapshot", AFTERTURN_KAFKA__REBALANCE_TIMEOUT="2") as process:
        async with asyncio.timeout(PATIENCE_SECONDS):
            code = await process.running.wait()
    said = "".join(process.errors)

    assert code == 1
    assert "AFTERTURN_KAFKA__DRAIN_TIMEOUT" in said
    assert "AFTERTURN_KAFKA__REBALANCE_TIMEOUT" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("role", ["waker", "snapshot", "extraction"])
async def test_kafka_that_hangs_keeps_no_role_from_ending(
    role: str, mongo_uri: str, endpoint: ScriptedEndpoint, tmp_path: Path
) -> None:
    endpoint.always(scripted.hangs())
    async with (
        embedded_kafka(tmp_path) as kafka,
        installed(mongo_uri, kafka.bootstrap_servers, endpoint) as world,
        world.run(role) as process,
    ):
        port = (await process.says("health_served"))["port"]
        await process.says("started")
        if role == "extraction":
            await is_asking(world, endpoint)
        with hanging(kafka):
            if role == "waker":
                await leave_open(world)
            ready = await not_ready(port)
            code, seconds = await process.ends()
        if role == "extraction":
            await nothing_was_spent(world)

    assert ready.json["dependencies"]["mongo"]["state"] == "well"
    assert ready.json["dependencies"]["kafka"]["state"] == "unreachable"
    assert code == 0
    assert seconds < longest_stop(world.kafka).total_seconds()


async def leave_open(world: World) -> None:
    """Record a turn that the waker would like to tell Kafka of."""
    async with recorder(world.parts) as recording:
        await recording.record(TALK, {"role": "user", "content": "I live in Porto."})
        await recording.close(TALK)


async def not_ready(port: int) -> Answer:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            answer = await get(port, "/ready")
            if answer.status == 503:
                return answer


async def test_a_call_that_ends_within_the_drain_is_settled_and_committed(
    mongo_uri: str, endpoint: ScriptedEndpoint, tmp_path: Path
) -> None:
    gate = threading.Event()
    endpoint.script(scripted.held(scripted.answers(), gate))
    async with (
        embedded_kafka(tmp_path) as kafka,
        installed(mongo_uri, kafka.bootstrap_servers, endpoint) as world,
        world.run("extraction") as process,
    ):
        await process.says("started")
        await is_asking(world, endpoint)
        process.running.send_signal(signal.SIGTERM)
        await process.says("stopping")
        gate.set()
        async with asyncio.timeout(PATIENCE_SECONDS):
            code = await process.running.wait()
        ledger = await extracted(world)
        at = await all_committed(kafka.bootstrap_servers)

    assert code == 0
    assert (ledger.outcome, ledger.attempts) == (Outcome.NOTHING_FOUND, ())
    assert at == {1}
    assert endpoint.count == 1


async def test_a_call_that_outlasts_the_drain_is_cancelled_and_made_anew_by_the_next(
    mongo_uri: str, endpoint: ScriptedEndpoint, tmp_path: Path
) -> None:
    endpoint.script(scripted.hangs(), scripted.answers())
    async with (
        embedded_kafka(tmp_path) as kafka,
        installed(mongo_uri, kafka.bootstrap_servers, endpoint) as world,
    ):
        async with world.run("extraction") as process:
            await process.says("started")
            await is_asking(world, endpoint)
            code, seconds = await process.ends()
        await nothing_was_spent(world)
        at_end = await all_committed(kafka.bootstrap_servers)
        async with world.run("extraction") as process:
            settled = await process.says("extraction_settled")
            await process.ends()
        ledger = await extracted(world)
        at = await all_committed(kafka.bootstrap_servers)

    assert code == 0
    assert seconds < longest_stop(world.kafka).total_seconds()
    assert at_end <= {0}
    assert settled["outcome"] == Outcome.NOTHING_FOUND
    assert (ledger.crashes, ledger.attempts) == (0, ())
    assert at == {1}
    assert endpoint.count == 2


async def extracted(world: World) -> Extraction:
    """Return the ledger of the snapshot that was announced."""
    ledger = await world.parts.extractions.get(f"{snapshot().snapshot_id}:0")
    assert ledger is not None
    return ledger


async def all_committed(servers: str) -> set[int]:
    """Return the offsets that the group has committed on its partitions."""
    found = [
        await committed(servers, GROUPS[Stage.EXTRACTION], SNAPSHOT_READY.name, partition)
        for partition in range(SNAPSHOT_READY.partitions)
    ]
    return {each for each in found if each is not None}


@pytest.mark.kafka
@pytest.mark.usefixtures("real_kafka_available")
async def test_a_black_hole_before_real_kafka_keeps_no_process_from_ending(
    mongo_uri: str, endpoint: ScriptedEndpoint, tmp_path: Path
) -> None:
    endpoint.always(scripted.hangs())
    port = free_port()
    async with (
        proxy_to(port) as proxy,
        real_kafka(tmp_path, ports=[port], advertised_ports=[proxy.port]) as kafka,
        installed(mongo_uri, kafka.bootstrap_servers, endpoint) as world,
        world.run("extraction") as process,
    ):
        await process.says("started")
        await is_asking(world, endpoint)
        proxy.stall()
        code, seconds = await process.ends()
        proxy.resume()
        await nothing_was_spent(world)

    assert code == 0
    assert seconds < longest_stop(world.kafka).total_seconds()
