"""Real Apache Kafka stands up without Docker; `tests/faults/test_brokers.py` has three of it."""

from pathlib import Path

import pytest

from compose.processes import free_port
from compose.real_kafka import real_kafka
from tests.compose.kafka_topics import create_topic, first_message, produce
from tests.faults.proxy import proxy_to
from tests.services import unavailable


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
