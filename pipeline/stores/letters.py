"""The dead letters on MongoDB: each stored before it goes to its topic."""

from contextlib import suppress
from typing import Any, Final

from pymongo import ASCENDING
from pymongo.errors import DuplicateKeyError

from pipeline.stores.mongo import Collection, Database, readable
from schemas.failure import Letter

_BOOKKEEPING: Final = ("_id", "unsent")


class MongoLetters:
    """Port `Letters` on the collection `letters`; `unsent` exists until it is on its topic."""

    def __init__(self, database: Database) -> None:
        self._collection: Collection = database["letters"]

    async def put(self, letter: Letter) -> None:
        """Store it where it is new, as not yet on its topic. Idempotent by its id."""
        document = {
            "_id": letter.letter_id,
            **letter.model_dump(),
            "unsent": int(letter.created_at.timestamp() * 1000),
        }
        with suppress(DuplicateKeyError):
            await self._collection.insert_one(document)

    async def mark_sent(self, letter_id: str) -> None:
        """It is on the dead topic. Idempotent."""
        await self._collection.update_one({"_id": letter_id}, {"$unset": {"unsent": ""}})

    async def unsent(self, before_ms: int, limit: int) -> list[Letter]:
        """Return those that are not, though stored before then, oldest first."""
        cursor = (
            self._collection.find({"unsent": {"$lte": before_ms}})
            .sort("unsent", ASCENDING)
            .limit(limit)
        )
        return await readable(cursor, _letter)

    async def count(self) -> int:
        """Return how many there are."""
        return await self._collection.count_documents({})


def _letter(document: dict[str, Any]) -> Letter:
    fields = {name: value for name, value in document.items() if name not in _BOOKKEEPING}
    return Letter.model_validate(fields)
