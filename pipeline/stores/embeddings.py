"""How far each embedding is, on MongoDB: the field `embedding` of the record or turn itself.

Of a turn it exists from when it was recorded, if its project wanted turns embedded then, or from
when somebody began to embed it.
"""

from collections.abc import Callable
from typing import Final

from pymongo import ASCENDING
from pymongo.asynchronous.cursor import AsyncCursor

from pipeline.embedding.ports import Embedded, EmbedsTurns, Owner
from pipeline.stores.mongo import SERVER_NOW_MS, Collection, Database, Document, readable
from pipeline.stores.records import record_of
from pipeline.stores.turns import turn_from
from schemas.embedding import Embedding, EmbeddingState
from schemas.turn import Turn

_WRITTEN_BEFORE: Final = (0, None)
"""What stands for the first revision: where nobody has changed it yet there is none."""
TURN_PREFIX: Final = "trn_"
"""How the ids of turns begin; those of records begin otherwise, and come before them."""
_PENDING: Final[Document] = {"embedding.state": EmbeddingState.PENDING.value}


class MongoEmbeddingLedger:
    """Port `EmbeddingLedger` on the collections `records` and `turns`.

    Args:
        database: Where they are.
        projects: Which projects want their turns embedded.
    """

    def __init__(self, database: Database, projects: EmbedsTurns) -> None:
        self._records: Collection = database["records"]
        self._turns: Collection = database["turns"]
        self._projects = projects

    async def get(self, owner_id: str) -> Embedded | None:
        """Return one, from the primary; no turn whose project wants none embedded."""
        if not owner_id.startswith(TURN_PREFIX):
            there: Document = {"_id": owner_id, "embedding": {"$exists": True}}
            document = await self._records.find_one(there)
            return None if document is None else _embedded(document, record_of)
        wanting = await self._projects.that_embed_turns()
        if not wanting:
            return None
        of: Document = {"_id": owner_id, "identity.project_id": {"$in": sorted(wanting)}}
        document = await self._turns.find_one(of)
        return None if document is None else _embedded(document, turn_from)

    async def swap(self, owner_id: str, before: Embedding, after: Embedding) -> bool:
        """Store a state where the one it was made from still stands.

        Readers are told (`changed_ms`) of whatever ends at a record, since they may have its
        vectors anew; of turns they ask themselves.
        """
        rev = before.rev or {"$in": list(_WRITTEN_BEFORE)}
        fields: Document = {"embedding": {"$literal": after.model_dump(mode="python")}}
        is_turn = owner_id.startswith(TURN_PREFIX)
        if not is_turn and len(after.writers) <= len(before.writers):
            fields["changed_ms"] = SERVER_NOW_MS
        collection = self._turns if is_turn else self._records
        result = await collection.update_one(
            {"_id": owner_id, "embedding.rev": rev}, [{"$set": fields}]
        )
        return result.matched_count == 1

    async def due(self, before_ms: int, limit: int) -> list[Embedded]:
        """Return pending ones that were due before then; first those that never said when."""
        said: Document = {"embedding.due_ms": {"$lte": before_ms}}
        unsaid: Document = {"embedding.due_ms": {"$not": {"$gt": before_ms}}}
        found = [
            *await _due(self._records.find(_PENDING | unsaid), record_of, limit),
            # Each mark of a turn says when; and a sparse index answers only what asks for that.
            *await _due(self._turns.find(_PENDING | said), turn_from, limit),
        ]
        wanting = await self._projects.that_embed_turns()
        due: list[Embedded] = []
        for each in sorted(found, key=lambda one: one.embedding.due_ms):
            if isinstance(each.owner, Turn) and each.owner.identity.project_id not in wanting:
                await self._let_go(each)
            else:
                due.append(each)
        return due[:limit]

    async def after(self, owner_id: str, limit: int, *, project_id: str | None) -> list[Embedded]:
        """Return those whose ids follow one, in the order of ids: records first, then turns."""
        following: Document = {"_id": {"$gt": owner_id}}
        query: Document = {**following, "embedding": {"$exists": True}}
        if project_id is not None:
            query["scope.project_id"] = project_id
        found: list[Embedded] = []
        if owner_id < TURN_PREFIX:
            records = self._records.find(query).sort("_id", ASCENDING).limit(limit)
            found = await readable(records, lambda document: _embedded(document, record_of))
        wanting = await self._projects.that_embed_turns()
        if project_id is not None:
            wanting &= {project_id}
        if len(found) < limit and wanting:
            of: Document = {**following, "identity.project_id": {"$in": sorted(wanting)}}
            turns = self._turns.find(of).sort("_id", ASCENDING).limit(limit - len(found))
            found += await readable(turns, lambda document: _embedded(document, turn_from))
        return found

    async def _let_go(self, found: Embedded) -> None:
        """Take the mark off a turn that is not to be embedded, if it is as it was read."""
        rev = found.embedding.rev or {"$in": list(_WRITTEN_BEFORE)}
        await self._turns.update_one(
            {"_id": found.owner_id, "embedding.rev": rev}, {"$unset": {"embedding": ""}}
        )


async def _due(
    pending: AsyncCursor[Document], decode: Callable[[Document], Owner], limit: int
) -> list[Embedded]:
    cursor = pending.sort("embedding.due_ms", ASCENDING).limit(limit)
    return await readable(cursor, lambda document: _embedded(document, decode))


def embedded_turn(document: Document) -> Embedded:
    """Return a turn as it is stored; pending where nobody has begun to embed it."""
    return _embedded(document, turn_from)


def _embedded(document: Document, decode: Callable[[Document], Owner]) -> Embedded:
    pending = {"state": EmbeddingState.PENDING}
    return Embedded(
        owner=decode(document),
        embedding=Embedding.model_validate(document.get("embedding", pending)),
    )
