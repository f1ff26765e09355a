"""What was begun and has no end, on MongoDB: the trace that a killed process leaves."""

from pipeline.stores.mongo import Collection, Database
from schemas.topics import Stage


class MongoDeliveries:
    """Port `Deliveries` on the collection `deliveries`.

    It holds partitions in somebody's hands, what is under way after a death, and what was set
    aside: so few documents that reading a stage's needs no index. A count is stored, never raised,
    so a command that the driver sends again because its answer was lost counts nothing twice. Two
    processes that begin the same at once count one start: too few, never too many.
    """

    def __init__(self, database: Database) -> None:
        self._collection: Collection = database["deliveries"]

    async def unended(self, stage: Stage) -> set[str]:
        """Return what was begun at a stage and has no end."""
        cursor = self._collection.find({"stage": stage.value}, {"subject": 1})
        return {str(document["subject"]) async for document in cursor}

    async def starts(self, stage: Stage, subject: str) -> int:
        """Return how many starts in a row have no end."""
        document = await self._collection.find_one({"_id": _id(stage, subject)}, {"starts": 1})
        return 0 if document is None else int(document["starts"])

    async def put(self, stage: Stage, subject: str, starts: int) -> None:
        """Say how many starts in a row have no end. Idempotent."""
        await self._collection.replace_one(
            {"_id": _id(stage, subject)},
            {"stage": stage.value, "subject": subject, "starts": starts},
            upsert=True,
        )

    async def remove(self, stage: Stage, subject: str) -> None:
        """It ended. Idempotent."""
        await self._collection.delete_one({"_id": _id(stage, subject)})


def _id(stage: Stage, subject: str) -> str:
    return f"{stage.value}/{subject}"
