"""One topic, one message: the least that a Kafka must do."""

from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic


async def create_topic(bootstrap_servers: str, topic: str) -> None:
    """Create a topic of one partition."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
    finally:
        await admin.close()


async def produce(bootstrap_servers: str, topic: str, value: bytes) -> None:
    """Append one message and wait until all in-sync replicas have it."""
    producer: Any = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, acks="all")
    async with producer:
        await producer.send_and_wait(topic, value)


async def first_message(bootstrap_servers: str, topic: str) -> bytes | None:
    """Return the first message of a topic."""
    consumer: Any = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest"
    )
    async with consumer:
        return (await consumer.getone()).value
