"""Real Kafka with brokers killed, stopped and restarted, topics lost, and retention passed by.

One cluster of three brokers, one ledger and the same workers go through all of it: what one test
leaves behind must not break the laws in the next.
"""

import asyncio
import random
import threading
from collections.abc import AsyncGenerator, Callable, Sequence, Set
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count, islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, RecordsToDelete

from compose.processes import free_port
from compose.real_kafka import KafkaCluster, real_kafka
from consumers.lag import group_lag
from consumers.recording_wiring import recorder
from consumers.status import topic_problems
from pipeline.settings import KafkaSettings, Settings
from producers.topics import apply_topics, check_topics
from schemas.failure import FailureClass
from schemas.identity import SessionIdentity
from schemas.topics import (
    DEAD,
    GROUPS,
    RETRY_TIERS,
    SNAPSHOT_READY,
    TURN_RECORDED,
    Stage,
    Topic,
)
from tests.faults.proxy import Proxy, proxy_to
from tests.faults.system import System, system
from tests.faults.test_crash_points import home
from tests.faults.worker import Said
from tests.scripted_endpoint import (
    Json,
    Reply,
    ScriptedEndpoint,
    delayed,
    held,
    refuses,
    status,
)

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.usefixtures("real_kafka_available"),
    pytest.mark.asyncio(loop_scope="module"),
]

BROKERS = 3
WORKERS = ("one", "two")
PERMITS = 4
ANSWER_TIME = timedelta(milliseconds=200)
"""How long the model takes: some calls are under way whenever something breaks."""
SLOW_ANSWER_TIME = timedelta(seconds=1)
TALKERS = 2
TURNS = 4
"""Of each session of a talker."""
PAUSE = timedelta(milliseconds=400)
"""Between two turns of a talker."""
LONG = timedelta(seconds=120)
PATIENT = {
    # Nothing but what is broken on purpose is to run out of time on a slow machine.
    "AFTERTURN_EXTRACTION__PERMITS": str(PERMITS),
    "AFTERTURN_LLM__TIMEOUT": "6",
    "AFTERTURN_EXTRACTION__ATTEMPT_DEADLINE": "8",
    "AFTERTURN_EXTRACTION__LEASE": "14",
    "AFTERTURN_MONGO__TIMEOUT": "5",
}
DISTURBANCES = 8


def answer(request: Json) -> Reply:
    """Answer as a model does, after a while."""
    return delayed(home(request), ANSWER_TIME)


def slow_answer(request: Json) -> Reply:
    """Answer after so long that some calls are always under way."""
    return delayed(home(request), SLOW_ANSWER_TIME)


