"""How far each record's embedding is, on MongoDB: the field `embedding` of the record itself."""

from typing import Final

from pymongo import ASCENDING

from pipeline.embedding.ports import Embedded
from pipeline.stores.mongo import SERVER_NOW_MS, Collection, Database, Document, readable
from pipeline.stores.records import record_of
from schemas.embedding import Embedding, EmbeddingState

_WRITTEN_BEFORE: Final = (0, None)
"""What stands for the first revision: records from before there was one have none."""


class MongoEmbeddingLedger:
    """Port `EmbeddingLedger` on the collection `records`."""

    def __init__(self, database: Database) -> None:
        self._collection: Collection = database["records"]

    async def get(self, record_id: str) -> Embedded | None:
        """Return one, from the primary."""
        document = await self._collection.find_one(
            {"_id": record_id, "embedding": {"$exists": True}}
        )
        return None if document is None else _embedded(document)

    async def swap(self, record_id: str, before: Embedding, after: Embedding) -> bool:
        """Store a state where the one it was made from still stands.

        Readers are told (`changed_ms`) of whatever ends, since they may have the vectors anew.
        """
        rev = before.rev or {"$in": list(_WRITTEN_BEFORE)}
        fields: Document = {"embedding": {"$literal": after.model_dump(mode="python")}}
        if len(after.writers) <= len(before.writers):
            fields["changed_ms"] = SERVER_NOW_MS
        result = await self._collection.update_one(
            {"_id": record_id, "embedding.rev": rev}, [{"$set": fields}]
        )
        return result.matched_count == 1

    async def due(self, before_ms: int, limit: int) -> list[Embedded]:
        """Return pending ones that were due before then; first those that never said when."""
        pending: Document = {"embedding.state": EmbeddingState.PENDING.value}
        cursor = (
            self._collection.find({**pending, "embedding.due_ms": {"$not": {"$gt": before_ms}}})
            .sort("embedding.due_ms", ASCENDING)
            .limit(limit)
        )
        return await readable(cursor, _embedded)

    async def after(self, record_id: str, limit: int, *, project_id: str | None) -> list[Embedded]:
        """Return those whose ids follow one, in the order of ids."""
        query: Document = {"_id": {"$gt": record_id}, "embedding": {"$exists": True}}
        if project_id is not None:
            query["scope.project_id"] = project_id
        cursor = self._collection.find(query).sort("_id", ASCENDING).limit(limit)
        return await readable(cursor, _embedded)


def _embedded(document: Document) -> Embedded:
    return Embedded(
        record=record_of(document), embedding=Embedding.model_validate(document["embedding"])
    )
