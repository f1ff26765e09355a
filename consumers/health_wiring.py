"""The parts of a process's health, from its installation and what it runs."""

from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial

from aiokafka import TopicPartition

from consumers import health_readiness
from consumers.apps import ConsumerApp
from consumers.exporting import PrometheusExporter
from consumers.health import Health, Vitals
from consumers.health_loop import LoopWatch
from consumers.health_progress import STALL_SESSIONS, ProgressWatch
from consumers.health_readiness import Dependency
from consumers.lag import group_lag
from consumers.running import Runnable
from consumers.wiring import Installation
from pipeline.stores.backlog import read_backlog
from schemas.topics import GROUPS, TOPICS, Stage


@asynccontextmanager
async def health_served(
    parts: Installation, apps: Sequence[Runnable]
) -> AsyncGenerator[list[Runnable]]:
    """Watch the event loop, and serve health where a port is named; yield what is to be run.

    Raises:
        ConfigurationError: The address can't be had.
    """
    settings = parts.settings.health
    with LoopWatch() as loop:
        if settings.port is None or parts.exporter is None:
            yield list(apps)
            return
        health = _health(parts, apps, loop, parts.exporter)
        health.open(settings.host, settings.port)
        try:
            yield [*apps, health]
        finally:
            await health.close()


def _health(
    parts: Installation, apps: Sequence[Runnable], loop: LoopWatch, exporter: PrometheusExporter
) -> Health:
    kafka = parts.settings.kafka
    consumers = [app for app in apps if isinstance(app, ConsumerApp)]
    watched = [each for app in consumers for each in app.watched()]

    def unreadable() -> list[TopicPartition]:
        pools = [pool for app in consumers for pool in app.pools.values()]
        return [partition for pool in pools for partition in pool.unreadable()]

    async def measure() -> None:
        parts.metrics.backlog(await read_backlog(parts.database, parts.server_time))

    return Health(
        vitals=Vitals(
            loop=loop,
            progress=ProgressWatch(
                watched,
                lag=partial(group_lag, kafka),
                patience=STALL_SESSIONS * kafka.session_timeout,
            ),
            blocked_limit=kafka.session_timeout,
        ),
        dependencies=_dependencies(
            parts,
            unreadable,
            stages={stage for stage in Stage for each in watched if each.group == GROUPS[stage]},
        ),
        exporter=exporter,
        measure=measure,
        look_interval=kafka.session_timeout / 2,
    )


def _dependencies(
    parts: Installation,
    unreadable: Callable[[], Collection[TopicPartition]],
    *,
    stages: Collection[Stage],
) -> list[Dependency]:
    found = [
        health_readiness.mongo(parts.database),
        health_readiness.kafka(parts.settings.kafka, TOPICS, unreadable=unreadable),
    ]
    if Stage.EXTRACTION in stages:
        found.append(health_readiness.model(parts.settings.llm))
    if Stage.EMBEDDING in stages:
        found.append(health_readiness.embedder(parts.active_model, parts.settings.embedding))
    return found
