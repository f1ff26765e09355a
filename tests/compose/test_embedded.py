"""The embedded services answer, keep their data, and are used by one at a time."""

import asyncio
import fcntl
import os
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pymongo import AsyncMongoClient

from compose.data_lock import LOCK_NAME, data_lock
from compose.embedded import embedded_kafka, embedded_mongo, embedded_services, installed_program
from compose.errors import (
    DataDirectoryBusyError,
    MissingProgramError,
    PortTakenError,
    ServiceDiedError,
)
from compose.processes import free_port
from tests.compose.conftest import Hold
from tests.compose.groups import wait_until_gone
from tests.compose.kafka_topics import create_topic, first_message, produce

TURN = {"_id": "turn-1", "said_at": datetime(2026, 1, 2, tzinfo=UTC)}


async def insert_turn(uri: str) -> None:
    """Insert the one document of these tests."""
    async with AsyncMongoClient[dict[str, Any]](uri, tz_aware=True) as client:
        await client["compose_test"]["turns"].insert_one(dict(TURN))


async def find_turn(uri: str) -> dict[str, Any] | None:
    """Return the one document of these tests."""
    async with AsyncMongoClient[dict[str, Any]](uri, tz_aware=True) as client:
        return await client["compose_test"]["turns"].find_one()


async def test_mongo_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    """A document comes back as it was, after a kill and after an orderly end."""
    async with embedded_mongo(tmp_path) as mongo:
        await insert_turn(mongo.uri)
        assert await find_turn(mongo.uri) == TURN

        await mongo.kill()
        await mongo.start()
        assert await find_turn(mongo.uri) == TURN

    async with embedded_mongo(tmp_path) as mongo:
        assert await find_turn(mongo.uri) == TURN


async def test_kafka_keeps_its_messages(tmp_path: Path) -> None:
    """A message is there after an orderly end, on the same port and on another."""
    async with embedded_kafka(tmp_path) as kafka:
        await create_topic(kafka.bootstrap_servers, "turns")
        await produce(kafka.bootstrap_servers, "turns", b"spoken")
        await kafka.stop()
        await kafka.start()

        assert await first_message(kafka.bootstrap_servers, "turns") == b"spoken"

    async with embedded_kafka(tmp_path) as kafka:
        assert await first_message(kafka.bootstrap_servers, "turns") == b"spoken"


async def test_kafka_starts_again_after_a_kill(tmp_path: Path) -> None:
    """A killed broker serves again on its port."""
    async with embedded_kafka(tmp_path) as kafka:
        await kafka.kill()
        assert not kafka.is_running
        await kafka.start()

        await create_topic(kafka.bootstrap_servers, "turns")
        await produce(kafka.bootstrap_servers, "turns", b"spoken")
        assert await first_message(kafka.bootstrap_servers, "turns") == b"spoken"


async def test_the_services_tell_when_one_dies(tmp_path: Path) -> None:
    """Who runs in the foreground learns which service ended, and how."""
    async with embedded_services(tmp_path) as services:
        death = asyncio.create_task(services.died())
        await services.kafka.kill()

        error = await asyncio.wait_for(death, timeout=30)
        assert isinstance(error, ServiceDiedError)
        assert "embedded Kafka" in str(error)


async def test_nothing_outlives_a_kill_and_the_directory_is_free_again(
    hold: Hold, tmp_path: Path
) -> None:
    """After kill -9 of its user no service is left, and the next user finds the data."""
    holder, said = await asyncio.to_thread(hold, "services", str(tmp_path))
    await insert_turn(said["mongo_uri"])

    holder.send_signal(signal.SIGKILL)
    holder.wait()
    # At once, while the guardians may still be at work.
    async with embedded_services(tmp_path) as services:
        assert await find_turn(services.mongo_uri) == TURN

    wait_until_gone(*said["groups"])


async def test_a_second_user_is_told_who_is_first(hold: Hold, tmp_path: Path) -> None:
    """A directory in use is refused at once, by the pid that uses it and with advice."""
    holder, said = await asyncio.to_thread(hold, "services", str(tmp_path))

    with pytest.raises(DataDirectoryBusyError) as raised:
        async with embedded_services(tmp_path):
            pass

    assert raised.value.holder_pid == holder.pid
    assert f"in use by process {holder.pid}: end it (kill {holder.pid})" in str(raised.value)
    assert await find_turn(said["mongo_uri"]) is None


async def test_a_lock_left_by_the_dead_is_waited_for(tmp_path: Path) -> None:
    """A guardian of a dead user holds the lock for a moment, which is no reason to refuse."""
    descriptor = os.open(tmp_path / LOCK_NAME, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    dead = await asyncio.create_subprocess_exec("true")
    await dead.wait()
    os.write(descriptor, str(dead.pid).encode())
    asyncio.get_running_loop().call_later(0.2, os.close, descriptor)

    async with data_lock(tmp_path):
        assert (tmp_path / LOCK_NAME).read_text() == f"{os.getpid()}\n"


async def test_a_given_port_that_is_taken_is_an_error(tmp_path: Path) -> None:
    """Nobody is moved to another port than the one they named."""
    async with embedded_kafka(tmp_path / "one") as kafka:
        with pytest.raises(PortTakenError, match=str(kafka.port)):
            async with embedded_kafka(tmp_path / "two", port=kafka.port):
                pass


async def test_a_lost_port_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A free port that somebody took first costs a try, not the start."""
    async with embedded_kafka(tmp_path / "one") as kafka:
        ports = [kafka.port]

        def unlucky_first() -> int:
            return ports.pop() if ports else free_port()

        monkeypatch.setattr("compose.embedded.free_port", unlucky_first)
        async with embedded_kafka(tmp_path / "two") as other:
            assert other.port != kafka.port


def test_a_program_that_is_not_installed_is_named_with_the_cure() -> None:
    """The error says what to install."""
    with pytest.raises(MissingProgramError, match=r"no-such-program .*--group embedded"):
        installed_program("no-such-program")


async def test_the_fixtures_answer(mongo_uri: str, bootstrap_servers: str) -> None:
    """What tests are given works from their own event loop."""
    await create_topic(bootstrap_servers, "compose.fixtures")
    await produce(bootstrap_servers, "compose.fixtures", b"spoken")

    assert await first_message(bootstrap_servers, "compose.fixtures") == b"spoken"
    async with AsyncMongoClient[dict[str, Any]](mongo_uri) as client:
        assert (await client.admin.command("ping"))["ok"] == 1
