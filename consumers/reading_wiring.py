"""The composition of what searches."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from consumers.embedding_wiring import configured_embedder
from consumers.wiring import Installation
from pipeline.reading.searching import Searcher
from pipeline.stores.record_reads import MongoRecordReads
from pipeline.stores.turn_reads import MongoTurnReads
from pipeline.stores.vectors import MongoActiveModel, MongoVectors


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
