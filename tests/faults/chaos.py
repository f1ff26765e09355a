"""Carries a campaign out on real servers and processes, and gathers what is there afterwards."""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from pydantic import SecretStr
from structlog.testing import capture_logs

from compose.embedded import embedded_kafka, embedded_mongo, mongo_uri
from consumers.recording_wiring import recorder
from consumers.wiring import installation
from pipeline.errors import ConflictError, RecordingUnavailableError
from pipeline.messages import EVENT_ID_HEADER
from pipeline.reading.memories import text_of
from pipeline.settings import KafkaSettings, MongoSettings, Settings
from pipeline.stores.switches import MongoGuards
from producers.recording import Recorder
from schemas.extraction import Extraction
from schemas.failure import Letter
from schemas.identity import ReadScope
from schemas.topics import TOPICS
from tests import scripted_endpoint as scripted
from tests.faults.campaign import (
    GARBAGE,
    Break,
    Campaign,
    Echo,
    Event,
    Garbage,
    Instance,
    Outage,
    Restart,
    Talk,
    Target,
)
from tests.faults.laws import Place, Remains, said_in
from tests.faults.moody_model import RETRY_AFTER_SECONDS, MoodyModel
from tests.faults.proxy import Proxy, proxy_to
from tests.faults.system import System, system
from tests.faults.worker import Said, turn_key
from tests.integration.kafka import Record as Message
from tests.scripted_endpoint import ScriptedEndpoint

PERMITS: Final = 4
SPEAKERS: Final = 16
"""Talks that are recorded side by side: more the embedded database can't take."""
SETTLES_WITHIN: Final = timedelta(minutes=5)
"""Seconds where nothing else runs; a machine that is shared may take minutes."""
CRASHES_WITHIN: Final = timedelta(seconds=5)
ANSWERS_LOST: Final = 5
"""Of so many answers of the database, one, while they get lost."""
OTHER_VERSION: Final = {"AFTERTURN_LLM__TEMPERATURE": "0.5"}
TIMINGS: Final = {
    "AFTERTURN_EXTRACTION__PERMITS": str(PERMITS),
    "AFTERTURN_EXTRACTION__LEASE": "9",
    "AFTERTURN_MONGO__TIMEOUT": "4",
    "AFTERTURN_WAKER__INTERVAL": "1",
    "AFTERTURN_WAKER__LOST_AFTER": "8",
    "AFTERTURN_SNAPSHOT__STALE": "2",
    "AFTERTURN_SNAPSHOT__MAX_MESSAGES": "2",
}


@dataclass(slots=True, kw_only=True)
class Crew:
    """The workers by name: at most one of a name at a time."""

    running: System
    by_name: dict[Instance, BaseProcess] = field(default_factory=dict[Instance, BaseProcess])
    turnstiles: defaultdict[Instance, asyncio.Lock] = field(
        default_factory=lambda: defaultdict[Instance, asyncio.Lock](asyncio.Lock)
    )
    armed: set[int | None] = field(default_factory=set[int | None])
    """The process ids of those that may die by themselves."""
    ended: int = 0
    failed: int = 0
    """Those that ended by an error."""
    surprises: list[str] = field(default_factory=list[str])
    """What ended as none should."""

    async def restart(self, fault: Restart, said: Sequence[Said]) -> None:
        """End whoever has the name and begin anew; where it dies at its point, once more."""
        async with self.turnstiles[fault.instance]:
            await self._end(fault.instance, fault.how)
            await asyncio.sleep(fault.away.total_seconds())
            environment = OTHER_VERSION if fault.is_other_version else {}
            worker = self.by_name[fault.instance] = self.running.start(
                said,
                crash_at=fault.crash_at,
                instance=fault.instance,
                environment=environment,
            )
            if fault.crash_at is None:
                return
            self.armed.add(worker.pid)
            if await self.running.dies(worker, CRASHES_WITHIN):
                self.ended += 1
                self.by_name[fault.instance] = self.running.start(
                    instance=fault.instance, environment=environment
                )

    async def recover(self) -> None:
        """Let nobody be armed any more, and at least two be there."""
        names: tuple[Instance, ...] = ("one", "two", "three")
        for name in names:
            worker = self.by_name.get(name)
            if worker is None:
                continue
            if worker.pid in self.armed or worker.exitcode is not None:
                await self._end(name, "kill -9")
                self.by_name[name] = self.running.start(instance=name)

    async def _end(self, name: Instance, how: str) -> None:
        worker = self.by_name.get(name)
        if worker is None:
            return
        self._look_at(name, worker, how="by itself")
        if worker.exitcode is not None:
            self.ended += worker.pid in self.armed
            return
        if how == "kill -9":
            worker.kill()
        else:
            worker.terminate()
        self.ended += 1
        if not await self.running.dies(worker):
            self.surprises.append(f"worker {name} does not end")
            worker.kill()
            await self.running.dies(worker)
        self._look_at(name, worker, how=how)

    def _look_at(self, name: Instance, worker: BaseProcess, *, how: str) -> None:
        if worker.exitcode == 1:
            self.failed += 1
            return
        expected = {"by itself": {None}, "kill -9": {-9}, "SIGTERM": {0, -15}}[how]
        if worker.exitcode not in expected | ({-9} if worker.pid in self.armed else set[int]()):
            self.surprises.append(f"worker {name} ended with {worker.exitcode} ({how})")


