"""The composition root of every process: settings in, working parts out. Nothing here decides."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from consumers.exporting import PrometheusExporter
from consumers.isolation import Isolation, SeparableStep
from consumers.room import Room
from pipeline.clock import SystemClock
from pipeline.embedding.cleaning import Cleaner
from pipeline.extracting.fates import Fates
from pipeline.failing.breaking import Cooldowns
from pipeline.failing.dead_letters import DeadLetters
from pipeline.folding.refolding import Folder
from pipeline.forgetting.blanking import Blanker
from pipeline.forgetting.records import Forgetter
from pipeline.ids import OpaqueIds
from pipeline.metrics import NO_METRICS, Metrics
from pipeline.ports.clocks import ServerTime
from pipeline.ports.publisher import Publisher
from pipeline.settings import Settings
from pipeline.stores.assertions import MongoAssertions
from pipeline.stores.deliveries import MongoDeliveries
from pipeline.stores.embeddings import MongoEmbeddingLedger
from pipeline.stores.embeds_turns import MongoEmbedsTurns
from pipeline.stores.extractions import MongoExtractions
from pipeline.stores.installation import installation_key
from pipeline.stores.letters import MongoLetters
from pipeline.stores.mongo import Database, MongoServerTime, connect, database
from pipeline.stores.projects import MongoProjects
from pipeline.stores.records import MongoRecords
from pipeline.stores.sessions import MongoSessions
from pipeline.stores.snapshots import MongoSnapshots
from pipeline.stores.tombstones import MongoTombstones
from pipeline.stores.turns import MongoTurns
from pipeline.stores.vectors import MongoActiveModel, MongoVectors
from producers.publishing import KafkaPublisher
from schemas.topics import DELAYS, RETRY_TIERS, RetryTier, Stage

MARK_GRACE: Final = 3
"""A writer that marked a slot and did nothing for so many of its commands' timeouts is dead."""
SWEEP_LIMIT: Final = 200
"""What one sweep takes on at most; the next one goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """The parts that every process of an installation shares."""

    settings: Settings
    database: Database
    ids: OpaqueIds
    clock: SystemClock
    server_time: ServerTime
    publisher: Publisher
    sessions: MongoSessions
    turns: MongoTurns
    snapshots: MongoSnapshots
    extractions: MongoExtractions
    assertions: MongoAssertions
    records: MongoRecords
    embeddings: MongoEmbeddingLedger
    vectors: MongoVectors
    active_model: MongoActiveModel
    cleaner: Cleaner
    projects: MongoProjects
    embeds_turns: MongoEmbedsTurns
    letters: MongoLetters
    dead_letters: DeadLetters
    folder: Folder
    forgetter: Forgetter
    fates: Fates
    metrics: Metrics
    exporter: PrometheusExporter | None
    """Has what the metrics count; none where nobody counts."""


@asynccontextmanager
async def installation(settings: Settings) -> AsyncGenerator[Installation]:
    """Connect to MongoDB, and to Kafka when something is first published; close both at the end.

    Raises:
        pymongo.errors.PyMongoError: MongoDB does not answer.
    """
    client = connect(settings.mongo)
    publisher = KafkaPublisher(settings.kafka)
    try:
        yield await wire(
            settings, database(client, settings.mongo), publisher, PrometheusExporter()
        )
    finally:
        await publisher.stop()
        await client.close()


async def wire(
    settings: Settings,
    database: Database,
    publisher: Publisher,
    exporter: PrometheusExporter | None = None,
    server_time: ServerTime | None = None,
) -> Installation:
    """Return the parts on connections that the caller closes; by default, the database's time."""
    metrics = NO_METRICS if exporter is None else Metrics(exporter)
    ids = OpaqueIds(await installation_key(database))
    clock = SystemClock()
    server_time = server_time or MongoServerTime(database)
    letters = MongoLetters(database)
    snapshots = MongoSnapshots(database)
    extractions = MongoExtractions(database)
    assertions = MongoAssertions(database)
    records = MongoRecords(database, grace=MARK_GRACE * settings.mongo.timeout)
    turns = MongoTurns(database)
    embeds_turns = MongoEmbedsTurns(database)
    embeddings = MongoEmbeddingLedger(database, embeds_turns)
    vectors = MongoVectors(database)
    cleaner = Cleaner(
        ledger=embeddings,
        vectors=vectors,
        server_time=server_time,
        new_name=lambda: uuid4().hex,
    )
    folder = Folder(assertions, records, publisher, clock, metrics)
    dead_letters = DeadLetters(
        letters=letters, publisher=publisher, ids=ids, clock=clock, metrics=metrics
    )
    return Installation(
        settings=settings,
        database=database,
        ids=ids,
        clock=clock,
        server_time=server_time,
        publisher=publisher,
        sessions=MongoSessions(database, ids),
        turns=turns,
        snapshots=snapshots,
        extractions=extractions,
        assertions=assertions,
        records=records,
        embeddings=embeddings,
        vectors=vectors,
        active_model=MongoActiveModel(database),
        cleaner=cleaner,
        projects=MongoProjects(database),
        embeds_turns=embeds_turns,
        letters=letters,
        dead_letters=dead_letters,
        folder=folder,
        forgetter=Forgetter(
            tombstones=MongoTombstones(database),
            records=records,
            assertions=assertions,
            answers=Blanker(
                extractions=extractions, snapshots=snapshots, turns=turns, folder=folder, ids=ids
            ),
            vectors=cleaner,
            folder=folder,
            server_time=server_time,
            new_name=lambda: uuid4().hex,
            lease=settings.extraction.lease,
            metrics=metrics,
        ),
        fates=Fates(
            extractions=extractions,
            snapshots=snapshots,
            dead_letters=dead_letters,
            publisher=publisher,
            server_time=server_time,
            clock=clock,
            new_ticket=lambda: uuid4().hex,
            tiers=retry_tiers(settings, Stage.EXTRACTION),
            lost_after=settings.waker.lost_after,
            metrics=metrics,
        ),
        metrics=metrics,
        exporter=exporter,
    )


def retry_tiers(settings: Settings, stage: Stage) -> tuple[RetryTier, ...]:
    """Return the tiers of a stage with their delays as set."""
    return tuple(
        tier.model_copy(update={"delay": settings.retry.delays[name]})
        for name, tier in zip(DELAYS, RETRY_TIERS[stage], strict=True)
    )


def isolated(parts: Installation, step: SeparableStep, stage: Stage, room: Room) -> Isolation:
    """Return a step as consumers run it.

    Args:
        parts: What it shares.
        step: What is run.
        stage: Whose step it is.
        room: That of all steps in this process.
    """
    return Isolation(
        step,
        stage,
        deliveries=MongoDeliveries(parts.database),
        last_resort=parts.dead_letters,
        room=room,
    )


def cooldowns(settings: Settings) -> Cooldowns:
    """Return how long a target that fails is left alone."""
    delays = settings.retry.delays
    return Cooldowns(
        passing=(delays["5s"], delays["30s"], delays["2m"]),
        personal=(delays["2m"], delays["10m"]),
    )
