"""How far a group is behind, seen from outside: a consumer that is dead tells nothing."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, cast

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from pipeline.errors import BrokerUnavailableError
from pipeline.settings import KafkaSettings
from producers.half_open import closing_half_open
from schemas.topics import Topic

TIMEOUT: Final = timedelta(seconds=15)
CLOSE_TIMEOUT: Final = timedelta(seconds=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """How far a group is behind on one partition."""

    topic: str
    partition: int
    committed: int | None
    """Where it resumes; none if it never committed."""
    end: int
    """The offset of the next record."""
    messages: int
    """How many offsets lie between; from the oldest one there is if it never committed."""


async def group_lag(
    settings: KafkaSettings, group: str, topics: Sequence[Topic]
) -> list[PartitionLag]:
    """Return the lag of a group on each partition of the topics that exist.

    Raises:
        BrokerUnavailableError: Kafka did not answer in time.
    """
    admin: Any = AIOKafkaAdminClient(
        bootstrap_servers=settings.bootstrap_servers, client_id="afterturn-lag"
    )
    consumer: Any = AIOKafkaConsumer(
        bootstrap_servers=settings.bootstrap_servers, client_id="afterturn-lag"
    )
    try:
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            with closing_half_open():
                await admin.start()
                await consumer.start()
            return await _lag(admin, consumer, group, {topic.name for topic in topics})
    except (KafkaError, TimeoutError, OSError) as error:
        raise BrokerUnavailableError(
            f"Kafka at {settings.bootstrap_servers} did not answer ({type(error).__name__})"
        ) from error
    finally:
        with suppress(KafkaError, TimeoutError, OSError):
            async with asyncio.timeout(CLOSE_TIMEOUT.total_seconds()):
                await asyncio.gather(admin.close(), consumer.stop())


async def _lag(admin: Any, consumer: Any, group: str, names: set[str]) -> list[PartitionLag]:
    # All there are: to ask for one in particular makes many brokers create it.
    described = cast("list[dict[str, Any]]", await admin.describe_topics(None))
    partitions = [
        TopicPartition(topic["topic"], partition["partition"])
        for topic in described
        if topic["topic"] in names
        for partition in topic["partitions"]
    ]
    if not partitions:
        return []
    begins: dict[TopicPartition, int] = await consumer.beginning_offsets(partitions)
    ends: dict[TopicPartition, int] = await consumer.end_offsets(partitions)
    offsets: dict[TopicPartition, Any] = await admin.list_consumer_group_offsets(group)
    lags: list[PartitionLag] = []
    for each in sorted(partitions):
        found = offsets.get(each)
        committed = None if found is None or found.offset < 0 else int(found.offset)
        begin = begins[each] if committed is None else max(committed, begins[each])
        lags.append(
            PartitionLag(
                topic=each.topic,
                partition=each.partition,
                committed=committed,
                end=ends[each],
                messages=max(0, ends[each] - begin),
            )
        )
    return lags
