"""A consumer's process ends as it must: by a signal, by SIGKILL, and when Kafka is a black hole."""

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from compose.embedded import embedded_kafka
from consumers.running import CAP_EXIT_CODE
from tests.hanging import hanging
from tests.integration.consuming import (
    Told,
    consuming,
    declared,
    kafka_settings,
    new_group,
    until_committed,
)
from tests.integration.kafka import append, committed, new_topic

ROOT = Path(__file__).parent.parent.parent


class Process:
    """A consumer's process and what it says."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.said: list[str] = []

    async def says(self, line: str) -> None:
        """Wait for a line."""
        assert self._process.stdout is not None
        async with asyncio.timeout(30):
            while line not in self.said:
                read = await self._process.stdout.readline()
                assert read, f"ended after {self.said}"
                self.said.append(read.decode().strip())

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    async def ended(self) -> int:
        """Return its exit code and read what it said still."""
        async with asyncio.timeout(30):
            rest, _ = await self._process.communicate()
        self.said += rest.decode().splitlines()
        assert self._process.returncode is not None
        return self._process.returncode

    def kill(self) -> None:
        """End it, if it runs."""
        if self._process.returncode is None:
            self._process.kill()


@asynccontextmanager
async def started(**given: Any) -> AsyncGenerator[Process]:
    """Run a consumer's process."""
    defaults: dict[str, Any] = {
        "partitions": 1,
        "step_seconds": 0,
        "request_seconds": 5,
        "drain_seconds": 3,
        "cap_seconds": 10,
    }
    running = Process(
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.integration.consumer_process"),
            json.dumps(defaults | given),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
    )
    try:
        yield running
    finally:
        running.kill()


async def test_sigterm_finishes_and_commits_what_is_in_flight(bootstrap_servers: str) -> None:
    """And the process ends well."""
    topic, group = await new_topic(bootstrap_servers), new_group()
    await append(bootstrap_servers, topic, [b"1"])
    async with started(
        servers=bootstrap_servers, topic=topic, group=group, step_seconds=1
    ) as process:
        await process.says("begin 1")
        process.signal(signal.SIGTERM)
        code = await process.ended()

    assert code == 0
    assert "end 1" in process.said
    assert await committed(bootstrap_servers, group, topic) == 1


async def test_a_death_before_the_commit_is_a_redelivery(bootstrap_servers: str) -> None:
    """The fate was written, the offset was not: the next process is given the message again."""
    topic, group = await new_topic(bootstrap_servers), new_group()
    await append(bootstrap_servers, topic, [b"1"])
    async with started(
        servers=bootstrap_servers, topic=topic, group=group, crashes=True
    ) as process:
        await process.says("end 1")
        code = await process.ended()
    at_death = await committed(bootstrap_servers, group, topic)
    told = Told()
    settings = kafka_settings(bootstrap_servers, instance_id="process")
    async with consuming(settings, told, declared(topic), group):
        await told.until_done(1)
        await until_committed(bootstrap_servers, group, topic, 1)

    assert code == -signal.SIGKILL
    assert at_death is None
    assert told.values == [b"1"]


async def test_a_black_hole_does_not_keep_a_process(tmp_path: Path) -> None:
    """With Kafka hanging, draining, committing and closing each end by their own time."""
    async with embedded_kafka(tmp_path) as kafka:
        topic, group = await new_topic(kafka.bootstrap_servers), new_group()
        await append(kafka.bootstrap_servers, topic, [b"1"])
        async with started(
            servers=kafka.bootstrap_servers,
            topic=topic,
            group=group,
            request_seconds=1,
            cap_seconds=25,
        ) as process:
            await process.says("end 1")
            with hanging(kafka):
                await asyncio.sleep(0.5)
                process.signal(signal.SIGTERM)
                begun_at = time.monotonic()
                code = await process.ended()
                elapsed = time.monotonic() - begun_at

    assert code == 0
    assert elapsed < 15


@pytest.mark.kafka
async def test_a_killed_member_leaves_its_work_to_the_others(real_kafka_servers: str) -> None:
    """After its session has ended, everything it had is given to who is left, and done."""
    topic, group = await new_topic(real_kafka_servers, partitions=2), new_group()
    for partition in range(2):
        await append(real_kafka_servers, topic, [b"1", b"2"], partition=partition)
    told = Told()
    settings = kafka_settings(real_kafka_servers)
    async with started(
        servers=real_kafka_servers, topic=topic, group=group, partitions=2, step_seconds=3600
    ) as process:
        await process.says("begin 1")
        async with consuming(settings, told, declared(topic, partitions=2), group):
            await told.until_done(2)
            process.signal(signal.SIGKILL)
            await process.ended()
            await told.until_done(4)
            for partition in range(2):
                await until_committed(real_kafka_servers, group, topic, 2, partition)

    assert len(told.messages) == 4


async def test_the_cap_ends_a_process_that_does_not_end(bootstrap_servers: str) -> None:
    """However long its drain is."""
    topic, group = await new_topic(bootstrap_servers), new_group()
    await append(bootstrap_servers, topic, [b"1"])
    async with started(
        servers=bootstrap_servers,
        topic=topic,
        group=group,
        step_seconds=60,
        drain_seconds=14,
        cap_seconds=1,
    ) as process:
        await process.says("begin 1")
        process.signal(signal.SIGTERM)
        begun_at = time.monotonic()
        code = await process.ended()
        elapsed = time.monotonic() - begun_at

    assert code == CAP_EXIT_CODE
    assert elapsed < 3
    assert await committed(bootstrap_servers, group, topic) is None
