"""Real Apache Kafka stands up without Docker, and its brokers can be lost."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.client import AIOKafkaClient
from aiokafka.structs import TopicPartition

from compose.processes import free_port
from compose.real_kafka import KafkaCluster, real_kafka
from tests.compose.kafka_topics import create_topic, first_message, produce
from tests.faults.proxy import proxy_to
from tests.services import unavailable

KNOWN_WITHIN = 20.0
"""Seconds until what one broker knows has come to all; it takes milliseconds."""


@pytest.fixture
async def three_brokers(tmp_path: Path, real_kafka_available: None) -> AsyncGenerator[KafkaCluster]:
    """A cluster that may lose one broker."""
    async with real_kafka(tmp_path, brokers=3) as cluster:
        yield cluster


@pytest.mark.kafka
async def test_one_broker_serves_every_test(real_kafka_servers: str) -> None:
    """A message comes back as it was sent."""
    await create_topic(real_kafka_servers, "compose.answers")
    await produce(real_kafka_servers, "compose.answers", b"spoken")

    assert await first_message(real_kafka_servers, "compose.answers") == b"spoken"


@pytest.mark.kafka
@pytest.mark.usefixtures("real_kafka_available")
async def test_a_message_outlives_kills_and_starts(tmp_path: Path) -> None:
    """An acknowledged message is there after a kill, and after an orderly end on other ports."""
    async with real_kafka(tmp_path) as kafka:
        await create_topic(kafka.bootstrap_servers, "turns")
        await produce(kafka.bootstrap_servers, "turns", b"spoken")
        await kafka.kill(0)
        await kafka.start(0)
        assert await first_message(kafka.bootstrap_servers, "turns") == b"spoken"

    async with real_kafka(tmp_path) as kafka:
        assert await first_message(kafka.bootstrap_servers, "turns") == b"spoken"


@pytest.mark.kafka
async def test_a_cluster_serves_on_when_its_leader_is_killed(three_brokers: KafkaCluster) -> None:
    """With three brokers and two in-sync replicas asked for, any one of them may be lost."""
    servers = three_brokers.bootstrap_servers
    await create_topic(servers, "turns", replicas=3)
    assert await topic_setting(servers, "turns", "min.insync.replicas") == "2"
    await produce(servers, "turns", b"before")

    leader = await leader_of(servers, "turns")
    await three_brokers.kill(leader)
    await produce(servers, "turns", b"during")
    async with asyncio.timeout(KNOWN_WITHIN):
        # Only the other brokers know when they have heard of the new one.
        while await leader_of(servers, "turns") == leader:  # noqa: ASYNC110
            await asyncio.sleep(0.1)

    await three_brokers.start(leader)
    assert await first_message(servers, "turns") == b"before"


@pytest.mark.kafka
@pytest.mark.usefixtures("real_kafka_available")
async def test_clients_go_where_they_are_sent(tmp_path: Path) -> None:
    """An advertised port puts a proxy between clients and broker."""
    port = free_port()
    async with (
        proxy_to(port) as proxy,
        real_kafka(tmp_path, ports=[port], advertised_ports=[proxy.port]) as kafka,
    ):
        assert kafka.bootstrap_servers == f"127.0.0.1:{proxy.port}"

        await create_topic(f"127.0.0.1:{port}", "turns")
        producer_connections = proxy.accepted
        await produce(f"127.0.0.1:{port}", "turns", b"spoken")

        assert proxy.accepted > producer_connections


def test_a_missing_service_skips_on_a_laptop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody needs Java to work on this project."""
    monkeypatch.delenv("CI", raising=False)

    with pytest.raises(pytest.skip.Exception, match="no Java"):
        unavailable("no Java")


def test_a_missing_service_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """CI never passes for want of a service."""
    monkeypatch.setenv("CI", "true")

    with pytest.raises(pytest.fail.Exception, match="no Java"):
        unavailable("no Java")


async def leader_of(bootstrap_servers: str, topic: str) -> int:
    """Return the broker that leads the only partition of a topic."""
    client: Any = AIOKafkaClient(bootstrap_servers=bootstrap_servers)
    await client.bootstrap()
    try:
        await client.add_topic(topic)
        await client.force_metadata_update()
        return client.cluster.leader_for_partition(TopicPartition(topic, 0))
    finally:
        await client.close()


async def topic_setting(bootstrap_servers: str, topic: str, name: str) -> str:
    """Return a setting of a topic, once the broker that is asked has heard of it."""
    admin: Any = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    try:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={name: ""})
        async with asyncio.timeout(KNOWN_WITHIN):
            while True:
                [answer] = await admin.describe_configs([resource])
                [(error, _, _, _, entries)] = answer.resources
                if not error:
                    return {entry[0]: entry[1] for entry in entries}[name]
                await asyncio.sleep(0.1)
    finally:
        await admin.close()
