"""The composition of what makes vectors: the step, and going over to another model."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from uuid import uuid4

from consumers.wiring import MARK_GRACE, Installation, cooldowns, retry_tiers
from pipeline.embedding.batching import BatchedEmbedder
from pipeline.embedding.choosing import embedder_from, named
from pipeline.embedding.filling import Filler
from pipeline.embedding.ports import Embedder
from pipeline.embedding.reembedding import Reembedder
from pipeline.embedding.step import EmbeddingStep
from pipeline.failing.gating import Gate
from pipeline.failing.limiting import Limiter
from pipeline.metrics import NO_METRICS, Metrics
from pipeline.models.loggers import quiet_vendor_loggers
from pipeline.settings import EmbeddingSettings
from pipeline.stores.switches import MongoBreakers, MongoGuards
from pipeline.stores.vectors import MongoReembeddings
from schemas.topics import Stage


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
            cooldowns=cooldowns(parts.settings),
            answer_within=settings.timeout,
            stage=Stage.EMBEDDING,
        ),
        dead_letters=parts.dead_letters,
        publisher=parts.publisher,
        ids=parts.ids,
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
