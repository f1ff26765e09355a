"""Processes of the command line, on servers that a test may break."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from pydantic import SecretStr

from consumers.wiring import Installation, installation
from pipeline.settings import KafkaSettings, MongoSettings, Settings
from pipeline.stores.indexes import apply_indexes
from producers.topics import apply_topics
from tests.scripted_endpoint import ScriptedEndpoint

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 60


@dataclass(slots=True, kw_only=True)
class Process:
    """A process of the command line, and what its log says, which is read as it comes."""

    running: asyncio.subprocess.Process
    said: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    errors: list[str] = field(default_factory=list[str])
    """Lines that are no log."""
    _more: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def listen(self) -> None:
        """Read until it has ended; a process whose log nobody reads stands still."""
        assert self.running.stderr is not None
        while line := await self.running.stderr.readline():
            async with self._more:
                if line.startswith(b"{"):
                    self.said.append(json.loads(line))
                else:
                    self.errors.append(line.decode())
                self._more.notify_all()
        async with self._more:
            self._more.notify_all()

    async def says(self, event: str) -> dict[str, Any]:
        """Wait for an event."""
        stderr = self.running.stderr
        assert stderr is not None

        def found() -> list[dict[str, Any]]:
            return [each for each in self.said if each["event"] == event]

        async with asyncio.timeout(PATIENCE_SECONDS), self._more:
            await self._more.wait_for(lambda: found() or stderr.at_eof())
        assert found(), f"ended after {self.said} {self.errors}"
        return found()[0]

    async def ends(self) -> tuple[int, float]:
        """Send SIGTERM; return the exit code, and after how many seconds it came."""
        began = time.monotonic()
        self.running.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_SECONDS):
            code = await self.running.wait()
        return code, time.monotonic() - began


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Servers, and an installation on them."""

    environment: dict[str, str]
    parts: Installation

    @property
    def kafka(self) -> KafkaSettings:
        """As the processes have it."""
        return KafkaSettings(
            drain_timeout=timedelta(seconds=3),
            request_timeout=timedelta(seconds=2),
            publish_timeout=timedelta(seconds=1),
        )

    @asynccontextmanager
    async def run(self, role: str, **environment: str) -> AsyncGenerator[Process]:
        """Run a role; it is killed at the end if it lives on, and all it said is there then."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("AFTERTURN_")}
        running = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "cli", "run", role),
            cwd=ROOT,
            env=kept | {"PYTHONPATH": str(ROOT)} | self.environment | environment,
            stderr=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
        )
        process = Process(running=running)
        listening = asyncio.create_task(process.listen())
        try:
            yield process
        finally:
            if running.returncode is None:
                running.kill()
            await running.wait()
            await listening


@asynccontextmanager
async def installed(
    mongo_uri: str, bootstrap_servers: str, endpoint: ScriptedEndpoint
) -> AsyncGenerator[World]:
    """Yield a new installation with topics and indexes; its database is dropped at the end."""
    mongo = MongoSettings(uri=SecretStr(mongo_uri), database=f"life_{uuid4().hex[:12]}")
    kafka = KafkaSettings(bootstrap_servers=bootstrap_servers)
    await apply_topics(kafka)
    async with installation(Settings(mongo=mongo, kafka=kafka)) as parts:
        await apply_indexes(parts.database)
        yield World(
            parts=parts,
            environment={
                "AFTERTURN_MONGO__URI": mongo_uri,
                "AFTERTURN_MONGO__DATABASE": mongo.database,
                "AFTERTURN_KAFKA__BOOTSTRAP_SERVERS": bootstrap_servers,
                "AFTERTURN_KAFKA__INSTANCE_ID": "life",
                "AFTERTURN_KAFKA__DRAIN_TIMEOUT": "3",
                "AFTERTURN_KAFKA__REQUEST_TIMEOUT": "2",
                "AFTERTURN_KAFKA__PUBLISH_TIMEOUT": "1",
                "AFTERTURN_LLM__PROVIDER": "openai_compatible",
                "AFTERTURN_LLM__MODEL": "scripted",
                "AFTERTURN_LLM__BASE_URL": endpoint.url,
                "AFTERTURN_HEALTH__PORT": "0",
            },
        )
        await parts.database.client.drop_database(mongo.database)
