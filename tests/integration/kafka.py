"""A Kafka seen past our own code: topics made, records appended raw, read back, and committed."""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from schemas.message import Headers

Record = ConsumerRecord[bytes | None, bytes | None]


async def new_topic(
    servers: str, *, partitions: int = 1, name: str = "topic", is_log_append_time: bool = False
) -> str:
    """Create a topic of a name nobody has, and return it."""
    topic = f"{name}.{uuid4().hex[:12]}"
    configs = {"message.timestamp.type": "LogAppendTime"} if is_log_append_time else {}
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        await admin.create_topics(
            [
                NewTopic(
                    topic, num_partitions=partitions, replication_factor=1, topic_configs=configs
                )
            ]
        )
        while topic not in await _topics_with_leaders(admin):  # noqa: ASYNC110 (far away)
            await asyncio.sleep(0.05)
    finally:
        await admin.close()
    return topic


async def _topics_with_leaders(admin: Any) -> set[str]:
    described: list[dict[str, Any]] = await admin.describe_topics(None)
    return {
        each["topic"]
        for each in described
        if each["partitions"] and all(one["leader"] >= 0 for one in each["partitions"])
    }


async def append(
    servers: str,
    topic: str,
    values: Sequence[bytes | None],
    *,
    key: bytes | None = b"key",
    headers: Headers = (),
    partition: int | None = None,
) -> list[int]:
    """Append records in order and return their offsets."""
    producer: Any = AIOKafkaProducer(bootstrap_servers=servers, acks="all")
    async with producer:
        return [
            (
                await producer.send_and_wait(
                    topic, value, key=key, headers=list(headers), partition=partition
                )
            ).offset
            for value in values
        ]


async def records(servers: str, topic: str, count: int) -> list[Record]:
    """Return the first records of a topic."""
    consumer: Any = AIOKafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest")
    async with consumer:
        return [await consumer.getone() for _ in range(count)]


async def records_until(servers: str, topic: str, value: bytes) -> list[Record]:
    """Return the records of a topic up to the first one of a value."""
    consumer: Any = AIOKafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest")
    found: list[Record] = []
    async with consumer:
        while not found or found[-1].value != value:
            found.append(await consumer.getone())
    return found


async def end_offset(servers: str, topic: str, partition: int = 0) -> int:
    """Return the offset that the next record will have."""
    consumer: Any = AIOKafkaConsumer(bootstrap_servers=servers)
    async with consumer:
        tp = TopicPartition(topic, partition)
        return (await consumer.end_offsets([tp]))[tp]


async def committed(servers: str, group: str, topic: str, partition: int = 0) -> int | None:
    """Return what a group has committed of a partition."""
    admin: Any = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        offsets = await admin.list_consumer_group_offsets(group)
    finally:
        await admin.close()
    found = offsets.get(TopicPartition(topic, partition))
    return None if found is None or found.offset < 0 else found.offset
