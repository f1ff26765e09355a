"""A consumer that stays alive over a record its library can't read.

aiokafka decodes the *names* of headers strictly; of one that is no UTF-8 it makes an exception at
every read of its partition, and FastStream restarts the read at once, for ever. Here the partition
is held and said to be, and the others go on. Its record can't be had, so nobody skips it for you.
"""

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final, cast

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CorruptRecordException

HOLD_INTERVAL: Final = timedelta(seconds=30)
"""How long a partition is left alone before its record is tried again."""

log = structlog.get_logger(__name__)


class HoldingConsumer(AIOKafkaConsumer):
    """Holds a partition at a record that can't be read, instead of failing at every read."""

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
        cast("Any", self).pause(partition)
        asyncio.get_running_loop().call_later(
            HOLD_INTERVAL.total_seconds(), self._release, partition
        )

    def _release(self, partition: TopicPartition) -> None:
        if not self._closed and partition in self.assignment():
            cast("Any", self).resume(partition)