class Agent:
    """Records every talk as a runtime does: until each turn is acknowledged."""

    def __init__(self, recording: Recorder) -> None:
        self._recording = recording
        self._gate = asyncio.Semaphore(SPEAKERS)
        self.accepted_contradictions: list[int] = []

    async def say(self, talk: Talk) -> None:
        """Say a talk from its first turn to its end."""
        await asyncio.sleep(talk.begins.total_seconds())
        said = said_in(talk)
        async with self._gate:
            for place, content in enumerate(said):
                await self._record(talk, place, content)
            if talk.is_contradicted:
                await self._contradict(talk, len(said) - 1)
            if talk.is_closed:
                await self._close(talk)

    async def _record(self, talk: Talk, place: int, content: str) -> None:
        draft = {"role": "user", "content": content, "idempotency_key": turn_key(place)}
        while True:
            try:
                await self._recording.record(talk.identity, draft)
            except RecordingUnavailableError:
                await asyncio.sleep(0.2)
            else:
                return

    async def _contradict(self, talk: Talk, place: int) -> None:
        try:
            await self._record(talk, place, "I never said that.")
        except ConflictError:
            return
        self.accepted_contradictions.append(talk.number)

    async def _close(self, talk: Talk) -> None:
        while True:
            try:
                await self._recording.close(talk.identity)
            except RecordingUnavailableError:
                await asyncio.sleep(0.2)
            else:
                return


