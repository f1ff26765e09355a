"""The embedded services answer, keep their data and are used by one at a time."""

from datetime import UTC, datetime
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from pymongo import AsyncMongoClient


async def test_mongo_answers_with_what_was_inserted(mongo_uri: str) -> None:
    """A document comes back as it was inserted, times aware of their zone."""
    async with AsyncMongoClient[dict[str, Any]](mongo_uri, tz_aware=True) as client:
        turns = client["compose_test"]["turns"]
        said_at = datetime(2026, 1, 2, tzinfo=UTC)
        await turns.insert_one({"_id": "turn-1", "said_at": said_at})

        assert await turns.find_one({"_id": "turn-1"}) == {"_id": "turn-1", "said_at": said_at}


async def test_kafka_answers_with_what_was_produced(bootstrap_servers: str) -> None:
    """A message comes back as it was sent."""
    await create_topic(bootstrap_servers, "compose.answers")
    await produce(bootstrap_servers, "compose.answers", b"spoken")

    assert await consume(bootstrap_servers, "compose.answers") == b"spoken"


async def create_topic(bootstrap_servers: str, topic: str) -> None:
    """Create a topic of one partition."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
    finally:
        await admin.close()


async def produce(bootstrap_servers: str, topic: str, value: bytes) -> None:
    """Append one message and wait for its acknowledgement."""
    producer: Any = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, acks="all")
    async with producer:
        await producer.send_and_wait(topic, value)


async def consume(bootstrap_servers: str, topic: str) -> bytes | None:
    """Return the first message of a topic."""
    consumer: Any = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest"
    )
    async with consumer:
        return (await consumer.getone()).value
