"""The vectors on MongoDB: one document a vector, found by its owner.

`vector` is BSON's own type of packed 32-bit floats, and beside it stands what never changes of the
owner, so that a server that searches vectors itself can index it as it is.
"""

from collections.abc import Collection as Some
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
from bson.binary import VECTOR_SUBTYPE, Binary
from pymongo import ReplaceOne
from pymongo.errors import BulkWriteError, DuplicateKeyError

from pipeline.embedding.ports import StoredVector, Vector
from pipeline.stores.assertions import duplicates
from pipeline.stores.mongo import Collection, Database, Document
from schemas.embedding import Reembedding

_FLOAT32: Final = bytes((0x27, 0))
"""The head of a packed vector: 32-bit floats, no padding.

Source: BSON binary subtype 9, "Vector" (specifications/bson-binary-vector).
"""
_LITTLE_ENDIAN: Final = np.dtype("<f4")


class MongoVectors:
    """Port `Vectors` on the collection `vectors`."""

    def __init__(self, database: Database) -> None:
        self._collection: Collection = database["vectors"]

    async def put(self, vectors: Sequence[StoredVector]) -> None:
        """Store vectors; those that are there are replaced."""
        left = [_replacement(vector) for vector in vectors]
        while left:
            try:
                await self._collection.bulk_write(left, ordered=False)
            except BulkWriteError as error:
                # Another process made the same one at the same moment; now it is there.
                left = [left[index] for index in duplicates(error)]
            else:
                return

    async def of_owners(self, model: str, owners: Sequence[str]) -> dict[str, dict[str, Vector]]:
        """Return owner -> content hash -> vector."""
        found: dict[str, dict[str, Vector]] = {}
        query: Document = {"owner": {"$in": list(owners)}, "model": model}
        wanted = {"owner": True, "content_hash": True, "vector": True, "_id": False}
        async for document in self._collection.find(query, wanted):
            of_owner = found.setdefault(str(document["owner"]), {})
            of_owner[str(document["content_hash"])] = _unpacked(document["vector"])
        return found

    async def hashes_of(self, model: str, owner: str) -> frozenset[str]:
        """Return which texts of an owner have a vector of a model."""
        found = self._collection.find({"owner": owner, "model": model}, {"content_hash": True})
        return frozenset([str(document["content_hash"]) async for document in found])

    async def keep_only(self, owner: str, hashes: Some[str]) -> None:
        """Delete an owner's vectors that are of none of these texts."""
        await self._collection.delete_many(
            {"owner": owner, "content_hash": {"$nin": sorted(hashes)}}
        )

    async def delete_of(self, owners: Sequence[str]) -> None:
        """Delete whatever owners have, of every model."""
        if owners:
            await self._collection.delete_many({"owner": {"$in": list(owners)}})

    async def delete_of_others(self, model: str) -> int:
        """Delete every vector of other models; return how many there were."""
        deleted = await self._collection.delete_many({"model": {"$ne": model}})
        return deleted.deleted_count


class MongoActiveModel:
    """Port `ActiveModel`: a document of the collection `installation`."""

    def __init__(self, database: Database) -> None:
        self._collection: Collection = database["installation"]

    async def active(self) -> str | None:
        """Return the model whose vectors are searched; none until something was embedded."""
        document = await self._collection.find_one({"_id": _ACTIVE})
        return None if document is None else str(document["model"])

    async def claim(self, model: str) -> str:
        """Return the active model; this one, from now on, where there was none."""
        while (active := await self.active()) is None:
            with suppress(DuplicateKeyError):
                await self._collection.insert_one({"_id": _ACTIVE, "model": model})
        return active

    async def switch(self, model: str) -> None:
        """Let readers search the vectors of another model."""
        await self._collection.update_one({"_id": _ACTIVE}, {"$set": {"model": model}}, upsert=True)


class MongoReembeddings:
    """Port `Reembeddings`: a document of the collection `installation`."""

    def __init__(self, database: Database) -> None:
        self._collection: Collection = database["installation"]

    async def get(self) -> Reembedding | None:
        """Return the one that is under way."""
        document = await self._collection.find_one({"_id": _REEMBEDDING}, {"_id": False})
        return None if document is None else Reembedding.model_validate(document)

    async def put(self, reembedding: Reembedding) -> None:
        """Store how far it is."""
        await self._collection.replace_one(
            {"_id": _REEMBEDDING}, reembedding.model_dump(), upsert=True
        )

    async def remove(self) -> None:
        """It is done."""
        await self._collection.delete_one({"_id": _REEMBEDDING})


_ACTIVE: Final = "embedding"
_REEMBEDDING: Final = "reembedding"


def _replacement(vector: StoredVector) -> ReplaceOne[Document]:
    named = f"{vector.owner}:{vector.content_hash}:{vector.model}"
    return ReplaceOne(
        {"_id": named},
        {
            "_id": named,
            "owner": vector.owner,
            "model": vector.model,
            "dimension": len(vector.vector),
            "content_hash": vector.content_hash,
            "scope": vector.scope.model_dump(),
            "kind": vector.kind,
            **({} if vector.session_id is None else {"session_id": vector.session_id}),
            "vector": _packed(vector.vector),
        },
        upsert=True,
    )


def _packed(vector: Vector) -> Binary:
    return Binary(_FLOAT32 + vector.astype(_LITTLE_ENDIAN).tobytes(), VECTOR_SUBTYPE)


def _unpacked(packed: Any) -> Vector:
    return np.frombuffer(bytes(packed), dtype=_LITTLE_ENDIAN, offset=len(_FLOAT32)).astype(
        np.float32
    )
