"""The parts of a running system, together in one process or each in its own.

What only one of them needs is imported where that one is made: together they take seconds.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, Literal

from pydantic import SecretStr

from cli.environment import announced, settings_on
from cli.output import Output, counted
from compose.embedded import Services, embedded_services
from compose.errors import ServiceDiedError
from compose.offline.server import MODEL as OFFLINE_MODEL
from compose.offline.server import offline_extractor
from consumers.deadlines import check_deadlines
from consumers.embedding_wiring import configured_embedder, embedding_step
from consumers.extraction_wiring import configured_model, extraction_step, own_models
from consumers.recording_wiring import snapshot_step, waker
from consumers.room import Room
from consumers.running import Runnable
from consumers.wiring import Installation, installation, isolated, retry_tiers
from pipeline.embedding.checking import check_embedder
from pipeline.settings import Settings
from pipeline.stores.indexes import apply_indexes
from producers.topics import apply_topics
from producers.waker import Waker
from schemas.topics import Stage

# ruff: noqa: PLC0415

Role = Literal["waker", "snapshot", "extraction", "embedding", "jobs", "http"]
ROLES: Final[tuple[Role, ...]] = ("waker", "snapshot", "extraction", "jobs")
"""What makes memory of what was said; `http` is how agents say it."""


class WakerApp:
    """The waker with a life of its own."""

    def __init__(self, waker: Waker) -> None:
        self._waker = waker
        self._stopping = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to sweep."""
        self._running = asyncio.create_task(self._waker.run(self._stopping), name="waker")

    async def stop(self) -> None:
        """End after the sweep that is going on."""
        self._stopping.set()
        if self._running is not None:
            await self._running

    def lasting(self) -> list[asyncio.Task[None]]:
        """Return its sweeps."""
        return [] if self._running is None else [self._running]


@asynccontextmanager
async def apps_of(parts: Installation, roles: Sequence[Role]) -> AsyncGenerator[list[Runnable]]:
    """Yield what runs the roles, ready to be started.

    Raises:
        ConfigurationError: Deadlines contradict each other; or extraction is among the roles and no
            model is configured; or embedding is, and no embedder, or one that makes no vectors of
            the dimension that is configured.
    """
    check_deadlines(parts.settings)
    room = Room()
    async with AsyncExitStack() as stack:
        apps: list[Runnable] = []
        if "waker" in roles:
            apps.append(WakerApp(waker(parts)))
        if "snapshot" in roles:
            from consumers.apps import snapshot_app

            cutting = isolated(parts, snapshot_step(parts), Stage.SNAPSHOT, room)
            apps.append(snapshot_app(parts.settings, cutting, parts.metrics))
        model, own = None, None
        if {"extraction", "jobs"} & set(roles):
            model = await stack.enter_async_context(configured_model(parts.settings.llm))
            own = await stack.enter_async_context(own_models(parts.settings.llm, os.environ))
        embedder = None
        is_embedding = parts.settings.embedding.provider != "none"
        if "embedding" in roles or ("jobs" in roles and is_embedding):
            embedder = await stack.enter_async_context(
                configured_embedder(parts.settings.embedding, parts.metrics)
            )
        if "jobs" in roles and model is not None:
            from consumers.operating import jobs_app

            apps.append(jobs_app(parts, model, own=own, embedder=embedder))
        if "extraction" in roles and model is not None:
            from consumers.apps import extraction_app

            extracting = extraction_step(parts, model, own=own, is_alone=lambda: room.is_alone)
            apps.append(
                extraction_app(
                    parts.settings,
                    isolated(parts, extracting, Stage.EXTRACTION, room),
                    tiers=retry_tiers(parts.settings, Stage.EXTRACTION),
                    server_time=parts.server_time,
                    metrics=parts.metrics,
                )
            )
        if "embedding" in roles and embedder is not None:
            from consumers.apps import embedding_app

            await check_embedder(embedder, parts.active_model)
            embedding = isolated(parts, embedding_step(parts, embedder), Stage.EMBEDDING, room)
            apps.append(
                embedding_app(
                    parts.settings,
                    embedding,
                    tiers=retry_tiers(parts.settings, Stage.EMBEDDING),
                    server_time=parts.server_time,
                    metrics=parts.metrics,
                )
            )
        if "http" in roles:
            from api.server import http_app

            serving = await stack.enter_async_context(http_app(parts))
            serving.open()
            apps.append(serving)
        yield apps


