"""Topics are made as they are declared, once, and what deviates is said with what to do."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from compose.embedded import embedded_kafka
from compose.processes import free_port
from pipeline.errors import BrokerUnavailableError, ConfigurationError
from pipeline.settings import KafkaSettings
from producers.topics import apply_topics, check_topics
from schemas.topics import TOPICS, Topic


async def test_all_topics_are_made_and_right(tmp_path: Path) -> None:
    """What was missing is there, and a second time there is nothing to do."""
    async with embedded_kafka(tmp_path) as kafka:
        settings = KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)
        before = await check_topics(settings)
        first = await apply_topics(settings)
        second = await apply_topics(settings)
        after = await check_topics(settings)

    assert len(before) == len(TOPICS)
    assert all("missing: run `./afterturn topics apply`" in problem for problem in before)
    assert set(first.created) == {topic.name for topic in TOPICS}
    assert (second.created, len(second.existing)) == ((), len(TOPICS))
    assert (first.problems, second.problems, after) == ((), (), [])


@pytest.mark.kafka
async def test_real_kafka_makes_them_the_same(real_kafka_servers: str) -> None:
    """Several processes may do it at once."""
    settings = KafkaSettings(bootstrap_servers=real_kafka_servers)
    reports = await asyncio.gather(*(apply_topics(settings) for _ in range(3)))

    assert {name for report in reports for name in report.created} == {
        topic.name for topic in TOPICS
    }
    assert await check_topics(settings) == []


async def test_what_deviates_is_said(bootstrap_servers: str) -> None:
    """Partitions, timestamp type, retention, size: each with what to do; none is changed."""
    settings = KafkaSettings(bootstrap_servers=bootstrap_servers)
    wanted = [
        Topic(name="deviates.few", partitions=6, retention=timedelta(days=7)),
        Topic(name="deviates.many", partitions=1, retention=timedelta(days=7)),
        Topic(
            name="deviates.time",
            partitions=2,
            retention=timedelta(days=7),
            is_log_append_time=True,
        ),
        Topic(name="deviates.short", partitions=2, retention=timedelta(days=90)),
    ]
    admin: Any = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    await admin.create_topics([NewTopic(topic.name, 2, 1) for topic in wanted])
    await admin.close()
    report = await apply_topics(settings, topics=wanted)

    assert report.created == ()
    assert len(report.problems) == len(wanted)
    for problem, words in zip(
        report.problems,
        ("has 2 partitions, not 6", "delete it", "LogAppendTime", "raise retention.ms"),
        strict=True,
    ):
        assert words in problem


@pytest.mark.kafka
async def test_a_refusal_says_what_to_change(real_kafka_servers: str) -> None:
    """More replicas than brokers can't be had."""
    settings = KafkaSettings(bootstrap_servers=real_kafka_servers, replication_factor=3)
    topic = Topic(name="refused", partitions=1, retention=timedelta(days=1))

    with pytest.raises(ConfigurationError, match="AFTERTURN_KAFKA__REPLICATION_FACTOR"):
        await apply_topics(settings, topics=[topic])


async def test_without_kafka_it_says_so() -> None:
    """The message names the servers and the setting."""
    settings = KafkaSettings(bootstrap_servers=f"127.0.0.1:{free_port()}")

    with pytest.raises(BrokerUnavailableError, match="AFTERTURN_KAFKA__BOOTSTRAP_SERVERS"):
        await check_topics(settings)
    with pytest.raises(BrokerUnavailableError, match=settings.bootstrap_servers):
        await apply_topics(settings)
