"""A consumer that stays alive over a record its library can't read.

aiokafka makes an exception of a header name that is no UTF-8, of a checksum that is wrong and of a
compression it can't undo, at every read of that partition, and FastStream restarts the read at
once, for ever. Here the partition is held and said to be, and the others go on. Its record can't be
had, so nobody skips it for you; it is fetched again after a while, for the fault may be the wire's.

An error that aiokafka did not expect ends its part in the group for good, while the process lives
on and reads nothing: such as an assignment of no bytes, which a member gets that the group's leader
did not know of. A static member that only joins again is given the same once more, for nothing
tells the group to share anew. Here it leaves, which does, and then joins.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, cast

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, UnsupportedCodecError
from aiokafka.protocol.group import LeaveGroupRequest

from producers.half_open import closing_half_open

log = structlog.get_logger(__name__)

_REPLICA = (
    "see the batch with kafka-dump-log.sh and restore it from another replica; if there is none, "
    "keep its bytes and move the group past the whole batch: kafka-consumer-groups.sh "
    "--reset-offsets --to-offset <its last offset + 1> --execute, with the group stopped"
)
_CODEC = (
    "set compression.type=producer on the topic and let nobody compress with anything but gzip; "
    "keep the batch, then move the group past it: kafka-consumer-groups.sh --reset-offsets "
    "--to-offset <its last offset + 1> --execute, with the group stopped"
)
_RECORD = (
    "keep the record, then move the group past it: kafka-consumer-groups.sh --reset-offsets "
    "--to-offset <this offset + 1> --execute, with the group stopped"
)


class HoldingConsumer(AIOKafkaConsumer):
    """Lets a partition rest at a record that can't be read, instead of failing at every read.

    Args:
        rest: Lets it rest for a while; whoever pauses and resumes partitions does.
    """

    def __init__(self, *, rest: Callable[[TopicPartition], None], **options: Any) -> None:
        cast("Any", super()).__init__(**options)
        self._rest = rest

    async def start(self) -> None:
        """Connect and return with partitions; a member that could not take its part has left.

        Raises:
            KafkaError: It has no part in the group; whoever builds consumers builds another.
        """
        try:
            with closing_half_open():
                await cast("Any", super()).start()
        except KafkaError:
            if self._has_lost_its_part():
                await self._leave()
            raise

    async def getone(self, *partitions: TopicPartition) -> Any:
        """Return the next readable record of a partition that is not held."""
        while True:
            try:
                return await cast("Any", super()).getone(*partitions)
            except Exception as error:  # whatever the library makes of such bytes; raised if none
                held = tuple(self._broken())
                if not held:
                    await self._take_part_again()
                    raise
                for partition, offset in held:
                    self._hold(partition, offset, error)

    async def _take_part_again(self) -> None:
        """Join the group again if what speaks with its coordinator has ended by an error."""
        if not self._has_lost_its_part():
            return
        await self._leave()
        coordinator = cast("Any", self)._coordinator
        coordinator.request_rejoin()
        coordinator._coordination_task = asyncio.create_task(
            coordinator._coordination_routine(), name=f"coordination {coordinator.group_id}"
        )

    def _has_lost_its_part(self) -> bool:
        """Whether what speaks with the group's coordinator has ended by an error; says so."""
        coordinator = cast("Any", self)._coordinator
        task: asyncio.Task[None] | None = getattr(coordinator, "_coordination_task", None)
        if task is None or not task.done() or task.cancelled() or task.exception() is None:
            return False
        log.error("group_left", group=coordinator.group_id, exception=_cause(task.exception()))
        return True

    async def _leave(self) -> None:
        """Have the group share its partitions anew, and be nobody that it knows."""
        coordinator = cast("Any", self)._coordinator
        try:
            await coordinator._send_req(
                LeaveGroupRequest(coordinator.group_id, coordinator.member_id)
            )
        except KafkaError as error:
            log.warning("group_not_left", group=coordinator.group_id, exception=_cause(error))
        coordinator.reset_generation()

    def _broken(self) -> Iterable[tuple[TopicPartition, int]]:
        """Yield the partitions whose record iterator ended by an exception, and where it did."""
        fetcher = cast("Any", self)._fetcher
        fetched = cast("dict[TopicPartition, Any]", fetcher._records)
        for partition, result in list(fetched.items()):
            records = getattr(result, "_partition_records", None)
            iterator = getattr(records, "_records_iterator", None)
            if iterator is not None and iterator.gi_frame is None:
                del fetched[partition]
                yield partition, cast("Any", records).next_fetch_offset

    def _hold(self, partition: TopicPartition, offset: int, error: Exception) -> None:
        log.error(
            "record_unreadable",
            topic=partition.topic,
            partition=partition.partition,
            offset=offset,
            exception=type(error).__name__,
            advice=_advice(error),
        )
        self._rest(partition)


def _cause(error: BaseException | None) -> str:
    return type(error.__cause__ if error and error.__cause__ else error).__name__


def _advice(error: Exception) -> str:
    match error:
        case UnsupportedCodecError():
            return _CODEC
        case UnicodeDecodeError():
            return _RECORD
        case _:
            return _REPLICA
