"""The composition root of every process: settings in, working parts out. Nothing here decides."""

import os
import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from consumers.exporting import PrometheusExporter
from consumers.isolation import Isolation, SeparableStep
from consumers.room import Room
from pipeline.blanking import Blanker
from pipeline.breaking import Cooldowns
from pipeline.clock import SystemClock
from pipeline.cutting import Cutter, SnapshotStep
from pipeline.dead_letters import DeadLetters
from pipeline.embedding.batching import BatchedEmbedder
from pipeline.embedding.choosing import embedder_from, named
from pipeline.embedding.cleaning import Cleaner
from pipeline.embedding.filling import Filler
from pipeline.embedding.ports import Embedder
from pipeline.embedding.reembedding import Reembedder
from pipeline.embedding.step import EmbeddingStep, PendingEmbeddings
from pipeline.extracting import ExtractionStep
from pipeline.extractors import ProjectExtractors, Target, Targets
from pipeline.failed_attempts import FailedAttempts
from pipeline.fates import Fates
from pipeline.forgetting import Forgetter
from pipeline.gating import Gate, Share
from pipeline.ids import OpaqueIds
from pipeline.limiting import Limiter
from pipeline.metrics import NO_METRICS, Metrics, Provider
from pipeline.models.asking import InstructedModel, quiet_vendor_loggers
from pipeline.models.choosing import model_from
from pipeline.models.metering import MeteredModel
from pipeline.models.own import OwnModels, UnaskableModel
from pipeline.ports import Model, Publisher, ServerTime
from pipeline.reading.searching import Searcher
from pipeline.reasons import Reason
from pipeline.refolding import Folder
from pipeline.replaying.succession import Succession
from pipeline.settings import EmbeddingSettings, LLMSettings, Settings
from pipeline.settling import Settler
from pipeline.stores.assertions import MongoAssertions
from pipeline.stores.deliveries import MongoDeliveries
from pipeline.stores.embeddings import MongoEmbeddingLedger
from pipeline.stores.extractions import MongoExtractions
from pipeline.stores.installation import installation_key
from pipeline.stores.letters import MongoLetters
from pipeline.stores.mongo import Database, MongoServerTime, connect, database
from pipeline.stores.projects import MongoProjects
from pipeline.stores.record_reads import MongoRecordReads
from pipeline.stores.records import MongoRecords
from pipeline.stores.sessions import MongoSessions
from pipeline.stores.snapshots import MongoSnapshots
from pipeline.stores.switches import MongoBreakers, MongoGuards
from pipeline.stores.tombstones import MongoTombstones
from pipeline.stores.turn_reads import MongoTurnReads
from pipeline.stores.turns import MongoTurns
from pipeline.stores.vectors import MongoActiveModel, MongoReembeddings, MongoVectors
from producers.publishing import KafkaPublisher
from producers.recording import Recorder
from producers.waker import OpenTurnsSweep, Sweep, UnsettledSnapshotsSweep, Waker
from schemas.project import ExtractionLLM
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
    embeddings = MongoEmbeddingLedger(database)
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


@asynccontextmanager
async def recorder(parts: Installation) -> AsyncGenerator[Recorder]:
    """Record turns; at the end, the wake-ups on their way are given their time."""
    recording = Recorder(
        sessions=parts.sessions,
        turns=parts.turns,
        publisher=parts.publisher,
        ids=parts.ids,
        clock=parts.clock,
        patience=parts.settings.mongo.timeout,
    )
    try:
        yield recording
    finally:
        await recording.drain()
        await recording.stop()


@asynccontextmanager
async def searcher(parts: Installation) -> AsyncGenerator[Searcher]:
    """Yield what searches; it goes by words alone where no embedder is configured.

    Raises:
        ConfigurationError: Not enough of an embedder is configured.
    """
    settings = parts.settings
    async with AsyncExitStack() as opened:
        embedder = None
        if settings.embedding.provider != "none":
            made = configured_embedder(settings.embedding, metrics=parts.metrics)
            embedder = await opened.enter_async_context(made)
        yield Searcher(
            records=MongoRecordReads(parts.database),
            turns=MongoTurnReads(parts.database),
            server_time=parts.server_time,
            command_timeout=settings.mongo.timeout,
            embedder=embedder,
            vectors=MongoVectors(parts.database),
            active=MongoActiveModel(parts.database),
        )


def waker(parts: Installation) -> Waker:
    """Return what finds lost work of every stage."""
    settings = parts.settings
    return Waker(
        [
            Sweep(
                name="open_turns",
                run=OpenTurnsSweep(
                    turns=parts.turns,
                    publisher=parts.publisher,
                    server_time=parts.server_time,
                    settings=settings.snapshot,
                    lost_after=settings.waker.lost_after,
                    projects=parts.projects,
                    metrics=parts.metrics,
                ),
            ),
            Sweep(
                name="unsettled_snapshots",
                run=UnsettledSnapshotsSweep(
                    snapshots=parts.snapshots,
                    server_time=parts.server_time,
                    resend=parts.fates.resend,
                    metrics=parts.metrics,
                ),
            ),
            Sweep(name="unsent_fates", run=lambda: parts.fates.sweep_unsent(SWEEP_LIMIT)),
            Sweep(name="dirty_slots", run=lambda: parts.folder.sweep_dirty(SWEEP_LIMIT)),
            Sweep(
                name="unannounced_records",
                run=lambda: parts.folder.sweep_unannounced(SWEEP_LIMIT),
            ),
            Sweep(name="forgettings", run=lambda: parts.forgetter.sweep(SWEEP_LIMIT)),
            *_embedding_sweeps(parts),
        ],
        interval=settings.waker.interval,
    )


