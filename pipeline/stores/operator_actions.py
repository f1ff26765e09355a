"""The audit trail on MongoDB: written, never changed."""

from pymongo import ASCENDING

from pipeline.stores.mongo import Collection, Database
from schemas.operator_action import OperatorAction


class MongoOperatorActions:
    """Port `OperatorActions` on the collection `operator_actions`."""

    def __init__(self, database: Database) -> None:
        self._collection: Collection = database["operator_actions"]

    async def write(self, action: OperatorAction) -> None:
        """Store an act, before it is done."""
        document = action.model_dump()
        await self._collection.insert_one({"_id": document.pop("action_id"), **document})

    async def of_target(self, target: str) -> list[OperatorAction]:
        """Return what was done to one, the oldest first."""
        cursor = self._collection.find({"target": {"$eq": target}}, sort=[("at", ASCENDING)])
        return [
            OperatorAction.model_validate({"action_id": document.pop("_id"), **document})
            async for document in cursor
        ]
