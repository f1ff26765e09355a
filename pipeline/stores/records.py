"""The records on MongoDB.

Beside the record itself a document holds what is left to do, in fields that exist only then:
`dirty`, the server time of the latest mark, with `writers`, the number of marks whose writer has
not folded yet; `unannounced`, the server time of the first change that is not announced. It also
holds `changed_rev`, the revision of the latest change, `changed_ms`, the server time of the latest
thing that readers must notice, and `embedding`, which is the ledger of
`pipeline.stores.embeddings`: each change begins it anew.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any, Final

from bson import encode
from pymongo import ASCENDING, UpdateOne
from pymongo.errors import BulkWriteError, DocumentTooLarge

from pipeline.ports.records import SlotKey
from pipeline.stores.assertions import duplicates
from pipeline.stores.mongo import SERVER_NOW_MS, Collection, Database, Document, readable
from schemas.embedding import Embedding, EmbeddingState
from schemas.identity import ReadScope
from schemas.memory import RecordKind
from schemas.record import Record
from schemas.tombstone import Bar

MARK_GRACE: Final = timedelta(seconds=30)
"""How long a mark may be its writer's: much longer than the one command between mark and fold."""
RUNS_BYTES: Final = 15 * 1024 * 1024
"""A document has 16 MiB; the rest is for its bar: a record that is full must be forgettable."""

_PATHS: Final = {
    "project_id": "scope.project_id",
    "org_id": "scope.org_id",
    "user_id": "scope.owner",
    "visibility": "scope.visibility",
    "agent_id": "runs.agents",
    "session_id": "runs.sessions",
}
"""Where a document has what a `ReadScope` names."""

_MARKED: Final[Document] = {
    "rev": {"$add": [{"$ifNull": ["$rev", 0]}, 1]},
    "writers": {"$add": [{"$ifNull": ["$writers", 0]}, 1]},
    "dirty": SERVER_NOW_MS,
}
"""What a mark changes."""
_BOOKKEEPING: Final = (
    "_id",
    "dirty",
    "writers",
    "unannounced",
    "changed_rev",
    "changed_ms",
    "embedding",
)


