"""The records on MongoDB as searches read them."""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Final

from pipeline.reading.filters import Condition
from pipeline.reading.ports import Version
from pipeline.reading.wanted import Run
from pipeline.stores.mongo import Collection as Documents
from pipeline.stores.mongo import Database, Document
from pipeline.stores.records import record_of, within
from schemas.identity import ReadScope
from schemas.memory import RecordKind
from schemas.record import Record

BATCH: Final = 200
"""Documents that are decoded before the event loop goes on."""
_FACTS: Final = (
    *("state", "assertions", "first_at", "closed_at", "agents", "sessions", "metadata"),
    *("content.domain", "content.type", "content.tags", "content.body", "fields.tags"),
)


class MongoRecordReads:
    """Port `RecordReads` on the collection `records`."""

    def __init__(self, database: Database) -> None:
        self._collection: Documents = database["records"]

    async def all_of(self, scope: ReadScope, kinds: Sequence[RecordKind]) -> AsyncIterator[Record]:
        """Yield the records of a scope that hold anything."""
        async for document in self._each(within(scope, kinds)):
            yield record_of(document)

    async def changed(self, scope: ReadScope, since_ms: int) -> dict[str, Version]:
        """Return what changed since a moment, by indexes of their own."""
        of = ReadScope(project_id=scope.project_id, user_id=scope.user_id)
        query: Document = {**within(of), "changed_ms": {"$gte": since_ms}}
        wanted = {"changed_ms": True, "changed_rev": True, "embedding.rev": True}
        return {
            str(document["_id"]): (
                int(document["changed_ms"]),
                int(document.get("changed_rev", 0)),
                int(document.get("embedding", {}).get("rev", 0)),
            )
            async for document in self._each(query, wanted)
        }

    async def of_ids(
        self,
        ids: Collection[str],
        scope: ReadScope,
        kinds: Sequence[RecordKind],
        condition: Condition | None = None,
    ) -> list[Record]:
        """Return those of a scope, in no order."""
        query: Document = {"_id": {"$in": list(ids)}, **within(scope, kinds)}
        if condition is not None:
            query["runs"] = {"$elemMatch": condition}
        return [record_of(document) async for document in self._each(query)]

    async def runs_of(
        self, scope: ReadScope, kinds: Sequence[RecordKind], condition: Condition
    ) -> AsyncIterator[tuple[str, Run]]:
        """Yield id and each run of the records of a scope that have a run like the condition."""
        query: Document = {**within(scope, kinds), "runs": {"$elemMatch": condition}}
        async for document in self._each(query, {f"runs.{fact}": True for fact in _FACTS}):
            for run in document["runs"]:
                yield str(document["_id"]), run

    async def _each(
        self, query: Document, wanted: Document | None = None
    ) -> AsyncIterator[Document]:
        read = 0
        async for document in self._collection.find(query, wanted, batch_size=BATCH):
            yield document
            read += 1
            if read % BATCH == 0:
                await asyncio.sleep(0)
