"""The composition of what searches."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import structlog

from consumers.embedding_wiring import configured_embedder
from consumers.wiring import Installation
from pipeline.embedding.choosing import model_name, named
from pipeline.errors import ConfigurationError
from pipeline.reading.search_pipelines import SearchIndex, indexes_for
from pipeline.reading.searching import Searcher
from pipeline.settings import Settings
from pipeline.stores.record_reads import MongoRecordReads
from pipeline.stores.search_server import MongoSearchServer
from pipeline.stores.turn_reads import MongoTurnReads
from pipeline.stores.vectors import MongoActiveModel, MongoVectors

log = structlog.get_logger(__name__)


def search_indexes(settings: Settings) -> tuple[SearchIndex, ...]:
    """Return the indexes that the database's own search needs.

    Raises:
        ConfigurationError: Not enough of an embedder is configured.
    """
    if settings.embedding.provider == "none":
        return indexes_for(None)
    model_name(settings.embedding)  # refuses what is not whole
    return indexes_for(named(settings.embedding)[1])


@asynccontextmanager
async def searcher(parts: Installation) -> AsyncGenerator[Searcher]:
    """Yield what searches; it goes by words alone where no embedder is configured.

    Raises:
        ConfigurationError: Not enough of an embedder is configured, or the database is to search by
            itself and can't.
        pymongo.errors.PyMongoError: It does not answer, and is to search by itself.
    """
    settings = parts.settings
    async with AsyncExitStack() as opened:
        embedder = None
        if settings.embedding.provider != "none":
            made = configured_embedder(settings.embedding, metrics=parts.metrics)
            embedder = await opened.enter_async_context(made)
        server = None
        if settings.search.backend == "mongodb":
            server = MongoSearchServer(parts.database)
            absence = await server.absence()
            if absence is not None:
                raise ConfigurationError(absence)
            for index in search_indexes(parts.settings):
                if (reason := await server.lacks(index.collection, index.name)) is not None:
                    log.warning(
                        reason,
                        collection=index.collection,
                        index=index.name,
                        advice="run `./afterturn search-indexes apply`; until it is built, searches"
                        " go without it and say so",
                    )
        yield Searcher(
            server=server,
            records=MongoRecordReads(parts.database),
            turns=MongoTurnReads(parts.database),
            server_time=parts.server_time,
            command_timeout=settings.mongo.timeout,
            embedder=embedder,
            vectors=MongoVectors(parts.database),
            active=MongoActiveModel(parts.database),
        )
