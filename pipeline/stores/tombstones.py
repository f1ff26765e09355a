"""The tombstones on MongoDB.

`due_ms` is there only while a forgetting is not done, so that its sparse index is what is left.
"""

from typing import Final

from pymongo import ASCENDING

from pipeline.stores.mongo import Collection, Database, Document, readable
from schemas.tombstone import Tombstone, TombstoneState

_BOOKKEEPING: Final = ("_id", "due_ms")


class MongoTombstones:
    """Port `Tombstones` on the collection `tombstones`."""

    def __init__(self, database: Database) -> None:
        self._collection: Collection = database["tombstones"]

    async def write(self, tombstone: Tombstone, *, due_ms: int) -> None:
        """Store one; it is due from then on. Idempotent by its id."""
        await self._collection.update_one(
            {"_id": tombstone.tombstone_id},
            {"$setOnInsert": {**tombstone.model_dump(), "due_ms": due_ms}},
            upsert=True,
        )

    async def advance(self, tombstone: Tombstone, state: TombstoneState, *, due_ms: int) -> None:
        """Store how far it is, if it is as it was read; one that is done is never due."""
        update: Document = {"$set": {"state": state, "due_ms": due_ms}}
        if state is TombstoneState.DONE:
            update = {"$set": {"state": state}, "$unset": {"due_ms": ""}}
        await self._collection.update_one(
            {"_id": tombstone.tombstone_id, "state": tombstone.state}, update
        )

    async def due(self, now_ms: int, limit: int) -> list[Tombstone]:
        """Return those that are due, the longest waiting first."""
        cursor = (
            self._collection.find({"due_ms": {"$lte": now_ms}})
            .sort("due_ms", ASCENDING)
            .limit(limit)
        )
        return await readable(cursor, _tombstone)

    async def is_forgetting(self, slot: str) -> bool:
        """Return whether something of a slot is being forgotten and may not be removed yet."""
        undone: Document = {"slot": slot, "due_ms": {"$exists": True}}
        return await self._collection.find_one(undone, {"_id": True}) is not None


def _tombstone(document: Document) -> Tombstone:
    fields = {name: value for name, value in document.items() if name not in _BOOKKEEPING}
    return Tombstone.model_validate(fields)
