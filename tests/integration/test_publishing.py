"""Publishing is exact, bounded in time whatever the broker does, and recovers by itself."""

import asyncio
import gc
import struct
import warnings
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from compose.embedded import EmbeddedKafka, embedded_kafka
from compose.processes import free_port
from pipeline.errors import BrokerUnavailableError
from pipeline.settings import KafkaSettings
from producers.publishing import (
    KafkaPublisher,
    _disconnect,  # pyright: ignore[reportPrivateUsage]
)
from schemas.message import OutgoingMessage
from tests.hanging import go_on, hang
from tests.integration.kafka import new_topic, records, records_until

API_VERSIONS = 18
SOON = timedelta(milliseconds=500)


async def test_a_message_arrives_byte_for_byte(bootstrap_servers: str) -> None:
    """Key, value and headers come through, unreadable, null and doubled ones too."""
    topic = await new_topic(bootstrap_servers)
    headers = (("a", b"\xff\x00"), ("a", b"again"), ("null", None), ("empty", b""))
    sent = [
        OutgoingMessage(topic=topic, key=b"k\xff", value=b"\xff\x00", headers=headers),
        OutgoingMessage(topic=topic, key=b"k", value=None, headers=()),
        OutgoingMessage(topic=topic, key=None, value=b"v", headers=()),
        OutgoingMessage(topic=topic, key=None, value=None, headers=headers),
    ]
    async with publishing(bootstrap_servers) as publisher:
        for message in sent:
            await publisher.publish(message)
    arrived = await records(bootstrap_servers, topic, len(sent))

    assert [
        OutgoingMessage(topic=topic, key=each.key, value=each.value, headers=tuple(each.headers))
        for each in arrived
    ] == sent


async def test_without_kafka_each_call_fails_in_time_and_few_connect() -> None:
    """A thousand callers share one attempt, and those right after it don't make another."""
    connections = 0

    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        servers = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with publishing(servers) as publisher, asyncio.timeout(3):
            results = await asyncio.gather(
                *(publisher.publish(message("t")) for _ in range(1000)), return_exceptions=True
            )
            with pytest.raises(BrokerUnavailableError, match="a moment ago"):
                await publisher.publish(message("t"))

    assert {type(result) for result in results} == {BrokerUnavailableError}
    assert connections <= 2


async def test_a_broker_that_never_answers_costs_no_more_than_the_timeout() -> None:
    """A black hole is no different from a refusal, and stopping is bounded, too."""

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(swallow, "127.0.0.1", 0) as server:
        servers = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with asyncio.timeout(3), publishing(servers) as publisher:
            with pytest.raises(BrokerUnavailableError):
                await publisher.publish(message("t"))


async def test_it_connects_when_kafka_appears(tmp_path: Path) -> None:
    """Kafka may be absent when a process starts."""
    port = free_port()
    async with publishing(f"127.0.0.1:{port}") as publisher:
        with pytest.raises(BrokerUnavailableError):
            await publisher.publish(message("t"))
        async with embedded_kafka(tmp_path, port=port) as kafka:
            topic = await new_topic(kafka.bootstrap_servers)
            await published(publisher, message(topic))

            assert len(await records(kafka.bootstrap_servers, topic, 1)) == 1


@pytest.mark.parametrize("fault", ["hangs", "dies"])
async def test_a_broker_lost_under_load_is_found_again(tmp_path: Path, fault: str) -> None:
    """Every call ends in time, nothing piles up, and what is published later arrives."""
    async with embedded_kafka(tmp_path) as kafka, publishing(kafka.bootstrap_servers) as publisher:
        topic = await new_topic(kafka.bootstrap_servers)
        await publisher.publish(message(topic))
        await asyncio.sleep(1.5)  # the embedded broker writes its data once a second
        tasks_before = len(asyncio.all_tasks())
        await lose(kafka, fault)
        async with asyncio.timeout(3):
            results = await asyncio.gather(
                *(publisher.publish(message(topic)) for _ in range(100)), return_exceptions=True
            )
            results.extend(
                await asyncio.gather(
                    *(publisher.publish(message(topic)) for _ in range(100)),
                    return_exceptions=True,
                )
            )
        await recover(kafka, fault)
        await published(publisher, message(topic, value=b"after"))
        async with asyncio.timeout(15):
            arrived = await records_until(kafka.bootstrap_servers, topic, b"after")
        async with asyncio.timeout(12):
            while len(asyncio.all_tasks()) > tasks_before + 1:  # noqa: ASYNC110 (nothing tells)
                await asyncio.sleep(0.1)

    assert {type(result) for result in results} == {BrokerUnavailableError}
    assert arrived[-1].value == b"after"


