"""For whom an agent's execution is, on MongoDB: told by the turns that are recorded in it."""

from collections import OrderedDict
from typing import Final

from pymongo.errors import DuplicateKeyError

from pipeline.ids import OpaqueIds
from pipeline.stores.mongo import Collection, Database, Document

KNOWN: Final = 4096
"""How many executions a process remembers to have noted."""


class MongoExecutions:
    """Executions and their users, on the collection `executions`.

    Their names are no secret: whoever may ask for a project may name any execution of it.
    """

    def __init__(self, database: Database, ids: OpaqueIds) -> None:
        self._collection: Collection = database["executions"]
        self._ids = ids
        self._noted: OrderedDict[tuple[str, str], None] = OrderedDict()

    async def note(self, project_id: str, execution_id: str, user_id: str) -> None:
        """Note that an execution speaks with a user. Idempotent."""
        key = self._ids.execution(project_id, execution_id)
        if (key, user_id) in self._noted:
            return
        update: Document = {"$addToSet": {"users": user_id}}
        try:
            await self._collection.update_one({"_id": key}, update, upsert=True)
        except DuplicateKeyError:
            # Another process made it at the same moment; now it is there.
            await self._collection.update_one({"_id": key}, update)
        self._noted[key, user_id] = None
        if len(self._noted) > KNOWN:
            self._noted.popitem(last=False)

    async def user(self, project_id: str, execution_id: str) -> str | None:
        """Return the one user an execution speaks with; none for several, or if it is unknown."""
        key = self._ids.execution(project_id, execution_id)
        found = await self._collection.find_one({"_id": key})
        users: list[str] = [] if found is None else found["users"]
        return users[0] if len(users) == 1 else None
