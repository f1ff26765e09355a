"""Which snapshots jobs are about, on MongoDB: in pieces, so that no job's document is large."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from pymongo import ASCENDING

from pipeline.stores.mongo import Collection, Database, Document

PIECE: Final = 1000


class MongoListings:
    """Port `Listings` on the collection `job_listings`."""

    def __init__(self, database: Database) -> None:
        self._collection: Collection = database["job_listings"]

    async def put(self, job_id: str, snapshot_ids: Sequence[str]) -> None:
        """Store them. Idempotent; several commands."""
        listed = sorted(set(snapshot_ids))
        for first in range(0, len(listed), PIECE):
            piece = listed[first : first + PIECE]
            document = {"job_id": job_id, "last": piece[-1], "snapshot_ids": piece}
            named = {"_id": f"{job_id}:{first // PIECE}"}
            await self._collection.replace_one(named, named | document, upsert=True)

    async def after(self, job_id: str, cursor: str | None, limit: int) -> list[str]:
        """Return those beyond one, in order; at the end none."""
        beyond: Document = {} if cursor is None else {"last": {"$gt": cursor}}
        piece = await self._collection.find_one(
            {"job_id": {"$eq": job_id}} | beyond, sort=[("last", ASCENDING)]
        )
        if piece is None:
            return []
        listed: list[str] = piece["snapshot_ids"]
        first = 0 if cursor is None else bisect_right(listed, cursor)
        return listed[first : first + limit]