async def test_a_producer_that_let_its_callers_wait_is_replaced_once(tmp_path: Path) -> None:
    """What they gave it is given up after a while: a broker that hangs fills no memory."""
    async with embedded_kafka(tmp_path) as kafka, publishing(kafka.bootstrap_servers) as publisher:
        topic = await new_topic(kafka.bootstrap_servers)
        await publisher.publish(message(topic))
        await lose(kafka, "hangs")
        with capture_logs() as logs:
            await asyncio.gather(
                *(publisher.publish(message(topic)) for _ in range(50)), return_exceptions=True
            )
            async with asyncio.timeout(12):
                while "producer_abandoned" not in {e["event"] for e in logs}:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
        await recover(kafka, "hangs")
        await published(publisher, message(topic, value=b"after"))

    assert [each["reason"] for each in logs if each["event"] == "producer_replaced"] == ["timeout"]


@pytest.mark.parametrize("fault", ["hangs", "dies"])
async def test_stopping_is_bounded_when_the_broker_is_gone(tmp_path: Path, fault: str) -> None:
    """Whatever was under way: the cap holds."""
    async with embedded_kafka(tmp_path) as kafka:
        publisher = KafkaPublisher(settings(kafka.bootstrap_servers))
        topic = await new_topic(kafka.bootstrap_servers)
        await publisher.publish(message(topic))
        await lose(kafka, fault)
        waiting = [asyncio.create_task(publisher.publish(message(topic))) for _ in range(10)]
        await asyncio.sleep(0.1)
        async with asyncio.timeout(4):
            await publisher.stop(timedelta(seconds=1))
        await asyncio.wait(waiting)
        with pytest.raises(BrokerUnavailableError, match="stopped"):
            await publisher.publish(message(topic))
        await recover(kafka, fault)

    assert {type(task.exception()) for task in waiting} == {BrokerUnavailableError}


async def test_a_cancelled_caller_breaks_no_other(bootstrap_servers: str) -> None:
    """Neither while connecting nor while waiting for an acknowledgement."""
    topic = await new_topic(bootstrap_servers)
    async with publishing(bootstrap_servers, timeout=timedelta(seconds=5)) as publisher:
        for _ in range(5):
            tasks = [asyncio.create_task(publisher.publish(message(topic))) for _ in range(40)]
            await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            await asyncio.wait(tasks)

            assert all(task.exception() is None for task in tasks[1::2])
            assert all(task.cancelled() for task in tasks[::2])


@pytest.mark.kafka
async def test_a_message_too_large_does_not_poison_the_next(real_kafka_servers: str) -> None:
    """The producer is replaced: its sequence numbers would be out of order."""
    topic = await new_topic(real_kafka_servers)
    async with publishing(real_kafka_servers, timeout=timedelta(seconds=10)) as publisher:
        await publisher.publish(message(topic, value=b"1"))
        with pytest.raises(BrokerUnavailableError, match="MessageSizeTooLarge"):
            await publisher.publish(message(topic, value=b"x" * 2_000_000))
        await publisher.publish(message(topic, value=b"2"))
        await publisher.publish(message(topic, value=b"3"))
    arrived = await records(real_kafka_servers, topic, 3)

    assert [each.value for each in arrived] == [b"1", b"2", b"3"]


async def test_a_missing_topic_is_an_error_in_time(bootstrap_servers: str) -> None:
    """It is not created, and other topics stay usable."""
    topic = await new_topic(bootstrap_servers)
    async with publishing(bootstrap_servers) as publisher:
        await publisher.publish(message(topic))
        for _ in range(2):
            with pytest.raises(BrokerUnavailableError, match="UnknownTopic"):
                await publisher.publish(message("nobody.made.this"))
        await publisher.publish(message(topic))


def settings(servers: str, *, timeout: timedelta = SOON) -> KafkaSettings:
    """Return settings with a publish timeout."""
    return KafkaSettings(bootstrap_servers=servers, publish_timeout=timeout)


@asynccontextmanager
async def publishing(servers: str, *, timeout: timedelta = SOON) -> AsyncGenerator[KafkaPublisher]:
    """Run a publisher."""
    publisher = KafkaPublisher(settings(servers, timeout=timeout))
    try:
        yield publisher
    finally:
        await publisher.stop(timedelta(seconds=1))


def message(topic: str, *, value: bytes = b"v") -> OutgoingMessage:
    """Return a message."""
    return OutgoingMessage(topic=topic, key=b"k", value=value, headers=())


