"""The assertions on MongoDB."""

from collections.abc import Sequence
from typing import Final, cast

from pymongo import UpdateOne
from pymongo.errors import BulkWriteError

from pipeline.stores.mongo import Collection, Database, Document
from schemas.assertion import Assertion

DUPLICATE_KEY: Final = 11000


class MongoAssertions:
    """Port `Assertions` on the collection `assertions`.

    `extraction_id` is left out of what belongs to no extraction, so that its sparse index is.
    """

    def __init__(self, database: Database) -> None:
        self._collection: Collection = database["assertions"]

    async def write(self, assertions: Sequence[Assertion]) -> None:
        """Store those that are new; not atomic over several. Idempotent by their ids."""
        if not assertions:
            return
        upserts = [
            UpdateOne(
                {"_id": assertion.assertion_id}, {"$setOnInsert": _fields(assertion)}, upsert=True
            )
            for assertion in assertions
        ]
        try:
            await self._collection.bulk_write(upserts, ordered=False)
        except BulkWriteError as error:
            duplicates(error)  # another writer of the same assertion was faster: it is there

    async def of_slot(self, slot: str) -> list[Assertion]:
        """Return all assertions of a slot, from the primary."""
        return [_assertion(found) async for found in self._collection.find({"slot": slot})]

    async def of_extraction(self, extraction_id: str) -> list[Assertion]:
        """Return all assertions of a run."""
        cursor = self._collection.find({"extraction_id": extraction_id})
        return [_assertion(found) async for found in cursor]

    async def remove(self, assertion_ids: Sequence[str]) -> None:
        """Remove them; not atomic over several. Idempotent."""
        await self._collection.delete_many({"_id": {"$in": list(assertion_ids)}})


def duplicates(error: BulkWriteError) -> list[int]:
    """Return which writes of an unordered bulk lost a race of upserts.

    Raises:
        BulkWriteError: Something else went wrong.
    """
    details = cast("Document", error.details or {})
    failed: list[Document] = details.get("writeErrors", [])
    others = [write for write in failed if write["code"] != DUPLICATE_KEY]
    if others or details.get("writeConcernErrors") or not failed:
        raise error
    return [int(write["index"]) for write in failed]


def _fields(assertion: Assertion) -> Document:
    fields = assertion.model_dump(exclude={"assertion_id"})
    if assertion.extraction_id is None:
        del fields["extraction_id"]
    return fields


def _assertion(document: Document) -> Assertion:
    fields = {name: value for name, value in document.items() if name != "_id"}
    return Assertion.model_validate(
        {"assertion_id": document["_id"], "extraction_id": None, **fields}
    )
