"""What messages of a topic are about, read by a consumer of its own that commits nothing."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from pipeline.errors import BrokerUnavailableError, JobError
from pipeline.extracting.planning import run_of
from pipeline.messages import EVENT_ID_HEADER
from pipeline.replaying.ports import Read
from pipeline.settings import KafkaSettings
from producers.half_open import closing_half_open
from schemas.job import Lost, Messages

TIMEOUT: Final = timedelta(seconds=15)
"""Of whatever brings nothing: there is no limit to a read that goes on."""
CLOSE_TIMEOUT: Final = timedelta(seconds=2)
POLL: Final = timedelta(seconds=1)
ID: Final = "afterturn-replay"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Range:
    """What is read of a partition."""

    first: int
    end: int
    lost: Lost | None


class KafkaTopics:
    """Port `Topics` on Kafka."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings

    async def read(self, messages: Messages) -> Read:
        """Return what messages are about, as many as there are when it is called.

        Raises:
            JobError: There are no such messages, and can't be.
            BrokerUnavailableError: Kafka did not answer in time.
        """
        servers = self._settings.bootstrap_servers
        admin: Any = AIOKafkaAdminClient(bootstrap_servers=servers, client_id=ID)
        consumer: Any = AIOKafkaConsumer(
            bootstrap_servers=servers, client_id=ID, group_id=None, enable_auto_commit=False
        )
        try:
            async with asyncio.timeout(TIMEOUT.total_seconds()):
                with closing_half_open():
                    await admin.start()
                    await consumer.start()
                partitions = await _partitions(admin, messages)
                consumer.assign(partitions)
                ranges = await _ranges(consumer, partitions, messages)
            named = await _read(consumer, ranges)
        except (KafkaError, TimeoutError, OSError) as error:
            raise BrokerUnavailableError(
                f"Kafka at {servers} did not answer ({type(error).__name__})"
            ) from error
        finally:
            with suppress(KafkaError, TimeoutError, OSError):
                async with asyncio.timeout(CLOSE_TIMEOUT.total_seconds()):
                    await asyncio.gather(admin.close(), consumer.stop())
        lost = tuple(each.lost for each in ranges.values() if each.lost is not None)
        return Read(snapshot_ids=frozenset(named), lost=lost)


async def _partitions(admin: Any, messages: Messages) -> list[TopicPartition]:
    # All topics there are: to ask for one in particular makes many brokers create it.
    described = cast("list[dict[str, Any]]", await admin.describe_topics(None))
    numbers = sorted(
        int(partition["partition"])
        for topic in described
        if topic["topic"] == messages.topic
        for partition in topic["partitions"]
    )
    if not numbers:
        raise JobError(f"Kafka has no topic {messages.topic}: `./afterturn topics apply` makes it")
    if messages.partition is not None and messages.partition not in numbers:
        raise JobError(
            f"{messages.topic} has no partition {messages.partition}: its last is {numbers[-1]}"
        )
    wanted = numbers if messages.partition is None else [messages.partition]
    return [TopicPartition(messages.topic, number) for number in wanted]


async def _ranges(
    consumer: Any, partitions: list[TopicPartition], messages: Messages
) -> dict[TopicPartition, _Range]:
    begins: Mapping[TopicPartition, int] = await consumer.beginning_offsets(partitions)
    ends: Mapping[TopicPartition, int] = await consumer.end_offsets(partitions)
    ranges: dict[TopicPartition, _Range] = {}
    for each in partitions:
        begin, end = begins[each], ends[each]
        first = messages.first_offset or 0
        if messages.first_offset is not None and first > end:
            raise JobError(
                f"partition {each.partition} of {each.topic} ends at offset {end}: begin before it"
            )
        if messages.since is not None:
            first = await _offset_at(consumer, each, messages.since, end)
        stop = end if messages.end_offset is None else min(end, messages.end_offset)
        if messages.until is not None:
            stop = await _offset_at(consumer, each, messages.until, end)
        lost = await _lost(consumer, each, messages, begin=begin, end=end)
        ranges[each] = _Range(first=max(first, begin), end=stop, lost=lost)
    return ranges


async def _lost(
    consumer: Any, partition: TopicPartition, messages: Messages, *, begin: int, end: int
) -> Lost | None:
    """Return what retention took of what was asked for of a partition."""
    first = messages.first_offset or 0
    if begin == 0 or (messages.since is None and first >= begin):
        return None
    oldest = await _oldest(consumer, partition, begin=begin, end=end)
    if messages.since is not None:
        if oldest is not None and oldest <= messages.since:
            return None
        return Lost(partition=partition.partition, offsets=None, until=oldest)
    gone = min(begin, messages.end_offset or begin) - first
    return Lost(partition=partition.partition, offsets=gone, until=oldest)


async def _oldest(
    consumer: Any, partition: TopicPartition, *, begin: int, end: int
) -> datetime | None:
    """Return when the oldest message that a partition has was appended; none if it has none."""
    if begin >= end:
        return None
    consumer.seek(partition, begin)
    record = await consumer.getone(partition)
    return datetime.fromtimestamp(record.timestamp / 1000, UTC)


async def _offset_at(consumer: Any, partition: TopicPartition, at: datetime, end: int) -> int:
    """Return the first offset that was appended then or later; the end if none was."""
    found = await consumer.offsets_for_times({partition: int(at.timestamp() * 1000)})
    return end if found.get(partition) is None else int(found[partition].offset)


async def _read(consumer: Any, ranges: Mapping[TopicPartition, _Range]) -> set[str]:
    named: set[str] = set()
    left = {each: found for each, found in ranges.items() if found.first < found.end}
    for each, found in left.items():
        consumer.seek(each, found.first)
    while left:
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            read: dict[TopicPartition, list[Any]] = {}
            while not read and left:
                read = await consumer.getmany(*left, timeout_ms=POLL // timedelta(milliseconds=1))
                for each in list(left):
                    # What is no message, as the mark of a transaction, has an offset, too.
                    if await consumer.position(each) >= left[each].end:
                        del left[each]
        for each, records in read.items():
            named |= {
                snapshot_id
                for record in records
                if record.offset < ranges[each].end
                for snapshot_id in [_named(record)]
                if snapshot_id is not None
            }
    return named


def _named(record: Any) -> str | None:
    """Return the snapshot that a message is about, by its header: it is not decoded."""
    for name, value in record.headers:
        if name == EVENT_ID_HEADER and value is not None:
            run = run_of(value.decode(errors="replace"))
            return None if run is None else run[0]
    return None
