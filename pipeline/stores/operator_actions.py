"""The audit trail on MongoDB: written, never changed."""

from collections.abc import Collection as Several

from pymongo import ASCENDING, DESCENDING

from pipeline.stores.mongo import Collection, Database, Document
from schemas.operator_action import Act, OperatorAction


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
        return [_action(document) async for document in cursor]

    async def matching(
        self,
        *,
        target: str | None = None,
        by: str | None = None,
        act: Act | None = None,
        projects: Several[str | None] | None = None,
        skip: int = 0,
        limit: int,
    ) -> list[OperatorAction]:
        """Return acts, the newest first; what is none may be anything.

        Args:
            target: What it was done to.
            by: Who did it.
            act: What was done.
            projects: It is of one of these, where none is "of no project".
            skip: So many newer ones are left out.
            limit: So many at most.
        """
        asked = {"target": target, "by": by, "act": None if act is None else act.value}
        condition: Document = {
            name: {"$eq": value} for name, value in asked.items() if value is not None
        }
        if projects is not None:
            condition["project_id"] = {"$in": list(projects)}
        cursor = self._collection.find(condition, sort=[("at", DESCENDING)])
        return [_action(document) async for document in cursor.skip(skip).limit(limit)]


def _action(document: Document) -> OperatorAction:
    return OperatorAction.model_validate({"action_id": document.pop("_id"), **document})