@dataclass(slots=True, kw_only=True)
class Stage:
    """Where a campaign happens."""

    campaign: Campaign
    running: System
    crew: Crew
    model: MoodyModel
    servers: str
    """Kafka, past the proxy."""
    proxies: dict[Target, Proxy]
    outside: Settings
    """As an agent's process has them: through the proxies."""
    garbage: list[Place] = field(default_factory=list[Place])
    accepted_contradictions: list[int] = field(default_factory=list[int])
    agent_log: str = ""
    breaking: defaultdict[str, asyncio.Lock] = field(
        default_factory=lambda: defaultdict[str, asyncio.Lock](asyncio.Lock)
    )
    done: list[str] = field(default_factory=list[str])
    """What was done, and when it had been."""

    async def break_things(self) -> None:
        """Let everybody talk while things break; return when all was said and nothing is broken."""
        for worker in self.campaign.first:
            await self.crew.restart(worker, ())
        began = time.monotonic()
        with capture_logs() as logged:
            async with (
                installation(self.outside) as parts,
                recorder(parts) as recording,
                asyncio.TaskGroup() as group,
            ):
                agent = Agent(recording)
                for talk in self.campaign.talks:
                    group.create_task(agent.say(talk))
                for event in self.campaign.events:
                    group.create_task(self._do(event, began))
        self.agent_log = "\n".join(map(repr, logged))
        self.accepted_contradictions = agent.accepted_contradictions

    async def settle(self) -> Remains:
        """See that everything comes to its end; return what is there then."""
        self.model.has_calmed = True
        await self.crew.recover()
        ended = self.crew.ended
        await self.running.settles(self.campaign.turns, SETTLES_WITHIN)
        for worker in self.crew.by_name.values():
            if worker.exitcode is not None:
                self.crew.surprises.append(f"a worker ended with {worker.exitcode} by itself")
        self.running.kill()
        return await self._remains(ended)

    async def _do(self, event: Event, began: float) -> None:
        await asyncio.sleep(event.at.total_seconds() - (time.monotonic() - began))
        match event.fault:
            case Restart() as fault:
                await self.crew.restart(fault, self._said(fault.talks))
            case Break() as fault:
                await self._break(fault)
            case Outage() as fault:
                await self._fail_everybody(fault)
            case Garbage() as fault:
                await self._litter(fault)
            case Echo() as fault:
                await self._echo(fault)
        self.done.append(f"{time.monotonic() - began:5.1f} s  done: {event}")

    def _said(self, talks: range) -> list[Said]:
        return [
            (talk.identity, content)
            for talk in self.campaign.talks[talks.start : talks.stop]
            for content in said_in(talk)
        ]

    async def _break(self, fault: Break) -> None:
        proxy = self.proxies[fault.target]
        async with self.breaking[fault.target]:
            match fault.trouble:
                case "cut":
                    proxy.cut()
                case "refuse":
                    proxy.refuse()
                    proxy.cut()
                case "stall":
                    proxy.stall()
                case "lose_answers":
                    proxy.lose_answers(every=ANSWERS_LOST)
            await asyncio.sleep(fault.lasts.total_seconds())
            proxy.lose_answers(every=None)
            proxy.resume()

    async def _fail_everybody(self, fault: Outage) -> None:
        retry_after = RETRY_AFTER_SECONDS if fault.status == 429 else None
        async with self.breaking["answers"]:
            self.model.outage = scripted.status(fault.status, retry_after=retry_after)
            await asyncio.sleep(fault.lasts.total_seconds())
            self.model.outage = None

    async def _litter(self, fault: Garbage) -> None:
        value = GARBAGE[fault.kind]
        self.garbage += await appended(self.servers, fault.topic, [(b"litter", value, [])])

    async def _echo(self, fault: Echo) -> None:
        there = (await messages_of(self.servers, [fault.topic]))[fault.topic]
        ours = [each for each in there if any(name == EVENT_ID_HEADER for name, _ in each.headers)]
        dice = random.Random(fault.dice)  # noqa: S311 (a schedule, not a secret)
        chosen = dice.sample(ours, min(fault.count, len(ours)))
        again = [(each.key, each.value, list(each.headers)) for each in chosen]
        await appended(self.servers, fault.topic, again)

    async def _remains(self, ended: int) -> Remains:
        parts = self.running.parts
        turns = {
            talk.number: await parts.turns.read(self._session(talk), 1, 99)
            for talk in self.campaign.talks
        }
        remembered = {
            talk.number: [
                text_of(run.content)
                async for record in parts.records.of_scope(
                    ReadScope(project_id="default", user_id=talk.identity.user_id)
                )
                for run in record.runs
            ]
            for talk in self.campaign.talks
        }
        return Remains(
            audit=await self.running.audit(),
            turns=turns,
            extractions=await self._extractions(),
            remembered=remembered,
            letters=await self._letters(),
            messages=await messages_of(self.servers, [topic.name for topic in TOPICS]),
            log=f"{(self.running.folder / 'workers.log').read_text()}\n{self.agent_log}",
            asked=self.model.asked,
            garbage=self.garbage,
            accepted_contradictions=self.accepted_contradictions,
            tripped_guards=[
                guard.guard_id
                for guard in await MongoGuards(parts.database).all()
                if guard.tripped_at_ms is not None
            ],
            ended=ended,
            failed=self.crew.failed,
            surprises=self.crew.surprises,
            permits=PERMITS,
        )

    def _session(self, talk: Talk) -> str:
        return self.running.parts.ids.session(talk.identity, 1)

    async def _extractions(self) -> dict[int, list[Extraction]]:
        found: dict[int, list[Extraction]] = {}
        for talk in self.campaign.talks:
            snapshots = await self.running.parts.snapshots.covering(self._session(talk), 1)
            extractions = [
                await self.running.parts.extractions.get(f"{each.snapshot_id}:{each.active_run}")
                for each in snapshots
            ]
            found[talk.number] = [each for each in extractions if each is not None]
        return found

    async def _letters(self) -> list[Letter]:
        found = self.running.parts.database["letters"].find()
        return [
            Letter.model_validate({name: one[name] for name in Letter.model_fields if name in one})
            async for one in found
        ]


