"""A record that its library can't read holds its partition, says so, and spins nothing."""

import asyncio
import struct
from typing import Any, cast

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.consumer import fetcher
from aiokafka.producer import message_accumulator
from aiokafka.record.default_records import (
    _DefaultRecordBatchBuilderPy,  # pyright: ignore[reportPrivateUsage]
)
from aiokafka.record.util import calc_crc32c
from structlog.testing import capture_logs

from consumers import health_readiness
from tests.integration.consuming import (
    Told,
    consuming,
    declared,
    kafka_settings,
    new_group,
    until_committed,
)
from tests.integration.kafka import append, committed, new_topic


async def test_a_header_name_that_is_no_text_holds_its_partition(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing behind it is skipped, and the other partition flows."""
    topic, group = await new_topic(bootstrap_servers, partitions=2), new_group()
    await append(bootstrap_servers, topic, [b"before"], partition=0)
    with monkeypatch.context() as patch:
        patch.setattr(
            message_accumulator, "DefaultRecordBatchBuilder", _DefaultRecordBatchBuilderPy
        )
        await append_with_header_name(bootstrap_servers, topic)
    await append(bootstrap_servers, topic, [b"behind"], partition=0)
    await holds_its_partition(
        bootstrap_servers, topic, group, exception="UnicodeDecodeError", advice="this offset + 1"
    )


GZIP, LZ4 = 1, 3
COMPRESSED = {
    "in a way we can't undo": (LZ4, "UnsupportedCodecError", "compression.type"),
    "and broken": (GZIP, "BadGzipFile", "another replica"),
}


@pytest.mark.parametrize("case", COMPRESSED)
async def test_a_batch_that_cannot_be_unpacked_holds_its_partition(
    case: str, bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checksum is right, so a broker takes it."""
    codec, exception, advice = COMPRESSED[case]
    topic, group = await new_topic(bootstrap_servers, partitions=2), new_group()
    await append(bootstrap_servers, topic, [b"before"], partition=0)
    with monkeypatch.context() as patch:
        patch.setattr(
            message_accumulator,
            "DefaultRecordBatchBuilder",
            lambda *args, **kwargs: _AsIfCompressed(codec, *args, **kwargs),  # pyright: ignore
        )
        await append(bootstrap_servers, topic, [b"unreadable"], partition=0)
    await append(bootstrap_servers, topic, [b"behind"], partition=0)
    await holds_its_partition(bootstrap_servers, topic, group, exception=exception, advice=advice)


async def test_a_batch_that_is_damaged_holds_its_partition_until_it_is_whole(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damaged on its way or on a replica: nothing of it was skipped."""
    topic, group = await new_topic(bootstrap_servers, partitions=2), new_group()
    await append(bootstrap_servers, topic, [b"before"], partition=0)
    await append(bootstrap_servers, topic, [b"damaged"], partition=0)
    await append(bootstrap_servers, topic, [b"behind"], partition=0)
    whole = fetcher.MemoryRecords

    def damaged(data: bytes) -> Any:
        return whole(data.replace(b"damaged", b"damageD"))

    with monkeypatch.context() as patch:
        patch.setattr(fetcher, "MemoryRecords", damaged)
        await holds_its_partition(
            bootstrap_servers,
            topic,
            group,
            exception="CorruptRecordException",
            advice="another replica",
        )
    told = Told()
    settings = kafka_settings(bootstrap_servers, instance_id=group)
    async with consuming(settings, told, declared(topic, partitions=2), group):
        await told.until_done(2)

    assert told.values == [b"damaged", b"behind"]


async def holds_its_partition(
    servers: str, topic: str, group: str, *, exception: str, advice: str
) -> None:
    """Read both partitions; see that the second record of the first one holds it, once said."""
    told = Told()
    settings = kafka_settings(servers, instance_id=group)
    with capture_logs() as logs:
        async with consuming(settings, told, declared(topic, partitions=2), group) as app:
            await told.until_done(1)
            await append(servers, topic, [b"other"] * 5, partition=1)
            await told.until_done(6)
            await until_committed(servers, group, topic, 5, 1)
            await asyncio.sleep(1)
            check = health_readiness.kafka(
                settings, declared(topic, partitions=2), unreadable=app.pools["main"].unreadable
            ).check
            condition = await check()
    unreadable = [each for each in logs if each["event"] == "record_unreadable"]

    assert set(told.values) == {b"before", b"other"}
    assert await committed(servers, group, topic, 0) == 1
    assert [
        (each["topic"], each["partition"], each["offset"], each["exception"]) for each in unreadable
    ] == [(topic, 0, 1, exception)]
    assert advice in unreadable[0]["advice"]
    assert (condition.state, f"{topic}/0" in condition.detail) == ("wrong", True)
    assert "record_unreadable" in (condition.action or "")


class _AsIfCompressed:
    """Builds batches that say they are compressed, and are not."""

    def __init__(self, codec: int, *args: Any, **kwargs: Any) -> None:
        self._batch = _DefaultRecordBatchBuilderPy(*args, **kwargs)
        self._codec = codec

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def build(self) -> bytearray:
        built, layout = self._batch.build(), self._batch
        struct.pack_into(">h", built, layout.ATTRIBUTES_OFFSET, self._codec)
        crc = calc_crc32c(bytes(built[layout.ATTRIBUTES_OFFSET :]))
        struct.pack_into(">I", built, layout.CRC_OFFSET, crc)
        return built


class _NoText(str):
    __slots__ = ()

    def encode(self, *_: Any, **__: Any) -> bytes:
        return b"\xff\xfe"


async def append_with_header_name(servers: str, topic: str) -> None:
    """Append a record whose header name is no UTF-8, which takes a client unlike any."""
    producer = cast("Any", AIOKafkaProducer(bootstrap_servers=servers, acks="all"))
    producer._serialize = lambda key, value, headers: (key, value)  # pyright: ignore
    async with producer:
        await producer.send_and_wait(
            topic, b"unreadable", key=b"key", headers=[(_NoText("x"), b"v")], partition=0
        )
