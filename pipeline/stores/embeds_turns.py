"""Which projects want their turns embedded, on MongoDB: a small set, known to each process."""

import asyncio
import time
from typing import Final

import structlog
from pymongo.errors import PyMongoError

from pipeline.stores.mongo import Collection, Database, Document

FRESH_SECONDS: Final = 2.0
"""How old what a process knows may be."""
PATIENCE_SECONDS: Final = 1.0
"""How long the first turns of a process wait to learn it."""

log = structlog.get_logger(__name__)


class MongoEmbedsTurns:
    """Port `EmbedsTurns` on `projects` and `project_revisions`.

    Concurrency: any number of callers of one event loop, who share one reading.
    """

    def __init__(self, database: Database) -> None:
        self._projects: Collection = database["projects"]
        self._revisions: Collection = database["project_revisions"]
        self._known: frozenset[str] | None = None
        self._read_at = 0.0
        self._reading: asyncio.Task[frozenset[str]] | None = None

    async def that_embed_turns(self) -> frozenset[str]:
        """Return the projects whose applied settings say so.

        Raises:
            pymongo.errors.PyMongoError: They can't be read.
        """
        if self._known is not None and self._is_fresh():
            return self._known
        return await asyncio.shield(self._begin())

    async def wants(self, project_id: str) -> bool:
        """Return whether a turn that is recorded now is to be embedded; true where nobody knows.

        It waits for the database only until it has answered once; what it knows is read again
        beside, so that recording never waits for it. A turn that is marked in vain is let go.
        """
        if self._known is None:
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await self.that_embed_turns()
            except (PyMongoError, TimeoutError) as error:
                log.warning("embeds_turns_unknown", exception=type(error).__name__)
                return True
        elif not self._is_fresh():
            self._begin()
        return self._known is None or project_id in self._known

    def _is_fresh(self) -> bool:
        return time.monotonic() - self._read_at < FRESH_SECONDS

    def _begin(self) -> "asyncio.Task[frozenset[str]]":
        if self._reading is None:
            self._reading = asyncio.create_task(self._read(), name="embeds turns")
            self._reading.add_done_callback(self._end)
        return self._reading

    def _end(self, task: "asyncio.Task[frozenset[str]]") -> None:
        self._reading = None
        if not task.cancelled():
            task.exception()  # told to whoever waits; nobody may

    async def _read(self) -> frozenset[str]:
        began = time.monotonic()
        query: Document = {"settings.short_term.embed_on_write": True}
        revisions = {
            str(document["_id"]): str(document["project_id"])
            async for document in self._revisions.find(query, {"project_id": True})
        }
        applied: Document = {"_id": {"$in": sorted(set(revisions.values()))}}
        wanting: frozenset[str] = frozenset()
        if revisions:
            wanting = frozenset(
                [
                    str(document["_id"])
                    async for document in self._projects.find(applied, {"applied_revision": True})
                    if f"{document.get('applied_revision', 0)}:{document['_id']}" in revisions
                ]
            )
        self._known, self._read_at = wanting, began
        return wanting