def _embedding_sweeps(parts: Installation) -> list[Sweep]:
    """Return none where nothing is embedded: all that is pending would be woken for ever."""
    if parts.settings.embedding.provider == "none":
        return []
    pending = PendingEmbeddings(
        ledger=parts.embeddings,
        publisher=parts.publisher,
        server_time=parts.server_time,
        clock=parts.clock,
        lost_after=parts.settings.waker.lost_after,
        metrics=parts.metrics,
    )
    return [Sweep(name="pending_embeddings", run=lambda: pending.sweep(SWEEP_LIMIT))]


def snapshot_step(parts: Installation) -> SnapshotStep:
    """Return the step of the snapshot consumers."""
    cutter = Cutter(
        sessions=parts.sessions,
        turns=parts.turns,
        snapshots=parts.snapshots,
        publisher=parts.publisher,
        server_time=parts.server_time,
        ids=parts.ids,
        settings=parts.settings.snapshot,
        wake_after=parts.settings.waker.lost_after,
        projects=parts.projects,
    )
    return SnapshotStep(cutter=cutter, undecodable=parts.dead_letters)


class ReachedTargets:
    """Port `Targets`: the model of the process, and those that projects name."""

    def __init__(self, parts: Installation, model: Model, own: OwnModels) -> None:
        llm = parts.settings.llm
        secret = llm.api_key.get_secret_value() if llm.api_key else ""
        self._parts = parts
        self._own = own
        self._known: dict[ExtractionLLM, Target] = {}
        self._default = Target(
            name=f"{llm.provider}:{llm.model}:{parts.ids.credential(secret)}",
            model=_metered(parts, model, llm.provider),
            limiter=Limiter(parts.settings.extraction.permits),
            is_own=False,
        )

    @property
    def default(self) -> Target:
        """The model of the process."""
        return self._default

    async def of(self, llm: ExtractionLLM) -> Target:
        """Return the model that a project names; the first time, this may take seconds."""
        known = self._known.get(llm)
        return known or self._known.setdefault(llm, await self._new(llm))

    def unaskable(self, reason: Reason) -> Target:
        """Return one that is a project's and always says why it can't be asked."""
        llm = self._parts.settings.llm
        return Target(
            name=f"settings:{reason}",
            model=UnaskableModel(name="unnamed", max_tokens=llm.max_tokens, reason=reason),
            limiter=Limiter(self._parts.settings.extraction.permits),
            is_own=True,
        )

    async def _new(self, llm: ExtractionLLM) -> Target:
        own = await self._own.of(llm)
        if own is None:
            return self._default
        name = f"{own.name}:{self._parts.ids.credential(own.credential)}"
        # Two projects may have one model, each with words of its own for it.
        for target in self._known.values():
            if target.name == name:
                return target
        model = own.model
        if not isinstance(model, UnaskableModel):
            provider = "openai_compatible" if llm.provider == "cerebras" else llm.provider
            process = self._parts.settings.llm.provider
            model = _metered(self._parts, model, provider or process)
        return Target(
            name=name,
            model=model,
            limiter=Limiter(self._parts.settings.extraction.permits),
            is_own=True,
        )


def extractors(parts: Installation, targets: Targets) -> ProjectExtractors:
    """Return who extracts for each project."""
    share = Share(parts.settings.extraction.permits)

    def new_gate(target: Target, version: str) -> Gate:
        return Gate(
            breakers=MongoBreakers(parts.database),
            guards=MongoGuards(parts.database),
            server_time=parts.server_time,
            target=target.name,
            version=version,
            limiter=target.limiter,
            cooldowns=_cooldowns(parts.settings),
            answer_within=parts.settings.extraction.attempt_deadline,
            share=share if target.is_own else None,
        )

    return ProjectExtractors(
        projects=parts.projects,
        targets=targets,
        new_gate=new_gate,
        is_opt_in=parts.settings.extraction.opt_in,
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


def extraction_step(
    parts: Installation,
    model: Model,
    *,
    own: OwnModels | None = None,
    is_alone: Callable[[], bool] = lambda: True,
) -> ExtractionStep:
    """Return the step of the extraction consumers and of their retry tiers.

    Args:
        parts: What it shares.
        model: Who is asked for projects that name nobody.
        own: Makes the models of those that do; the caller closes it. None: their keys are nowhere.
        is_alone: Whether nothing else runs in this process.
    """
    targets = ReachedTargets(parts, model, own or OwnModels(parts.settings.llm, {}))
    settler = Settler(
        extractions=parts.extractions,
        snapshots=parts.snapshots,
        folder=parts.folder,
        fates=parts.fates,
        dead_letters=parts.dead_letters,
        clock=parts.clock,
        metrics=parts.metrics,
    )
    failed_attempts = FailedAttempts(
        extractions=parts.extractions,
        turns=parts.turns,
        fates=parts.fates,
        settler=settler,
        clock=parts.clock,
        server_time=parts.server_time,
        tiers=retry_tiers(parts.settings, Stage.EXTRACTION),
        age_cap=parts.settings.retry.age_cap,
        metrics=parts.metrics,
    )
    return ExtractionStep(
        extractions=parts.extractions,
        snapshots=parts.snapshots,
        turns=parts.turns,
        extractors=extractors(parts, targets),
        folder=parts.folder,
        fates=parts.fates,
        dead_letters=parts.dead_letters,
        ids=parts.ids,
        settler=settler,
        succession=Succession(
            extractions=parts.extractions,
            snapshots=parts.snapshots,
            assertions=parts.assertions,
            letters=parts.letters,
            folder=parts.folder,
        ),
        failed_attempts=failed_attempts,
        server_time=parts.server_time,
        owner=f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}",
        settings=parts.settings.extraction,
        metrics=parts.metrics,
        is_alone=is_alone,
    )


