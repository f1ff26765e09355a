"""The shared states of breakers and guards on MongoDB: small documents, changed if unchanged."""

from typing import Generic, TypeVar

from pymongo.errors import DuplicateKeyError

from pipeline.stores.mongo import Collection, Database, Document
from schemas.breaker import Breaker
from schemas.guard import Guard

State = TypeVar("State", Breaker, Guard)


class _Switches(Generic[State]):
    """One collection of them.

    Concurrency: `swap` is one conditional update by `rev`; of any number that read the same state
    one gets through.
    """

    def __init__(self, collection: Collection, kind: type[State], key: str) -> None:
        self._collection = collection
        self._kind: type[State] = kind
        self._key = key

    async def get(self, name: str) -> State:
        """Return a state; a fresh one where none is stored."""
        document = await self._collection.find_one({"_id": name})
        return self._fresh(name) if document is None else self._state(document)

    async def swap(self, before: State, after: State) -> bool:
        """Store a state where the one it was made from still stands; return whether it did."""
        document: Document = after.model_dump()
        name = document.pop(self._key)
        if before.rev == 0:
            try:
                await self._collection.insert_one({"_id": name, **document})
            except DuplicateKeyError:
                return False
            return True
        result = await self._collection.replace_one({"_id": name, "rev": before.rev}, document)
        return result.matched_count == 1

    async def all(self) -> list[State]:
        """Return every one that is stored, by name."""
        cursor = self._collection.find({}, sort=[("_id", 1)])
        return [self._state(document) async for document in cursor]

    def _fresh(self, name: str) -> State:
        return self._kind.model_validate({self._key: name})

    def _state(self, document: Document) -> State:
        return self._kind.model_validate({self._key: document.pop("_id"), **document})


class MongoBreakers(_Switches[Breaker]):
    """The breakers."""

    def __init__(self, database: Database) -> None:
        super().__init__(database["breakers"], Breaker, "breaker_id")


class MongoGuards(_Switches[Guard]):
    """The mass guards."""

    def __init__(self, database: Database) -> None:
        super().__init__(database["guards"], Guard, "guard_id")