@asynccontextmanager
async def stage(campaign: Campaign, folder: Path) -> AsyncGenerator[Stage]:
    """Yield servers, proxies before each, a model, and no worker yet."""
    model = MoodyModel(campaign.talks)
    with ScriptedEndpoint(respond=model) as endpoint:
        async with (
            embedded_mongo(folder / "mongo", sync_on_commit=False) as mongo,
            embedded_kafka(folder / "kafka") as kafka,
            proxy_to(mongo.port) as to_mongo,
            proxy_to(kafka.port, readdresses=True) as to_kafka,
            proxy_to(urlsplit(endpoint.url).port or 0) as to_model,
            system(mongo.uri, kafka.bootstrap_servers, endpoint, folder) as running,
        ):
            uri, servers = mongo_uri(to_mongo.port), f"127.0.0.1:{to_kafka.port}"
            running.environment |= {
                "AFTERTURN_MONGO__URI": uri,
                "AFTERTURN_KAFKA__BOOTSTRAP_SERVERS": servers,
                "AFTERTURN_LLM__BASE_URL": f"http://127.0.0.1:{to_model.port}/v1",
                **TIMINGS,
            }
            yield Stage(
                campaign=campaign,
                running=running,
                crew=Crew(running=running),
                model=model,
                servers=kafka.bootstrap_servers,
                proxies={"kafka": to_kafka, "mongo": to_mongo, "model": to_model},
                outside=Settings(
                    mongo=MongoSettings(
                        uri=SecretStr(uri),
                        database=running.parts.database.name,
                        timeout=timedelta(seconds=3),
                    ),
                    kafka=KafkaSettings(
                        bootstrap_servers=servers, publish_timeout=timedelta(seconds=2)
                    ),
                ),
            )
        assert endpoint.errors == ()


async def appended(
    servers: str, topic: str, messages: Sequence[tuple[bytes | None, bytes | None, Any]]
) -> list[Place]:
    """Append raw messages; return where each is."""
    producer: Any = AIOKafkaProducer(bootstrap_servers=servers, acks="all")
    async with producer:
        sent = [
            await producer.send_and_wait(topic, value, key=key, headers=headers)
            for key, value, headers in messages
        ]
    return [(each.topic, each.partition, each.offset) for each in sent]


async def messages_of(servers: str, topics: Sequence[str]) -> dict[str, list[Message]]:
    """Return everything that is on these topics, by partition, in order."""
    partitions_by_topic = {topic.name: topic.partitions for topic in TOPICS}
    places = [
        TopicPartition(topic, number)
        for topic in topics
        for number in range(partitions_by_topic[topic])
    ]
    found: dict[str, list[Message]] = {topic: [] for topic in topics}
    consumer: Any = AIOKafkaConsumer(bootstrap_servers=servers)
    async with consumer:
        ends: dict[TopicPartition, int] = await consumer.end_offsets(places)
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        due = sum(ends.values())
        while sum(map(len, found.values())) < due:
            batches: dict[TopicPartition, list[Message]] = await consumer.getmany(timeout_ms=1000)
            for place, batch in batches.items():
                found[place.topic] += batch
    return found