async def published(publisher: KafkaPublisher, sent: OutgoingMessage) -> None:
    """Publish, as often as it takes."""
    async with asyncio.timeout(15):
        while True:
            try:
                return await publisher.publish(sent)
            except BrokerUnavailableError:
                await asyncio.sleep(0.05)


async def lose(kafka: EmbeddedKafka, fault: str) -> None:
    """Make a broker hang or die."""
    if fault == "dies":
        await kafka.kill()
    else:
        hang(kafka)


async def recover(kafka: EmbeddedKafka, fault: str) -> None:
    """Bring it back."""
    if fault == "dies":
        await kafka.start()
    else:
        go_on(kafka)


async def test_a_stopped_publisher_leaves_no_connection_when_the_broker_comes_back(
    tmp_path: Path,
) -> None:
    """What was under way to a broker that hangs must not connect once it goes on."""
    async with embedded_kafka(tmp_path) as kafka:
        publisher = KafkaPublisher(settings(kafka.bootstrap_servers))
        topic = await new_topic(kafka.bootstrap_servers)
        await publisher.publish(message(topic))
        await lose(kafka, "hangs")
        with pytest.raises(BrokerUnavailableError):
            await publisher.publish(message(topic))
        await publisher.stop(timedelta(seconds=1))
        await recover(kafka, "hangs")
        async with asyncio.timeout(15):
            while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110 (the library's own)
                await asyncio.sleep(0.05)

        assert unclosed(publisher) == []


async def test_a_connect_that_is_given_up_halfway_leaves_no_connection() -> None:
    """The broker says what it speaks, and then nothing."""
    async with half_answering() as server:
        publisher = KafkaPublisher(settings(server))
        with pytest.raises(BrokerUnavailableError):
            await publisher.publish(message("topic"))
        await publisher.stop(timedelta(seconds=1))

        assert unclosed(publisher) == []


async def test_a_stop_closes_all_though_a_cancellation_of_the_library_is_lost(
    bootstrap_servers: str,
) -> None:
    """Its synchronizer goes on as though it were not asked to end, and completes what it holds."""
    topic = await new_topic(bootstrap_servers)
    asked = asyncio.Event()

    async def lose_one(*_: object) -> bool:
        asked.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return True

    async with publishing(bootstrap_servers) as publisher:
        await publisher.publish(message(topic))
        producer = connected(publisher)
        client = producer.client
        synchronizer = client._sync_task
        client._metadata_update = lose_one
        client.force_metadata_update()
        await asked.wait()
        await publisher.stop()

        assert not any(each.connected() for each in client._conns.values())
        assert producer._sender.sender_task.done()
        assert synchronizer.cancelled()


async def test_a_client_that_does_not_close_costs_no_sender(tmp_path: Path) -> None:
    """Whatever it raises, and though the broker hangs with a delivery under way."""

    async def refuse() -> None:
        raise asyncio.InvalidStateError

    async with embedded_kafka(tmp_path) as kafka, publishing(kafka.bootstrap_servers) as publisher:
        topic = await new_topic(kafka.bootstrap_servers)
        await publisher.publish(message(topic))
        producer = connected(publisher)
        close, producer.client.close = producer.client.close, refuse
        await lose(kafka, "hangs")
        waiting = asyncio.create_task(publisher.publish(message(topic)))
        async with asyncio.timeout(5):
            while not producer._sender._in_flight:  # noqa: ASYNC110 (nothing tells)
                await asyncio.sleep(0.01)
        with pytest.raises(asyncio.InvalidStateError):
            await _disconnect(producer)

        assert producer._sender.sender_task.done()

        await close()
        with pytest.raises(BrokerUnavailableError):
            await waiting
        await recover(kafka, "hangs")


def connected(publisher: KafkaPublisher) -> Any:
    """Return the producer of a publisher, of a library without types."""
    return publisher._producer  # pyright: ignore[reportPrivateUsage]


def unclosed(*stopped: KafkaPublisher) -> list[str]:
    """Return what was let go of without being closed, when nobody holds it any more."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        del stopped
        gc.collect()
    return [str(each.message) for each in said if each.category is ResourceWarning]


@asynccontextmanager
async def half_answering() -> AsyncGenerator[str]:
    """Run a broker that answers which versions it speaks, and no request after that."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                key, _, correlation = struct.unpack(">hhi", (await reader.readexactly(size))[:8])
                if key == API_VERSIONS:
                    spoken = struct.pack(">ihihhhhhh", correlation, 0, 2, 3, 0, 5, key, 0, 0)
                    writer.write(struct.pack(">i", len(spoken)) + spoken)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1")
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
