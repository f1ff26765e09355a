"""What each project stored today, on MongoDB: one small document a project."""

from pymongo.errors import DuplicateKeyError

from pipeline.stores.mongo import Collection, Database


class MongoUsage:
    """Port `Usage` on the collection `usage`.

    Concurrency: any number of processes may add; each command is atomic and none takes anything
    back. An answer that is lost leaves unknown whether its number was added.
    """

    def __init__(self, database: Database) -> None:
        self._collection: Collection = database["usage"]

    async def of(self, project_id: str, day: int) -> int:
        """Return what all processes have added for a day."""
        document = await self._collection.find_one({"_id": {"$eq": project_id}})
        return int(document["used"]) if document is not None and document["day"] >= day else 0

    async def add(self, project_id: str, day: int, used: int) -> None:
        """Add to a day; its first addition ends the day before. Several commands."""
        while True:
            # What comes late for a day that is over counts for the one that has begun.
            today = {"_id": {"$eq": project_id}, "day": {"$gte": day}}
            if (await self._collection.update_one(today, {"$inc": {"used": used}})).matched_count:
                return
            before = {"_id": {"$eq": project_id}, "day": {"$lt": day}}
            begun = {"$set": {"day": day, "used": used}}
            if (await self._collection.update_one(before, begun)).matched_count:
                return
            try:
                await self._collection.insert_one({"_id": project_id, "day": day, "used": used})
            except DuplicateKeyError:
                continue
            return
