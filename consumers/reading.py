"""A consumer that stays alive over a record its library can't read.

aiokafka decodes the *names* of headers strictly; of one that is no UTF-8 it makes an exception at
every read of its partition, and FastStream restarts the read at once, for ever. Here the partition
is held and said to be, and the others go on. Its record can't be had, so nobody skips it for you.
"""

from collections.abc import Callable, Iterable
from typing import Any, cast

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CorruptRecordException

log = structlog.get_logger(__name__)


class HoldingConsumer(AIOKafkaConsumer):
    """Lets a partition rest at a record that can't be read, instead of failing at every read.

    Args:
        rest: Lets it rest for a while; whoever pauses and resumes partitions does.
    """

    def __init__(self, *, rest: Callable[[TopicPartition], None], **options: Any) -> None:
        cast("Any", super()).__init__(**options)
        self._rest = rest

    async def getone(self, *partitions: TopicPartition) -> Any:
        """Return the next readable record of a partition that is not held."""
        while True:
            try:
                return await cast("Any", super()).getone(*partitions)
            except (UnicodeDecodeError, CorruptRecordException) as error:
                held = tuple(self._broken())
                if not held:
                    raise
                for partition in held:
                    self._hold(partition, error)

    def _broken(self) -> Iterable[TopicPartition]:
        """Yield the partitions whose record iterator ended by an exception."""
        fetcher = cast("Any", self)._fetcher
        fetched = cast("dict[TopicPartition, Any]", fetcher._records)
        for partition, result in list(fetched.items()):
            records = getattr(result, "_partition_records", None)
            iterator = getattr(records, "_records_iterator", None)
            if iterator is not None and iterator.gi_frame is None:
                del fetched[partition]
                yield partition

    def _hold(self, partition: TopicPartition, error: Exception) -> None:
        log.error(
            "record_unreadable",
            topic=partition.topic,
            partition=partition.partition,
            exception=type(error).__name__,
            advice="keep the record, then move the group past it: kafka-consumer-groups.sh "
            "--reset-offsets --shift-by 1 --execute, with the group stopped",
        )
        self._rest(partition)
