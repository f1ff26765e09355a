"""A record that its library can't read holds its partition, says so, and spins nothing."""

import asyncio
from typing import Any, cast

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.producer import message_accumulator
from aiokafka.record.default_records import (
    _DefaultRecordBatchBuilderPy,  # pyright: ignore[reportPrivateUsage]
)
from structlog.testing import capture_logs

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
    told = Told()
    settings = kafka_settings(bootstrap_servers)
    with capture_logs() as logs:
        async with consuming(settings, told, declared(topic, partitions=2), group):
            await told.until_done(1)
            await append(bootstrap_servers, topic, [b"other"] * 5, partition=1)
            await told.until_done(6)
            await until_committed(bootstrap_servers, group, topic, 5, 1)
            await asyncio.sleep(1)
    unreadable = [each for each in logs if each["event"] == "record_unreadable"]

    assert set(told.values) == {b"before", b"other"}
    assert await committed(bootstrap_servers, group, topic, 0) == 1
    assert [(each["topic"], each["partition"]) for each in unreadable] == [(topic, 0)]


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
