"""An installation for one fault test: its own database and broker, a scripted model, workers."""

import asyncio
import multiprocessing
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from uuid import uuid4

from pydantic import SecretStr

from consumers.wiring import Installation, installation
from pipeline.auditing import Audit, AuditReport
from pipeline.crash_points import CrashPoint
from pipeline.settings import KafkaSettings, MongoSettings, Settings, WakerSettings
from pipeline.stores.audit_reads import MongoAuditReads
from pipeline.stores.indexes import apply_indexes
from producers.topics import apply_topics
from schemas.identity import ReadScope
from schemas.record import Record
from tests.faults.poison import Poison
from tests.faults.worker import Said, work
from tests.scripted_endpoint import ScriptedEndpoint

LEASE = timedelta(seconds=5.5)
SETTLE_WITHIN = timedelta(seconds=40)

_forks = multiprocessing.get_context("forkserver")
# Also what the roles import when they are made: else each worker takes seconds for it.
_forks.set_forkserver_preload(
    [
        "tests.faults.worker",
        "api.server",
        "consumers.apps",
        "consumers.operating",
        "pipeline.models.asking",
        "pipeline.models.openai",
    ]
)


@dataclass(slots=True, kw_only=True)
class System:
    """What a test drives: processes to start and kill, and the ledger to look at."""

    environment: dict[str, str]
    parts: Installation
    folder: Path
    workers: list[BaseProcess] = field(default_factory=list[BaseProcess])

    def start(
        self,
        said: Sequence[Said] = (),
        *,
        crash_at: CrashPoint | None = None,
        closes: bool = True,
        instance: str = "worker",
        environment: dict[str, str] | None = None,
        poison: Poison | None = None,
    ) -> BaseProcess:
        """Start a worker that records what is said and runs every role."""
        settings = {
            **self.environment,
            "AFTERTURN_KAFKA__INSTANCE_ID": instance,
            **(environment or {}),
        }
        worker = _forks.Process(
            target=work,
            args=(settings, self.folder / "workers.log", crash_at, said),
            kwargs={"closes": closes, "poison": poison},
        )
        worker.start()
        self.workers.append(worker)
        return worker

    async def dies(self, worker: BaseProcess, within: timedelta = SETTLE_WITHIN) -> bool:
        """Wait until a worker has died; false if it lives on."""
        await asyncio.to_thread(worker.join, within.total_seconds())
        return worker.exitcode is not None

    async def settles(self, turns: int, within: timedelta = SETTLE_WITHIN) -> None:
        """Wait until so many turns are recorded and nothing is open, pending, dirty or unsent."""
        state: Any = None
        try:
            async with asyncio.timeout(within.total_seconds()):
                while True:
                    began = time.monotonic()
                    state = await self._left()
                    if state == (turns, 0, 0, 0, 0, 0, 0):
                        return
                    # Counting is work for the database too: rest longer than it took.
                    await asyncio.sleep(max(0.1, 5 * (time.monotonic() - began)))
        except TimeoutError:
            log = (self.folder / "workers.log").read_text()[-6000:]
            raise AssertionError(f"does not settle: {state}, {turns} turns due\n{log}") from None

    async def is_settled(self, turns: int, *, but_open: int = 0) -> bool:
        """Return whether so many turns are recorded and no more is left to do than said."""
        return await self._left() == (turns, but_open, 0, 0, 0, 0, 0)

    async def _left(self) -> tuple[int, ...]:
        left = [await self.parts.database["turns"].count_documents({})]
        for collection, mark in (
            ("turns", "open"),
            ("snapshots", "wake_at_ms"),
            ("extractions", "unsent_since_ms"),
            ("letters", "unsent"),
            ("records", "dirty"),
            ("records", "unannounced"),
        ):
            left.append(
                await self.parts.database[collection].count_documents({mark: {"$exists": True}})
            )
        return tuple(left)

    async def audit(self) -> AuditReport:
        """Return what an audit finds."""
        reads = MongoAuditReads(
            self.parts.database,
            sessions=self.parts.sessions,
            turns=self.parts.turns,
            extractions=self.parts.extractions,
            assertions=self.parts.assertions,
            records=self.parts.records,
        )
        return await Audit(reads, self.parts.ids, pause_seconds=0.2).run(lambda _s, _r: None)

    async def records(self) -> list[Record]:
        """Return every record that is no shell."""
        found = [
            record async for record in self.parts.records.of_scope(ReadScope(project_id="default"))
        ]
        return [record for record in found if record.runs]

    def kill(self) -> None:
        """Kill every worker that lives."""
        for worker in self.workers:
            worker.kill()
            worker.join()


@asynccontextmanager
async def system(
    mongo_uri: str, bootstrap_servers: str, endpoint: ScriptedEndpoint, folder: Path
) -> AsyncGenerator[System]:
    """Yield a fresh installation with quick timings; its workers die with it."""
    name = f"fault_{uuid4().hex[:12]}"
    environment = {
        "AFTERTURN_MONGO__URI": mongo_uri,
        "AFTERTURN_MONGO__DATABASE": name,
        "AFTERTURN_MONGO__TIMEOUT": "2",
        "AFTERTURN_KAFKA__BOOTSTRAP_SERVERS": bootstrap_servers,
        "AFTERTURN_KAFKA__SESSION_TIMEOUT": "6",
        "AFTERTURN_KAFKA__HEARTBEAT_INTERVAL": "0.5",
        "AFTERTURN_KAFKA__REBALANCE_TIMEOUT": "6",
        "AFTERTURN_KAFKA__DRAIN_TIMEOUT": "3",
        "AFTERTURN_KAFKA__PUBLISH_TIMEOUT": "2",
        "AFTERTURN_LLM__PROVIDER": "openai_compatible",
        "AFTERTURN_LLM__MODEL": "scripted",
        "AFTERTURN_LLM__BASE_URL": endpoint.url,
        "AFTERTURN_LLM__API_KEY": "none",
        "AFTERTURN_LLM__TIMEOUT": "2",
        "AFTERTURN_SNAPSHOT__STALE": "1",
        "AFTERTURN_EXTRACTION__ATTEMPT_DEADLINE": "3",
        "AFTERTURN_EXTRACTION__LEASE": str(LEASE.total_seconds()),
        "AFTERTURN_WAKER__INTERVAL": "0.2",
        "AFTERTURN_WAKER__LOST_AFTER": "1",
        "AFTERTURN_RETRY__DELAYS": '{"5s": 0.3, "30s": 0.6, "2m": 1.2, "10m": 2.4, "1h": 5}',
    }
    settings = Settings(
        mongo=MongoSettings(uri=SecretStr(mongo_uri), database=name),
        kafka=KafkaSettings(bootstrap_servers=bootstrap_servers),
        waker=WakerSettings(lost_after=timedelta(seconds=1)),
    )
    await apply_topics(settings.kafka)
    async with installation(settings) as parts:
        await apply_indexes(parts.database)
        running = System(environment=environment, parts=parts, folder=folder)
        try:
            yield running
        finally:
            running.kill()
            await parts.database.client.drop_database(name)