def filler(parts: Installation, embedder: Embedder) -> Filler:
    """Return what gives records the vectors of an embedder."""
    return Filler(
        ledger=parts.embeddings,
        vectors=parts.vectors,
        embedder=embedder,
        server_time=parts.server_time,
        new_name=lambda: uuid4().hex,
        grace=MARK_GRACE * parts.settings.mongo.timeout,
    )


def embedding_step(parts: Installation, embedder: Embedder) -> EmbeddingStep:
    """Return the step of the embedding consumers and of their retry tiers."""
    settings = parts.settings.embedding
    secret = settings.api_key.get_secret_value() if settings.api_key else ""
    model, _ = named(settings)
    return EmbeddingStep(
        ledger=parts.embeddings,
        filler=filler(parts, embedder),
        active=parts.active_model,
        gate=Gate(
            breakers=MongoBreakers(parts.database),
            guards=MongoGuards(parts.database),
            server_time=parts.server_time,
            target=f"embedding:{settings.provider}:{model}:{parts.ids.credential(secret)}",
            version=embedder.model,
            limiter=Limiter(settings.batch),
            cooldowns=_cooldowns(parts.settings),
            answer_within=settings.timeout,
            stage=Stage.EMBEDDING,
        ),
        dead_letters=parts.dead_letters,
        publisher=parts.publisher,
        server_time=parts.server_time,
        clock=parts.clock,
        new_ticket=lambda: uuid4().hex,
        tiers=retry_tiers(parts.settings, Stage.EMBEDDING),
        age_cap=parts.settings.retry.age_cap,
        metrics=parts.metrics,
    )


def reembedder(parts: Installation, embedder: Embedder) -> Reembedder:
    """Return what goes over to the vectors of an embedder."""
    settings = parts.settings.embedding
    return Reembedder(
        ledger=parts.embeddings,
        vectors=parts.vectors,
        filler=filler(parts, embedder),
        cleaner=parts.cleaner,
        active=parts.active_model,
        reembeddings=MongoReembeddings(parts.database),
        page=settings.batch,
        late=settings.timeout,
    )


def _cooldowns(settings: Settings) -> Cooldowns:
    delays = settings.retry.delays
    return Cooldowns(
        passing=(delays["5s"], delays["30s"], delays["2m"]),
        personal=(delays["2m"], delays["10m"]),
    )


def _metered(parts: Installation, model: Model, provider: Provider | None) -> MeteredModel:
    return MeteredModel(model, provider=provider or "openai_compatible", metrics=parts.metrics)


@asynccontextmanager
async def own_models(
    settings: LLMSettings, secrets: Mapping[str, str]
) -> AsyncGenerator[OwnModels]:
    """Make models for projects that name their own; close their connections at the end.

    Args:
        settings: The model of the process.
        secrets: The environment, where their keys are.
    """
    own = OwnModels(settings, secrets)
    try:
        yield own
    finally:
        await own.aclose()


@asynccontextmanager
async def configured_model(settings: LLMSettings) -> AsyncGenerator[InstructedModel]:
    """Make the configured model ready; close its connections at the end.

    Raises:
        ConfigurationError: None is configured, or not enough of it.
    """
    quiet_vendor_loggers()
    model = model_from(settings)
    await model.prepare()
    try:
        yield model
    finally:
        await model.aclose()


@asynccontextmanager
async def configured_embedder(
    settings: EmbeddingSettings, metrics: Metrics = NO_METRICS
) -> AsyncGenerator[BatchedEmbedder]:
    """Make the configured embedder; close its connections at the end. Nothing is asked of it yet.

    Raises:
        ConfigurationError: None is configured, or not enough of it.
    """
    quiet_vendor_loggers()
    embedder = embedder_from(settings, metrics=metrics)
    try:
        yield embedder
    finally:
        await embedder.aclose()
