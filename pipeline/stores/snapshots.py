"""The snapshots on MongoDB; `wake_at_ms` exists only while one is unsettled."""

from collections.abc import Sequence
from typing import Final

from pymongo import ASCENDING, DESCENDING

from pipeline.stores.mongo import Collection, Database, Document, readable
from schemas.job import Selection
from schemas.snapshot import Snapshot

_BOOKKEEPING: Final = ("_id", "wake_at_ms")


class MongoSnapshots:
    """Port `Snapshots` on the collection `snapshots`."""

    def __init__(self, database: Database) -> None:
        self._collection: Collection = database["snapshots"]

    async def insert(self, snapshot: Snapshot, *, wake_at_ms: int) -> None:
        """Store it as unsettled.

        Raises:
            pymongo.errors.DuplicateKeyError: Another cutter made one that starts at the same turn.
        """
        await self._collection.insert_one(
            {
                "_id": snapshot.snapshot_id,
                **snapshot.model_dump(exclude_none=True),
                "reason": snapshot.reason.value,
                "wake_at_ms": wake_at_ms,
            }
        )

    async def last(self, session: str) -> Snapshot | None:
        """Return the one that ends a session's tiling so far."""
        document = await self._collection.find_one(
            {"session": session}, sort=[("first_seq", DESCENDING)]
        )
        return None if document is None else snapshot_from(document)

    async def covering(self, session: str, seq: int) -> list[Snapshot]:
        """Return those that end at `seq` or later, in the order of the session."""
        cursor = self._collection.find(
            {"session": session, "last_seq": {"$gte": seq}}, sort=[("first_seq", ASCENDING)]
        )
        return [snapshot_from(document) async for document in cursor]

    async def get(self, snapshot_id: str) -> Snapshot | None:
        """Return one."""
        document = await self._collection.find_one({"_id": snapshot_id})
        return None if document is None else snapshot_from(document)

    async def settle(self, snapshot_id: str, *, run: int, summary: str | None) -> None:
        """Mark it settled and keep its summary, if `run` is its active one. Idempotent."""
        await self._collection.update_one(
            {"_id": snapshot_id, "active_run": run},
            {"$set": {"settled": True, "summary": summary}, "$unset": {"wake_at_ms": ""}},
        )

    async def activate(self, snapshot_id: str, *, run: int, replacing: int) -> bool:
        """Let another run count, where the one to be replaced does; return whether it counts now.

        Idempotent. Settled or not, it stays.
        """
        await self._collection.update_one(
            {"_id": snapshot_id, "active_run": replacing}, {"$set": {"active_run": run}}
        )
        snapshot = await self.get(snapshot_id)
        return snapshot is not None and snapshot.active_run == run

    async def selected(
        self,
        selection: Selection,
        *,
        after: str | None,
        limit: int,
        among: Sequence[str] | None = None,
    ) -> list[Snapshot]:
        """Return settled snapshots of a selection by their ids, from beyond one on."""
        wanted: Document = {
            f"identity.{name}": {"$eq": value}
            for name in ("project_id", "user_id", "session_id")
            if (value := getattr(selection, name)) is not None
        }
        wanted["settled"] = True
        if among is not None:
            wanted["_id"] = {"$in": list(among)}
        elif after is not None:
            wanted["_id"] = {"$gt": after}
        within = {"$gte": selection.since, "$lt": selection.until}
        if given := {each: moment for each, moment in within.items() if moment is not None}:
            wanted["created_at"] = given
        cursor = self._collection.find(wanted, sort=[("_id", ASCENDING)], limit=limit)
        return [snapshot_from(document) async for document in cursor]

    async def reopen(self, snapshot_id: str, *, run: int, wake_at_ms: int) -> None:
        """Mark a settled one unsettled, if `run` is its active one. Idempotent."""
        await self._collection.update_one(
            {"_id": snapshot_id, "active_run": run, "settled": True},
            {"$set": {"settled": False, "wake_at_ms": wake_at_ms}},
        )

    async def unsettled_due(self, now_ms: int, limit: int) -> list[Snapshot]:
        """Return unsettled ones whose `wake_at` is at or before now, oldest first."""
        cursor = self._collection.find(
            {"wake_at_ms": {"$lte": now_ms}}, sort=[("wake_at_ms", ASCENDING)], limit=limit
        )
        return await readable(cursor, snapshot_from)

    async def wake_later(self, snapshot_id: str, wake_at_ms: int) -> None:
        """Look at an unsettled one again at `wake_at_ms`."""
        await self._collection.update_one(
            {"_id": snapshot_id, "settled": False}, {"$set": {"wake_at_ms": wake_at_ms}}
        )


def snapshot_from(document: Document) -> Snapshot:
    """Return the snapshot that a document stores."""
    fields: Document = {name: value for name, value in document.items() if name not in _BOOKKEEPING}
    return Snapshot.model_validate(fields)