@asynccontextmanager
async def embedded(
    data_dir: Path, settings: Settings, output: Output
) -> AsyncGenerator[Installation]:
    """Stand everything up that no setting names: servers, topics, indexes, offline extractor.

    Raises:
        ServiceError: One of the embedded services can't be started, or ended by itself, which
            ends the body too; the message says why.
    """
    is_ours = "uri" not in settings.mongo.model_fields_set
    async with AsyncExitStack() as stack:
        output.say(f"Starting MongoDB and Kafka in {data_dir} ...")
        services = await stack.enter_async_context(embedded_services(data_dir))
        await stack.enter_async_context(_ended_by_a_death(services, output))
        await stack.enter_async_context(announced(data_dir, services))
        settings = settings_on(
            settings, mongo_uri=services.mongo_uri, kafka=services.bootstrap_servers
        )
        settings = with_static_membership(settings)
        if settings.llm.provider is None:
            url = await stack.enter_async_context(offline_extractor())
            settings = with_offline_extractor(settings, url)
        settings = with_local_embedder(settings)
        await apply_topics(settings.kafka)
        parts = await stack.enter_async_context(installation(settings))
        await apply_indexes(parts.database)
        if is_ours:
            await _take_over_from_the_dead(parts, output)
        yield parts


@asynccontextmanager
async def _ended_by_a_death(services: Services, output: Output) -> AsyncGenerator[None]:
    """Cancel the body when one of the services ends by itself: nobody else starts it again.

    Raises:
        ServiceDiedError: One of them did.
    """
    body = asyncio.current_task()
    dying = asyncio.create_task(services.died(), name="services.died")

    def end_body(died: asyncio.Task[ServiceDiedError]) -> None:
        if body is not None and not died.cancelled():
            output.say(
                "One of the embedded services ended, and so does this. What was recorded is safe;"
                " the same command goes on from here."
            )
            body.cancel()

    dying.add_done_callback(end_body)
    try:
        yield
    except asyncio.CancelledError:
        if body is None or not dying.done():
            raise
        body.uncancel()
        raise dying.result() from None
    finally:
        dying.cancel()


@asynccontextmanager
async def embedded_system(
    data_dir: Path, settings: Settings, output: Output
) -> AsyncGenerator[Installation]:
    """Run the whole system in this process on embedded services."""
    async with (
        embedded(data_dir, settings, output) as parts,
        apps_of(parts, (*ROLES, "embedding")) as apps,
    ):
        say_who_answers(parts.settings, output)
        await asyncio.gather(*(app.start() for app in apps))
        try:
            yield parts
        finally:
            await asyncio.gather(*(app.stop() for app in apps))


def say_who_answers(settings: Settings, output: Output) -> None:
    """Say so where what reads the conversations is no language model."""
    if settings.llm.model == OFFLINE_MODEL:
        output.say(
            "No model is configured: the offline extractor answers. It picks sentences by"
            " rules and is no language model."
        )
    if settings.embedding.provider == "local":
        output.say(
            "Vectors are made on this machine by multilingual-e5-small, which is installed with"
            " Afterturn and asks nobody."
        )


async def _take_over_from_the_dead(parts: Installation, output: Output) -> None:
    """End the claims of an earlier run: whoever holds the data directory's lock is alone."""
    if claims := await parts.extractions.expire_claims():
        output.say(f"An earlier run was killed while it extracted {counted(claims, 'snapshot')}.")


def with_static_membership(settings: Settings) -> Settings:
    """Return settings under which a restart is no rebalance: the embedded broker needs that."""
    if settings.kafka.instance_id is not None:
        return settings
    kafka = settings.kafka.model_copy(update={"instance_id": "embedded"})
    return settings.model_copy(update={"kafka": kafka})


def with_offline_extractor(settings: Settings, url: str) -> Settings:
    """Return settings whose model is the offline extractor at an address."""
    llm = settings.llm.model_copy(
        update={
            "provider": "openai_compatible",
            "model": OFFLINE_MODEL,
            "base_url": url,
            "api_key": SecretStr("none"),
        }
    )
    return settings.model_copy(update={"llm": llm})


def with_local_embedder(settings: Settings) -> Settings:
    """Return settings under which the model that is installed with us makes vectors, if none is."""
    if settings.embedding.provider != "none":
        return settings
    embedding = settings.embedding.model_copy(update={"provider": "local"})
    return settings.model_copy(update={"embedding": embedding})
