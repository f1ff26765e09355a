"""What a process says of itself over HTTP, with real servers, gone ones, and a blocked loop."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from http.client import HTTPConnection
from typing import Any
from uuid import uuid4

import pytest
from pydantic import SecretStr

from consumers import health_readiness
from consumers.exporting import CONTENT_TYPE, PrometheusExporter
from consumers.health import Health, Vitals
from consumers.health_loop import LoopWatch
from consumers.health_progress import ProgressWatch, Watched
from consumers.health_readiness import Condition, Dependency, conditions
from consumers.lag import group_lag
from pipeline.errors import ConfigurationError
from pipeline.metrics import METRICS, Metrics
from pipeline.settings import KafkaSettings, LLMSettings, MongoSettings
from pipeline.stores.mongo import Database, connect, database
from producers.topics import apply_topics
from schemas.failure import FailureClass
from schemas.topics import TOPICS, Topic
from tests.integration.consuming import Told, consuming, declared, kafka_settings, new_group
from tests.integration.kafka import append, new_topic

HOST = "127.0.0.1"
PATIENCE_SECONDS = 30
SECRET = "hunter2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What was answered."""

    status: int
    content_type: str
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.body)


def ask(port: int, path: str) -> Answer:
    """Ask from this thread, as a probe does."""
    connection = HTTPConnection(HOST, port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return Answer(
            status=answer.status,
            content_type=answer.getheader("Content-Type") or "",
            body=answer.read(),
        )
    finally:
        connection.close()


async def get(port: int, path: str) -> Answer:
    return await asyncio.to_thread(ask, port, path)


async def nothing() -> None:
    """Measure nothing."""


class Served:
    """Health of a process that runs nothing but what a test says."""

    def __init__(self, watched: list[Watched], kafka: KafkaSettings | None = None) -> None:
        self.exporter = PrometheusExporter()
        self.metrics = Metrics(self.exporter)
        self.dependencies: list[Dependency] = []
        self.measure = nothing
        self.loop = LoopWatch()
        self.progress = ProgressWatch(
            watched,
            lag=lambda group, topics: group_lag(kafka or KafkaSettings(), group, topics),
            patience=timedelta(milliseconds=300),
        )
        self.port = 0

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Health]:
        with self.loop:
            health = Health(
                vitals=Vitals(
                    loop=self.loop, progress=self.progress, blocked_limit=timedelta(seconds=1)
                ),
                dependencies=self.dependencies,
                exporter=self.exporter,
                measure=self.measure,
                look_interval=timedelta(milliseconds=100),
            )
            self.port = health.open(HOST, 0)
            await health.start()
            try:
                yield health
            finally:
                await health.stop()
                await health.close()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    yield Served([])


async def test_metrics_are_measured_when_they_are_asked_for(served: Served) -> None:
    measured = 0

    async def measure() -> None:
        nonlocal measured
        measured += 1
        served.metrics.attempt_failed(FailureClass.NETWORK)

    served.measure = measure
    async with served.open():
        await get(served.port, "/metrics")
        answer = await get(served.port, "/metrics")

    page = answer.body.decode()
    assert (answer.status, answer.content_type) == (200, CONTENT_TYPE)
    assert measured == 2
    assert 'afterturn_attempts_failed_total{failure_class="env.network"} 2.0' in page
    assert all(f"# TYPE {metric.name} {metric.kind}" in page for metric in METRICS)


async def test_a_mongodb_that_is_gone_takes_no_metric_away(served: Served) -> None:
    client = connect(
        MongoSettings(uri=SecretStr(f"mongodb://{HOST}:1"), timeout=timedelta(seconds=0.2))
    )

    async def measure() -> None:
        await client.admin.command("ping")

    served.measure = measure
    async with served.open():
        answer = await get(served.port, "/metrics")
    await client.close()

    assert answer.status == 200
    assert b"afterturn_letters" in answer.body


async def test_readiness_tells_each_dependency_and_what_to_do(
    served: Served, db: Database, bootstrap_servers: str
) -> None:
    kafka = KafkaSettings(bootstrap_servers=bootstrap_servers)
    await apply_topics(kafka)
    llm = LLMSettings(provider="openai", model="m", api_key=SecretStr(SECRET))
    served.dependencies += [
        health_readiness.mongo(db),
        health_readiness.kafka(kafka, TOPICS),
        health_readiness.model(llm),
    ]
    async with served.open() as health:
        well = await get(served.port, "/ready")
        await health.stop()
        stopping = await get(served.port, "/ready")
        live = await get(served.port, "/live")

    assert well.status == 200
    assert well.json["ready"]
    states = {name: each["state"] for name, each in well.json["dependencies"].items()}
    assert states == dict.fromkeys(("mongo", "kafka", "model"), "well")
    assert (stopping.status, stopping.json["ready"]) == (503, False)
    assert stopping.json["dependencies"]["process"]["detail"] == "it is stopping"
    assert live.status == 200
    assert SECRET.encode() not in well.body + stopping.body