@dataclass(slots=True, kw_only=True)
class Campaign:
    """A system under load, and all that was ever said to it."""

    cluster: KafkaCluster
    running: System
    endpoint: ScriptedEndpoint
    said: dict[SessionIdentity, list[str]] = field(default_factory=dict[SessionIdentity, list[str]])
    names: Any = field(default_factory=count)
    lost_calls: int = 0
    """Calls that may have been under way when a worker was killed or its connection was cut."""
    dead: int = 0
    """Extractions that had to be set aside."""

    @property
    def turns(self) -> int:
        """How many turns were said."""
        return sum(map(len, self.said.values()))

    def say(self, whose: SessionIdentity) -> str:
        """Return the next words of a session, which count as said."""
        words = self.said.setdefault(whose, [])
        words.append(f"I live in {whose.user_id}, house {len(words)}.")
        return words[-1]

    def sessions(self, number: int) -> list[SessionIdentity]:
        """Return so many new ones."""
        return [
            SessionIdentity(user_id=f"town {n}", session_id=f"s{n}")
            for n in islice(self.names, number)
        ]

    def start(self) -> None:
        """Start every worker, unless they run still; each records some sessions meanwhile."""
        if any(worker.is_alive() for worker in self.running.workers):
            return
        for worker in WORKERS:
            said: list[Said] = [
                (whose, self.say(whose)) for whose in self.sessions(4) for _ in range(2)
            ]
            self.running.start(said, instance=worker)

    @asynccontextmanager
    async def load(self) -> AsyncGenerator[None]:
        """Keep recording, one session after another, until left."""
        is_over = asyncio.Event()

        async def talk() -> None:
            while not is_over.is_set():
                (whose,) = self.sessions(1)
                for _ in range(TURNS):
                    await recording.record(whose, {"role": "user", "content": self.say(whose)})
                    await asyncio.sleep(PAUSE.total_seconds())

        async with recorder(self.running.parts) as recording:
            talks = [asyncio.create_task(talk()) for _ in range(TALKERS)]
            try:
                yield
            finally:
                is_over.set()
                await asyncio.gather(*talks)

    async def goes_on(self, turns: int = 8) -> None:
        """Wait until so many turns more have been said."""
        enough = self.turns + turns
        await until(lambda: self.turns >= enough)

    def log(self) -> str:
        """Return what the workers have logged."""
        return (self.running.folder / "workers.log").read_text()

    async def works(self, calls: int = 1) -> None:
        """Wait until so many model calls more have been made."""
        enough = self.endpoint.count + calls
        await asyncio.to_thread(self.endpoint.wait_for, enough, timeout=LONG)

    async def keeps_the_laws(self) -> None:
        """Wait until all is settled, and look at everything."""
        await self.running.settles(self.turns, LONG)
        report = await self.running.audit()
        stored, failed = await self._calls()

        assert report.violations == []
        assert (report.turns, report.in_snapshots, report.open) == (self.turns, self.turns, 0)
        assert set(report.outcomes) <= {"records", "dead"}
        assert report.outcomes["dead"] == self.dead == await self.running.parts.letters.count()
        assert await self._recorded() == sorted(self.said.values())
        assert stored <= self.endpoint.count <= stored + failed + self.lost_calls

    async def _calls(self) -> tuple[int, int]:
        """Return how many calls the stored answers took, and how many were answered otherwise.

        One that was cut off is counted where it was cut: many of them are no attempts.
        """
        stored = failed = 0
        async for extraction in self.running.parts.database["extractions"].find():
            failed += sum(
                attempt["failure"]["failure_class"] != FailureClass.NETWORK
                for attempt in extraction["attempts"]
            )
            stored += sum(part["reply"]["calls"] for part in extraction["parts"] if part["reply"])
        return stored, failed

    async def _recorded(self) -> list[list[str]]:
        """Return the words of every session in the order of their seqs, which must have no gap."""
        by_session: dict[str, list[str]] = {}
        async for turn in self.running.parts.database["turns"].find().sort("seq"):
            words = by_session.setdefault(turn["session"], [])
            words.append(turn["content"])
            assert turn["seq"] == len(words)
        return sorted(by_session.values())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONG.total_seconds()):
        while not condition():  # noqa: ASYNC110 (it comes true in other tasks and processes)
            await asyncio.sleep(0.1)


def kafka_settings(servers: str) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers=servers, replication_factor=BROKERS)


