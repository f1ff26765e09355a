"""A record as our value, whatever its bytes: FastStream's own parser skips what it can't read.

Nothing here decodes: an event is read by the step, where not being able to is a letter.
"""

from typing import Any

from aiokafka import ConsumerRecord
from faststream.kafka.message import FAKE_CONSUMER, KafkaMessage

from schemas.failure import Coordinates
from schemas.message import IncomingMessage

Record = ConsumerRecord[bytes | None, bytes | None]


def incoming(record: Record, *, group: str) -> IncomingMessage:
    """Return a record as the group read it, byte for byte."""
    return IncomingMessage(
        at=Coordinates(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp_ms=record.timestamp,
            group=group,
        ),
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
    )


async def total_parser(record: Record) -> KafkaMessage:
    """Return FastStream's message around a record it must not look into.

    It has no headers, so that an incoming `reply_to` or `correlation_id` means nothing, and it
    can't commit: that is done by our own hand.
    """
    return KafkaMessage(raw_message=record, body=b"", headers={}, consumer=FAKE_CONSUMER)


async def raw_decoder(message: KafkaMessage) -> Any:
    """Return the record itself."""
    return message.raw_message