async def test_what_is_gone_or_missing_is_told_and_no_secret_is(bootstrap_servers: str) -> None:
    settings = MongoSettings(
        uri=SecretStr(f"mongodb://mara:{SECRET}@{HOST}:1"), timeout=timedelta(seconds=0.2)
    )
    client = connect(settings)
    nowhere = KafkaSettings(bootstrap_servers=f"{HOST}:1")
    here = KafkaSettings(bootstrap_servers=bootstrap_servers)
    found = [
        await conditions([each])
        for each in (
            health_readiness.mongo(database(client, settings)),
            health_readiness.kafka(nowhere, TOPICS),
            health_readiness.kafka(here, declared(f"nobody.made.{uuid4().hex}")),
            health_readiness.model(LLMSettings()),
        )
    ]
    await client.close()

    told = [condition for each in found for condition in each.values()]
    assert [each.state for each in told] == ["unreachable", "unreachable", "wrong", "wrong"]
    for condition, setting in zip(
        told,
        (
            "AFTERTURN_MONGO__URI",
            "AFTERTURN_KAFKA__BOOTSTRAP_SERVERS",
            "afterturn doctor",
            "AFTERTURN_LLM__PROVIDER",
        ),
        strict=True,
    ):
        assert setting in (condition.action or "")
    assert SECRET not in str(told)


async def test_topics_that_may_not_be_looked_at_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(_settings: KafkaSettings, *, topics: Sequence[Topic]) -> list[str]:
        raise ConfigurationError(f"allow this client DescribeConfigs on {topics[0].name}")

    monkeypatch.setattr(health_readiness, "check_topics", refused)
    found = await conditions([health_readiness.kafka(KafkaSettings(), TOPICS)])

    assert found["kafka"].state == "wrong"
    assert "DescribeConfigs" in found["kafka"].detail


async def test_one_that_hangs_is_unreachable_and_holds_up_no_other() -> None:
    async def hangs() -> Condition:
        await asyncio.Event().wait()
        raise AssertionError

    async def answers() -> Condition:
        return Condition(state="well", detail="it answers")

    found = await conditions(
        [Dependency(name="a", check=hangs), Dependency(name="b", check=answers)],
        timedelta(milliseconds=100),
    )

    assert {name: each.state for name, each in found.items()} == {"a": "unreachable", "b": "well"}
    assert found["a"].action


async def test_a_blocked_loop_is_not_live_and_still_answers(served: Served) -> None:
    answers: dict[str, Answer] = {}

    def probe() -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            answers["live"] = ask(served.port, "/live")
            if answers["live"].status != 200:
                break
        answers["ready"] = ask(served.port, "/ready")
        answers["metrics"] = ask(served.port, "/metrics")

    async with served.open():
        before = await get(served.port, "/live")
        probing = threading.Thread(target=probe)
        probing.start()
        probing.join()  # the event loop is blocked meanwhile
        after = await until_status(served.port, 200)

    assert before.json == {"live": True, "problems": []}
    assert answers["live"].status == 503
    assert "event loop is blocked" in answers["live"].json["problems"][0]
    assert answers["ready"].status == 503
    assert "event_loop_blocked" in answers["ready"].json["dependencies"]["process"]["action"]
    assert answers["metrics"].status == 200
    assert after.json["live"]


async def test_a_consumer_that_has_work_and_does_not_move_is_not_live(
    bootstrap_servers: str,
) -> None:
    topic, group = await new_topic(bootstrap_servers), new_group()
    settings, told = kafka_settings(bootstrap_servers), Told()
    gate = told.block(b"stuck")
    async with consuming(settings, told, declared(topic), group) as app:
        served = Served(app.watched(), settings)
        async with served.open():
            idle = await get(served.port, "/live")
            await append(bootstrap_servers, topic, [b"stuck"])
            await told.until(lambda told: told.values == [b"stuck"])
            stuck = await until_status(served.port, 503)
            gate.set()
            moving = await until_status(served.port, 200)

    assert idle.status == 200
    assert stuck.json["problems"] == ["main: there is work and nothing has moved for too long"]
    assert moving.json["live"]


async def until_status(port: int, status: int) -> Answer:
    """Ask for liveness until it is so."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            answer = await get(port, "/live")
            if answer.status == status:
                return answer


async def test_a_held_message_is_no_reason_to_restart(bootstrap_servers: str) -> None:
    topic, group = await new_topic(bootstrap_servers), new_group()

    def gone(_message: object) -> None:
        raise OSError

    settings, told = kafka_settings(bootstrap_servers), Told(gone)
    async with consuming(settings, told, declared(topic), group) as app:
        watch = ProgressWatch(
            app.watched(),
            lag=lambda group, topics: group_lag(settings, group, topics),
            patience=timedelta(milliseconds=1),
        )
        await append(bootstrap_servers, topic, [b"held"])
        await told.until(lambda told: len(told.values) == 2)
        assert app.pools["main"].held == 1
        for _ in range(5):
            await watch.look()

            assert watch.stalled == ()


async def test_other_paths_name_those_there_are(served: Served) -> None:
    async with served.open():
        answer = await get(served.port, "/secret?x=1")

    assert answer.status == 404
    assert answer.json == {"there_are": ["/metrics", "/live", "/ready"]}


async def test_a_taken_address_is_refused_with_what_to_change(served: Served) -> None:
    async with served.open():
        other = Health(
            vitals=Vitals(
                loop=served.loop, progress=served.progress, blocked_limit=timedelta(seconds=1)
            ),
            dependencies=[],
            exporter=served.exporter,
            measure=nothing,
            look_interval=timedelta(seconds=1),
        )
        with pytest.raises(ConfigurationError, match="AFTERTURN_HEALTH__PORT"):
            other.open(HOST, served.port)