@asynccontextmanager
async def administering(servers: str) -> AsyncGenerator[Any]:
    admin: Any = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def coordinator(servers: str, group: str) -> int:
    """Return the broker that coordinates a group, and leads partitions as each of them does."""
    async with administering(servers) as admin:
        return await admin.find_coordinator(group)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(
    real_kafka_available: None, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[KafkaCluster]:
    async with real_kafka(tmp_path_factory.mktemp("brokers"), brokers=BROKERS) as three:
        await apply_topics(kafka_settings(three.bootstrap_servers))
        yield three


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def campaign(
    cluster: KafkaCluster, mongo_uri: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Campaign]:
    folder = tmp_path_factory.mktemp("campaign")
    with ScriptedEndpoint(respond=answer) as endpoint:
        async with system(mongo_uri, cluster.bootstrap_servers, endpoint, folder) as running:
            running.environment |= PATIENT | {"AFTERTURN_KAFKA__REPLICATION_FACTOR": str(BROKERS)}
            yield Campaign(cluster=cluster, running=running, endpoint=endpoint)
        assert endpoint.errors == ()


async def test_three_at_once_make_topics_on_three_brokers(cluster: KafkaCluster) -> None:
    """A broker that has not heard yet of what another has made is no problem."""
    addresses = cluster.bootstrap_servers.split(",")
    for number in range(3):
        topics = [
            Topic(name=f"made.{number}.{n}", partitions=3, retention=timedelta(days=7))
            for n in range(6)
        ]
        reports = await asyncio.gather(
            *(apply_topics(kafka_settings(each), topics=topics) for each in addresses)
        )

        assert [report.problems for report in reports] == [()] * BROKERS
        made = [name for report in reports for name in report.created]
        assert sorted(made) == sorted(topic.name for topic in topics)
        for each in addresses:
            assert await check_topics(kafka_settings(each), topics=topics) == []


async def test_a_leader_and_coordinator_is_killed_and_comes_back(campaign: Campaign) -> None:
    """Its partitions and groups go to the others, and work goes on while it is away."""
    cluster = campaign.cluster
    campaign.start()
    async with campaign.load():
        await campaign.works()
        broker = await coordinator(cluster.bootstrap_servers, GROUPS[Stage.EXTRACTION])
        await cluster.kill(broker)
        await campaign.works()
        await cluster.start(broker)
    await campaign.keeps_the_laws()


async def test_all_is_done_while_a_minority_is_stopped(campaign: Campaign) -> None:
    cluster = campaign.cluster
    campaign.start()
    broker = await coordinator(cluster.bootstrap_servers, GROUPS[Stage.SNAPSHOT])
    async with campaign.load():
        await campaign.works()
        await cluster.stop(broker)
        await campaign.works()
    await campaign.keeps_the_laws()
    await cluster.start(broker)


async def test_all_brokers_restart_at_once(campaign: Campaign) -> None:
    """Recording goes on without any of them."""
    cluster = campaign.cluster
    campaign.start()
    async with campaign.load():
        await campaign.works()
        await asyncio.gather(*(cluster.kill(broker) for broker in range(BROKERS)))
        await campaign.goes_on()
        await asyncio.gather(*(cluster.start(broker) for broker in range(BROKERS)))
        await campaign.works()
    await campaign.keeps_the_laws()


async def test_topics_that_are_made_again_begin_at_their_start(campaign: Campaign) -> None:
    """Offsets are lower than before: nothing is committed past what is not done."""
    servers = campaign.cluster.bootstrap_servers
    campaign.start()
    async with campaign.load():
        await campaign.works()
        await lose(servers, {TURN_RECORDED.name, SNAPSHOT_READY.name})
        await apply_topics(kafka_settings(servers))
        await campaign.works()
    await campaign.keeps_the_laws()
    await committed_to_the_end(servers, GROUPS[Stage.SNAPSHOT], [TURN_RECORDED])
    await committed_to_the_end(servers, GROUPS[Stage.EXTRACTION], [SNAPSHOT_READY])


async def test_lost_topics_are_told_and_cost_nothing_once_they_are_made(
    campaign: Campaign,
) -> None:
    """The wake-ups', the snapshots', all tiers and a dead topic; two fates need the latter."""
    servers = campaign.cluster.bootstrap_servers
    lost = {
        TURN_RECORDED.name,
        SNAPSHOT_READY.name,
        DEAD[Stage.EXTRACTION].name,
        *(tier.topic.name for tier in RETRY_TIERS[Stage.EXTRACTION]),
    }
    gate = threading.Event()
    campaign.endpoint.script(held(status(503), gate), held(refuses(), gate))
    campaign.dead += 1
    campaign.start()
    async with campaign.load():
        await campaign.works(2)
        logged = len(campaign.log())
        await lose(servers, lost)
        gate.set()
        await campaign.goes_on()
        said = await check_topics(kafka_settings(servers))
        assert len(said) == len(lost)
        assert await topic_problems(Settings(kafka=kafka_settings(servers))) == said
        await until(lambda: all(problem in campaign.log()[logged:] for problem in said))
        assert await campaign.running.parts.turns.open_sessions() != []
        await apply_topics(kafka_settings(servers))
        await campaign.works()
    await campaign.keeps_the_laws()

    assert all("run `./afterturn topics apply`" in problem for problem in said)


async def test_what_retention_took_is_sent_again(campaign: Campaign) -> None:
    """Wake-ups and snapshots are gone from Kafka before anybody read them."""
    servers = campaign.cluster.bootstrap_servers
    gate = threading.Event()
    campaign.start()
    await campaign.keeps_the_laws()
    answering = campaign.endpoint.count
    campaign.endpoint.respond_with(lambda request: held(home(request), gate))
    async with campaign.load():
        await campaign.works()
        await campaign.goes_on()
        campaign.running.kill()
        campaign.lost_calls += campaign.endpoint.count - answering
        gate.set()
        campaign.endpoint.respond_with(answer)
        await campaign.goes_on()
    passed = await forget_all(servers, [TURN_RECORDED, SNAPSHOT_READY])
    behind = {
        each.topic
        for group in (GROUPS[Stage.SNAPSHOT], GROUPS[Stage.EXTRACTION])
        for each in await group_lag(kafka_settings(servers), group, [TURN_RECORDED, SNAPSHOT_READY])
        if (each.committed or 0) < passed[TopicPartition(each.topic, each.partition)]
    }
    campaign.start()
    await campaign.keeps_the_laws()

    assert behind == {TURN_RECORDED.name, SNAPSHOT_READY.name}


async def test_everything_between_is_cut_stalled_and_refused(
    mongo_uri: str, tmp_path: Path
) -> None:
    """Kafka (one broker), MongoDB and the model at once, at random moments of a fixed seed."""
    dice = random.Random(34)  # noqa: S311 (a schedule, not a secret)
    port = free_port()
    with ScriptedEndpoint(respond=slow_answer) as endpoint:
        async with (
            proxy_to(port) as to_kafka,
            proxy_to(urlsplit(mongo_uri).port or 27017) as to_mongo,
            proxy_to(urlsplit(endpoint.url).port or 80) as to_model,
            real_kafka(tmp_path / "kafka", ports=[port], advertised_ports=[to_kafka.port]) as one,
            system(mongo_uri, one.bootstrap_servers, endpoint, tmp_path) as running,
        ):
            running.environment |= PATIENT | {
                "AFTERTURN_MONGO__URI": f"mongodb://127.0.0.1:{to_mongo.port}/?directConnection=true",
                "AFTERTURN_LLM__BASE_URL": f"http://127.0.0.1:{to_model.port}/v1",
            }
            campaign = Campaign(cluster=one, running=running, endpoint=endpoint)
            campaign.start()
            proxies = (to_kafka, to_mongo, to_model)
            async with campaign.load():
                await until(lambda: to_model.asking > 0)
                to_model.cut()
                for _ in range(DISTURBANCES):
                    await disturb(dice.choice(proxies), dice)
            campaign.lost_calls = to_model.cut_asking
            await campaign.keeps_the_laws()


async def test_more_partitions_are_told_and_read(campaign: Campaign) -> None:
    """Those that run go on and say what is wrong; one that starts refuses. The last one here."""
    servers = campaign.cluster.bootstrap_servers
    campaign.start()
    async with campaign.load():
        await campaign.works()
        async with administering(servers) as admin:
            more = NewPartitions(TURN_RECORDED.partitions + 2)
            await admin.create_partitions({TURN_RECORDED.name: more, SNAPSHOT_READY.name: more})
        await until(lambda: campaign.log().count("partitions, not 6") >= 2 * len(WORKERS))
        await campaign.works()
    await campaign.keeps_the_laws()
    refused = campaign.running.start(instance="three")

    assert await campaign.running.dies(refused)
    assert refused.exitcode == 1
    assert "delete it and run `./afterturn topics apply`" in campaign.log()


async def disturb(proxy: Proxy, dice: random.Random) -> None:
    """Break a connection's way for a moment, and leave it whole for another."""
    match dice.choice(("cut", "stall", "refuse")):
        case "cut":
            proxy.cut()
        case "stall":
            proxy.stall()
        case _:
            proxy.refuse()
            proxy.cut()
    await asyncio.sleep(dice.uniform(0.2, 1.5))
    proxy.resume()
    await asyncio.sleep(dice.uniform(0.1, 0.5))


async def lose(servers: str, names: Set[str]) -> None:
    """Delete topics, until no broker knows them any more."""
    async with administering(servers) as admin:
        await admin.delete_topics(list(names))
    for each in servers.split(","):
        async with administering(each) as admin:
            while names & set(await admin.list_topics()):  # noqa: ASYNC110 (far away)
                await asyncio.sleep(0.05)


async def forget_all(servers: str, topics: Sequence[Topic]) -> dict[TopicPartition, int]:
    """Delete all that topics hold, as their retention would; return where they begin now."""
    partitions = [
        TopicPartition(topic.name, number) for topic in topics for number in range(topic.partitions)
    ]
    consumer: Any = AIOKafkaConsumer(bootstrap_servers=servers)
    async with consumer, administering(servers) as admin:
        ends: dict[TopicPartition, int] = await consumer.end_offsets(partitions)
        await admin.delete_records(
            {each: RecordsToDelete(before_offset=end) for each, end in ends.items()}
        )
        return await consumer.beginning_offsets(partitions)


async def committed_to_the_end(servers: str, group: str, topics: Sequence[Topic]) -> None:
    """Wait until a group has committed just what there is."""
    async with asyncio.timeout(LONG.total_seconds()):
        while any(  # noqa: ASYNC110 (far away)
            each.committed != each.end
            for each in await group_lag(kafka_settings(servers), group, topics)
            if each.end
        ):
            await asyncio.sleep(0.2)