class MongoRecords:
    """Port `Records` on the collection `records`.

    Args:
        database: Where they are.
        grace: How old a mark must be for any fold to end it; longer than a command may take.
    """

    def __init__(self, database: Database, *, grace: timedelta = MARK_GRACE) -> None:
        self._collection: Collection = database["records"]
        self._grace_ms = int(grace.total_seconds() * 1000)

    async def mark_dirty(self, slots: Sequence[SlotKey]) -> None:
        """Raise each `rev` and mark it to be folded; makes shells where there is none.

        Not atomic over several.
        """
        left = list(slots)
        while left:
            try:
                await self._collection.bulk_write([_mark(slot) for slot in left], ordered=False)
            except BulkWriteError as error:
                # Another process made the same shell at the same moment; now it is there.
                left = [left[index] for index in duplicates(error)]
            else:
                return

    async def get(self, slot: str) -> Record | None:
        """Return one, from the primary."""
        document = await self._collection.find_one({"_id": slot})
        return None if document is None else record_of(document)

    async def store(self, record: Record, *, read_rev: int, changed: bool, ends_mark: bool) -> bool:
        """Store a fold where `rev` is still `read_rev`, and raise it.

        Raises:
            pymongo.errors.DocumentTooLarge: It would leave no room for what may have to be barred.
        """
        runs = [run.model_dump() for run in record.runs]
        if len(encode({"runs": runs})) > RUNS_BYTES:
            raise DocumentTooLarge(f"a record's runs have at most {RUNS_BYTES} bytes")
        left: Document = {"$subtract": [{"$ifNull": ["$writers", 0]}, int(ends_mark)]}
        oldest_ms: Document = {"$subtract": [SERVER_NOW_MS, self._grace_ms]}
        is_clean: Document = {"$or": [{"$lte": [left, 0]}, {"$lte": ["$dirty", oldest_ms]}]}
        fields: Document = {
            "rev": read_rev + 1,
            "key": _words(record.key),
            "subject": _words(record.subject),
            "runs": {"$literal": runs},
            "dirty": {"$cond": [is_clean, "$$REMOVE", "$dirty"]},
            "writers": {"$cond": [is_clean, "$$REMOVE", left]},
        }
        if changed:
            fields |= {
                "changed_rev": read_rev + 1,
                "changed_ms": SERVER_NOW_MS,
                "unannounced": {"$ifNull": ["$unannounced", SERVER_NOW_MS]},
                "embedding": {
                    # Each field by its name: servers differ in whether those left out would stay.
                    **Embedding(state=EmbeddingState.PENDING).model_dump(mode="json"),
                    "rev": {"$add": [{"$ifNull": ["$embedding.rev", 0]}, 1]},
                    # Who may be writing vectors of what it said before writes them still.
                    "writers": {"$ifNull": ["$embedding.writers", []]},
                    "since_ms": SERVER_NOW_MS,
                    "due_ms": SERVER_NOW_MS,
                    "deaths": {"$ifNull": ["$embedding.deaths", 0]},
                },
            }
        result = await self._collection.update_one(
            {"_id": record.record_id, "rev": read_rev}, [{"$set": fields}]
        )
        return result.matched_count == 1

    async def bar(self, record_id: str, bar: Bar, *, read_rev: int) -> bool:
        """Store what its slot may not hold, where `rev` is still `read_rev`; raise and mark it."""
        result = await self._collection.update_one(
            {"_id": record_id, "rev": read_rev},
            [
                {
                    "$set": {
                        "bar": {"$literal": bar.model_dump() | {"spared": sorted(bar.spared)}},
                        "changed_ms": SERVER_NOW_MS,
                        **_MARKED,
                    }
                }
            ],
        )
        return result.matched_count == 1

    async def bars(self, slots: Sequence[str]) -> dict[str, Bar]:
        """Return what slots may not hold, of those of which anything was forgotten."""
        if not slots:
            return {}
        query: Document = {"_id": {"$in": list(slots)}, "bar": {"$exists": True}}
        found = self._collection.find(query, {"bar": True})
        return {
            str(document["_id"]): Bar.model_validate(document["bar"]) async for document in found
        }

    async def dirty(self, limit: int) -> list[str]:
        """Return marked slots, the oldest marks first."""
        cursor = (
            self._collection.find({"dirty": {"$exists": True}}, {"_id": True})
            .sort("dirty", ASCENDING)
            .limit(limit)
        )
        return [str(document["_id"]) async for document in cursor]

    async def unannounced(self, limit: int) -> list[Record]:
        """Return changed records whose event is not acknowledged yet, the oldest first."""
        cursor = (
            self._collection.find({"unannounced": {"$exists": True}})
            .sort("unannounced", ASCENDING)
            .limit(limit)
        )
        return await readable(cursor, record_of)

    async def mark_announced(self, record_id: str, rev: int) -> None:
        """The event of this revision is acknowledged; a later change stays unannounced."""
        await self._collection.update_one(
            {"_id": record_id, "changed_rev": {"$lte": rev}}, {"$unset": {"unannounced": ""}}
        )

    async def of_scope(
        self, scope: ReadScope, *, kinds: Sequence[RecordKind] = ()
    ) -> AsyncIterator[Record]:
        """Yield the records of a scope, shells too; each given field is an equality."""
        async for document in self._collection.find(within(scope, kinds)):
            yield record_of(document)

    async def of_memory(self, memory_id: str, scope: ReadScope) -> list[Record]:
        """Return the records of a scope that have a memory's runs; from the primary."""
        found = self._collection.find({"runs.memory_id": memory_id, **within(scope)})
        return [record_of(document) async for document in found]


def within(scope: ReadScope, kinds: Sequence[RecordKind] = ()) -> Document:
    """Return the condition of a scope: each field that is given is one equality.

    Its values are texts, never operators. They stand there plainly: the embedded database uses no
    index for `$eq`, nor for a set of one.
    """
    query: Document = {_PATHS[name]: value for name, value in scope if value is not None}
    if len(kinds) == 1:
        query["kind"] = kinds[0]
    elif kinds:
        query["kind"] = {"$in": sorted(kinds)}
    return query


def _words(text: str) -> Document | str:
    """Return how a text is stored: what was forgotten leaves no field, so that a mark makes it."""
    return {"$literal": text} if text else "$$REMOVE"


def _mark(slot: SlotKey) -> UpdateOne:
    shell: dict[str, Any] = {
        "scope": slot.scope.model_dump(),
        "kind": slot.kind,
        "key": slot.key,
        "subject": slot.subject,
        "runs": [],
    }
    return UpdateOne(
        {"_id": slot.slot},
        [
            {
                "$set": {
                    name: {"$ifNull": [f"${name}", {"$literal": value}]}
                    for name, value in shell.items()
                }
                | _MARKED
            }
        ],
        upsert=True,
    )


def record_of(document: Document) -> Record:
    """Return the record of a document, without what is left to do about it."""
    fields = {name: value for name, value in document.items() if name not in _BOOKKEEPING}
    return Record.model_validate({"record_id": document["_id"], **fields})
