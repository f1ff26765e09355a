"""The dead letters on MongoDB: each stored before it goes to its topic."""

from collections.abc import Collection
from contextlib import suppress
from typing import Any, Final

from pymongo import ASCENDING, DESCENDING
from pymongo.errors import DuplicateKeyError

from pipeline.ports.letters import LetterQuery
from pipeline.stores.mongo import Collection as Documents
from pipeline.stores.mongo import Database, Document, readable
from schemas.failure import Letter, LetterState

_MESSAGE: Final = ("key", "value", "headers")
"""What may be large, and is somebody's."""
_BOOKKEEPING: Final = ("_id", "unsent")


class MongoLetters:
    """Port `Letters` on the collection `letters`; `unsent` exists until it is on its topic."""

    def __init__(self, database: Database) -> None:
        self._collection: Documents = database["letters"]

    async def put(self, letter: Letter) -> None:
        """Store a death that is not stored yet, as not on its topic. Idempotent by id and death."""
        fields = {
            **letter.model_dump(),
            "unsent": int(letter.last_death.timestamp() * 1000),
        }
        if letter.deaths > 1:
            del fields["created_at"]
            died_before = {"_id": letter.letter_id, "deaths": {"$lt": letter.deaths}}
            result = await self._collection.update_one(died_before, {"$set": fields})
            if result.matched_count:
                return
            fields["created_at"] = letter.created_at
        with suppress(DuplicateKeyError):
            await self._collection.insert_one({"_id": letter.letter_id, **fields})

    async def get(self, letter_id: str) -> Letter | None:
        """Return one."""
        document = await self._collection.find_one({"_id": {"$eq": letter_id}})
        return None if document is None else _letter(document)

    async def matching(self, wanted: LetterQuery, limit: int | None = None) -> list[Letter]:
        """Return those that match without their messages, the one that died first last."""
        cursor = self._collection.find(_condition(wanted), dict.fromkeys(_MESSAGE, 0))
        cursor = cursor.sort("created_at", DESCENDING)
        if limit is not None:
            cursor = cursor.limit(limit)
        return await readable(cursor, _without_message)

    async def change(
        self,
        letter_id: str,
        *,
        deaths: int,
        states: Collection[LetterState],
        to: LetterState,
        discarded_for: str | None = None,
    ) -> bool:
        """Change a state, where it died so often and is in one of these; false where it is not."""
        result = await self._collection.update_one(
            {"_id": letter_id, "deaths": deaths, "state": {"$in": sorted(states)}},
            {"$set": {"state": to, "discarded_for": discarded_for}},
        )
        return result.matched_count == 1

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


def _without_message(document: dict[str, Any]) -> Letter:
    return _letter({**document, "value": None, "headers": ()})


def _condition(wanted: LetterQuery) -> Document:
    condition: Document = {
        path: {"$eq": value}
        for path, value in (
            ("_id", wanted.letter_id),
            ("state", wanted.state),
            ("stage", wanted.stage),
            ("failure_class", wanted.failure_class),
            ("reason", wanted.reason),
            ("fingerprint", wanted.fingerprint),
            ("disposition", wanted.disposition),
            ("project_id", wanted.project_id),
            ("session", wanted.session),
            ("model", wanted.model),
            ("original.topic", wanted.topic),
        )
        if value is not None
    }
    within = {"$gte": wanted.since, "$lt": wanted.until}
    if given := {operator: moment for operator, moment in within.items() if moment is not None}:
        condition["created_at"] = given
    if wanted.projects is not None:
        condition["project_id"] = {
            **condition.get("project_id", {}),
            "$in": list(wanted.projects),
        }
    if wanted.deaths is not None:
        condition["deaths"] = {"$gte": wanted.deaths}
    return condition


def _letter(document: dict[str, Any]) -> Letter:
    fields = {name: value for name, value in document.items() if name not in _BOOKKEEPING}
    return Letter.model_validate(fields)
