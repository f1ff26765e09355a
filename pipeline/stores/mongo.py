"""The connection to MongoDB, and the server's own time."""

import asyncio
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import structlog
from pydantic import ValidationError
from pymongo import AsyncMongoClient, ReadPreference, WriteConcern
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.cursor import AsyncCursor
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from pipeline.errors import ConfigurationError
from pipeline.settings import MongoSettings

Document = dict[str, Any]
Collection = AsyncCollection[Document]
Database = AsyncDatabase[Document]

Model = TypeVar("Model")

log = structlog.get_logger()

SERVER_NOW_MS: Document = {"$toLong": "$$NOW"}
"""Server time in a pipeline update. A number, because the embedded database compares no dates."""


def connect(settings: MongoSettings) -> AsyncMongoClient[Document]:
    """Return a client whose writes are acknowledged by a majority; nothing is sent yet.

    Raises:
        ConfigurationError: The URI can't be read; the message holds nothing of it.
        pymongo.errors.ConfigurationError: The driver tells what it can't read.
    """
    milliseconds = int(settings.timeout.total_seconds() * 1000)
    try:
        return AsyncMongoClient(
            settings.uri.get_secret_value(),
            tz_aware=True,
            timeoutMS=milliseconds,
            serverSelectionTimeoutMS=milliseconds,
            appname="afterturn",
        )
    except ValueError:
        # The driver's own words quote the host, which is half a password where one is not escaped.
        raise ConfigurationError(
            "AFTERTURN_MONGO__URI is no address of MongoDB: correct its port, and write what is"
            " special in its user name and password as %XX"
        ) from None


def database(client: AsyncMongoClient[Document], settings: MongoSettings) -> Database:
    """Return the database with the guarantees everything here relies on."""
    return client.get_database(
        settings.database,
        read_preference=ReadPreference.PRIMARY,
        read_concern=ReadConcern("majority"),
        write_concern=WriteConcern("majority"),
    )


async def readable(
    cursor: AsyncCursor[Document], decode: Callable[[Document], Model]
) -> list[Model]:
    """Return what a sweep found, without what is no valid document; the log names that.

    One that was written by a newer version, or by hand, is not to hide those behind it.
    """
    found: list[Model] = []
    async for document in cursor:
        try:
            found.append(decode(document))
        except ValidationError as error:
            log.warning(
                "document_unreadable",
                collection=cursor.collection.name,
                id=str(document["_id"]),
                fields=sorted({str(part["loc"][0]) for part in error.errors() if part["loc"]}),
            )
    return found


class MongoServerTime:
    """The server's clock as an offset to this process's monotonic one, measured again every 30 s.

    The offset errs by at most half a round trip; leases and due times are far longer.
    """

    _FRESH_SECONDS = 30.0

    def __init__(self, database: Database) -> None:
        self._database = database
        self._measuring: asyncio.Task[None] | None = None
        self._measured_at: float | None = None
        self._offset_ms = 0.0

    async def now_ms(self) -> int:
        """Return server time in epoch milliseconds."""
        measured_at = self._measured_at
        if measured_at is None or time.monotonic() - measured_at > self._FRESH_SECONDS:
            await self._measured()
        return int(time.monotonic() * 1000 + self._offset_ms)

    async def _measured(self) -> None:
        """Wait for one measurement, everybody for the same, and share its failure."""
        if self._measuring is None:
            self._measuring = asyncio.create_task(self._measure())
            self._measuring.add_done_callback(self._end_measuring)
        await asyncio.shield(self._measuring)

    def _end_measuring(self, task: asyncio.Task[None]) -> None:
        self._measuring = None
        if not task.cancelled():
            task.exception()  # told to whoever waits; nobody may

    async def _measure(self) -> None:
        before = time.monotonic()
        hello = await self._database.client.admin.command("hello")
        after = time.monotonic()
        local: datetime = hello["localTime"]
        self._offset_ms = local.timestamp() * 1000 - (before + after) / 2 * 1000
        self._measured_at = after
