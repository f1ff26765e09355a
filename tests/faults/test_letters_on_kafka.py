"""A letter that its dead topic does not take is whole in MongoDB and known on the topic."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer

from consumers.wiring import Installation, wire
from pipeline.errors import BrokerUnavailableError, MessageError
from pipeline.messages import OMITTED_HEADER, ORIGIN_HEADERS
from pipeline.settings import KafkaSettings, Settings
from pipeline.stores.mongo import Database
from producers.publishing import MAXIMUM_REQUEST_BYTES, KafkaPublisher
from producers.topics import apply_topics
from schemas.failure import Coordinates, FailureClass
from schemas.message import TICKET_HEADER, IncomingMessage, OutgoingMessage
from schemas.topics import DEAD, Stage
from tests.integration.kafka import Record

DEADLINE = timedelta(seconds=30)
DEAD_TOPIC = DEAD[Stage.EXTRACTION].name
TOO_LARGE = b"\xff" * (MAXIMUM_REQUEST_BYTES + 1)


class Away:
    """A Kafka that is away, then the real one."""

    def __init__(self, kafka: KafkaPublisher) -> None:
        self.kafka = kafka
        self.is_away = False

    async def publish(self, message: OutgoingMessage) -> None:
        if self.is_away:
            raise BrokerUnavailableError("away")
        await self.kafka.publish(message)


@pytest.fixture
async def kafka(bootstrap_servers: str) -> AsyncIterator[Away]:
    settings = KafkaSettings(bootstrap_servers=bootstrap_servers)
    await apply_topics(settings)
    publisher = KafkaPublisher(settings)
    yield Away(publisher)
    await publisher.stop()


@pytest.fixture
async def parts(db: Database, kafka: Away) -> Installation:
    return await wire(Settings(), db, kafka)


def unreadable(offset: int, value: bytes) -> IncomingMessage:
    """Return what no step can read, as it came."""
    return IncomingMessage(
        at=Coordinates(
            topic="afterturn.snapshot.ready.v1",
            partition=0,
            offset=offset,
            timestamp_ms=7,
            group="afterturn.extraction",
        ),
        key=b"k" * 300,
        value=value,
        headers=(("trace", b"t" * 10_000), ("trace", b"\xff")),
    )


async def settle(parts: Installation, message: IncomingMessage) -> None:
    """Set a message aside as a step does that can't read it."""
    error = MessageError(FailureClass.UNDECODABLE, "too_large")
    await parts.dead_letters.settle(message, Stage.EXTRACTION, error)


async def arrived(servers: str, letter_ids: set[str]) -> dict[str, Record]:
    """Return what the dead topic has of these letters, waiting for each of them."""
    found: dict[str, Record] = {}
    consumer: Any = AIOKafkaConsumer(
        DEAD_TOPIC, bootstrap_servers=servers, auto_offset_reset="earliest"
    )
    async with asyncio.timeout(DEADLINE.total_seconds()), consumer:
        while found.keys() != letter_ids:
            record: Record = await consumer.getone()
            ticket = (dict(record.headers)[TICKET_HEADER] or b"").decode()
            if ticket in letter_ids:
                found[ticket] = record
    return found


async def test_a_letter_too_large_for_its_topic_is_sent_by_reference(
    parts: Installation, db: Database, bootstrap_servers: str
) -> None:
    message = unreadable(1, TOO_LARGE)
    await settle(parts, message)
    (letter,) = [each async for each in db["letters"].find()]
    record = (await arrived(bootstrap_servers, {letter["_id"]}))[letter["_id"]]
    headers = dict(record.headers)

    assert (letter["value"], letter["key"]) == (TOO_LARGE, message.key)
    assert [tuple(each) for each in letter["headers"]] == list(message.headers)
    assert "unsent" not in letter
    assert (record.key, record.value) == (None, None)
    assert headers[OMITTED_HEADER] == b"too_large"
    assert headers[ORIGIN_HEADERS[2]] == b"1"
    assert "trace" not in headers


async def test_a_letter_too_large_keeps_none_behind_it_from_being_sent(
    parts: Installation, kafka: Away, db: Database, bootstrap_servers: str
) -> None:
    kafka.is_away = True
    for offset, value in enumerate([TOO_LARGE, b"\xff"]):
        await settle(parts, unreadable(offset, value))
    kafka.is_away = False
    sent = await parts.dead_letters.resend(2**60, 10)
    letters = {each["_id"]: each async for each in db["letters"].find()}
    records = await arrived(bootstrap_servers, set(letters))

    assert sent == 2
    assert all("unsent" not in each for each in letters.values())
    assert {record.value for record in records.values()} == {None, b"\xff"}
