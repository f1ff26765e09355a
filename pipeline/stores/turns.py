"""The turns on MongoDB: each is stored once, whole, and `open` until its snapshot is announced."""

from typing import Final

from bson import ObjectId
from pymongo import ASCENDING, DESCENDING
from pymongo.errors import DuplicateKeyError

from pipeline.ports.turns import IdempotencyKey, NewestTurn, OpenSession, OpenTurn
from pipeline.stores.mongo import Collection, Database, Document
from schemas.embedding import EmbeddingState
from schemas.turn import Turn

_BOOKKEEPING: Final = ("_id", "write", "open", "closes", "idempotency", "body", "embedding")
_OPEN_TURN: Final[Document] = {
    "_id": 0,
    "seq": 1,
    "tokens": 1,
    "recorded_at": 1,
    "closes": 1,
    "identity.project_id": 1,
}
_BY_SESSION: Final[list[Document]] = [
    {"$match": {"open": {"$exists": True}}},
    {
        "$group": {
            "_id": "$open",
            "turns": {"$sum": 1},
            "tokens": {"$sum": "$tokens"},
            "oldest_seq": {"$min": "$seq"},
            "newest_seq": {"$max": "$seq"},
            "oldest_recorded_at": {"$min": "$recorded_at"},
            "newest_recorded_at": {"$max": "$recorded_at"},
            "closes": {"$max": "$closes"},
            "project_id": {"$max": "$identity.project_id"},
        }
    },
]


class MongoTurns:
    """Port `Turns` on the collection `turns`.

    `open` (the session's key), `idempotency` and `embedding` (the ledger of
    `pipeline.stores.embeddings`) exist only where they say something, so that the sparse index over
    each holds nothing else.
    """

    def __init__(self, database: Database) -> None:
        self._collection: Collection = database["turns"]

    async def insert(
        self, turn: Turn, *, idempotency: IdempotencyKey | None, to_embed: bool = False
    ) -> None:
        """Store it as open, and as pending for its embedding if it is to be embedded.

        Raises:
            pymongo.errors.DuplicateKeyError: `keyPattern` names the idempotency key, or else the
                place is taken.
        """
        document = document_of(turn, idempotency)
        if to_embed:
            document["embedding"] = _pending(turn)
        try:
            await self._collection.insert_one(document)
        except DuplicateKeyError:
            # The driver sends an insert again whose answer was lost: then it collides with itself.
            if not await self._is_stored(document):
                raise

    async def _is_stored(self, document: Document) -> bool:
        own = {"_id": document["_id"], "write": document["write"]}
        return await self._collection.find_one(own, {"_id": 1}) is not None

    async def newest(self, session: str) -> NewestTurn | None:
        """Return where the newest turn stands, by majority read; none where there is none."""
        newest = await self._collection.find_one(
            {"session": session},
            {"_id": 0, "seq": 1, "effective_at": 1},
            sort=[("seq", DESCENDING)],
        )
        return None if newest is None else NewestTurn(**newest)

    async def by_idempotency_key(self, session: str, key: str) -> tuple[Turn, str] | None:
        """Return the turn recorded under a key, by majority read, and the hash of its body."""
        document = await self._collection.find_one({"idempotency": _idempotency(session, key)})
        return None if document is None else (turn_from(document), document["body"])

    async def read(self, session: str, first_seq: int, last_seq: int) -> list[Turn]:
        """Return the turns of a range, by seq; missing ones are missing."""
        cursor = self._collection.find(
            {"session": session, "seq": {"$gte": first_seq, "$lte": last_seq}},
            sort=[("seq", ASCENDING)],
        )
        return [turn_from(document) async for document in cursor]

    async def open_turns(self, session: str) -> list[OpenTurn]:
        """Return the open turns of a session, by seq."""
        cursor = self._collection.find({"open": session}, _OPEN_TURN, sort=[("seq", ASCENDING)])
        return [
            OpenTurn(
                seq=document["seq"],
                tokens=document["tokens"],
                recorded_at=document["recorded_at"],
                closes=bool(document.get("closes")),
                project_id=document["identity"]["project_id"],
            )
            async for document in cursor
        ]

    async def mark_closing(self, session: str, seq: int) -> None:
        """Mark a turn as the last of what was said: if it is open, all that is open is due."""
        await self._collection.update_one(
            {"session": session, "seq": seq}, {"$set": {"closes": True}}
        )

    async def clear_open(self, session: str, first_seq: int, last_seq: int) -> int:
        """Clear the mark of a range; return how many had it. Idempotent."""
        result = await self._collection.update_many(
            {"open": session, "seq": {"$gte": first_seq, "$lte": last_seq}},
            {"$unset": {"open": ""}},
        )
        return result.modified_count

    async def open_sessions(self) -> list[OpenSession]:
        """Return every session that has open turns."""
        cursor = await self._collection.aggregate(_BY_SESSION)
        return [
            OpenSession(
                session=group.pop("_id"), is_closed=bool(group.pop("closes", False)), **group
            )
            async for group in cursor
        ]


def document_of(turn: Turn, idempotency: IdempotencyKey | None) -> Document:
    """Return the document that stores a turn as open; `write` is this call's alone."""
    document = turn.model_dump(exclude_none=True)
    document["write"] = ObjectId()
    document["_id"] = document.pop("turn_id")
    document["role"] = turn.role.value
    document["open"] = turn.session
    if idempotency is not None:
        document["idempotency"] = _idempotency(turn.session, idempotency.key)
        document["body"] = idempotency.body
    return document


def _pending(turn: Turn) -> Document:
    """Return where an embedding begins. Its times are this process's: its clock is near enough."""
    recorded_ms = int(turn.recorded_at.timestamp() * 1000)
    return {
        "state": EmbeddingState.PENDING.value,
        "since_ms": recorded_ms,
        "due_ms": recorded_ms,
    }


def _idempotency(session: str, key: str) -> str:
    """Return the key within its session; session keys are all of one length."""
    return f"{session}:{key}"


def turn_from(document: Document) -> Turn:
    """Return the turn that a document stores."""
    fields: Document = {name: value for name, value in document.items() if name not in _BOOKKEEPING}
    return Turn.model_validate({**fields, "turn_id": document["_id"]})
