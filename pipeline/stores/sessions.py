"""What turns can't say of a session, on MongoDB."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from pymongo import ASCENDING
from pymongo.errors import DuplicateKeyError

from pipeline.ids import OpaqueIds
from pipeline.ports.turns import SessionState
from pipeline.stores.mongo import Collection, Database, Document
from schemas.identity import SessionIdentity

FIRST_INCARNATION: Final = 1


class MongoSessions:
    """Port `Sessions` on the collection `sessions`; `_id` outlives every incarnation."""

    def __init__(self, database: Database, ids: OpaqueIds) -> None:
        self._collection: Collection = database["sessions"]
        self._ids = ids

    async def open(self, identity: SessionIdentity) -> SessionState:
        """Return the session, made where it is new. Idempotent; several commands."""
        root = self._ids.session_root(identity)
        while True:
            document = await self._collection.find_one({"_id": root})
            if document is not None:
                return _state(document)
            made = self._new(root, identity)
            try:
                await self._collection.insert_one(made)
            except DuplicateKeyError:
                continue
            return replace(_state(made), is_new=True)

    async def by_key(self, session: str) -> SessionState | None:
        """Return the session of an opaque key, if it is the present incarnation."""
        document = await self._collection.find_one({"session": session})
        return None if document is None else _state(document)

    async def matching(
        self,
        project_id: str | None,
        *,
        org_id: str | None = None,
        user_id: str | None = None,
        session_id: str | None = None,
        limit: int,
    ) -> list[SessionState]:
        """Return sessions of whom is named, by their ids; what is none may be anybody's."""
        named = {
            "project_id": project_id,
            "org_id": org_id,
            "user_id": user_id,
            "session_id": session_id,
        }
        condition: Document = {
            f"identity.{name}": {"$eq": value} for name, value in named.items() if value is not None
        }
        order = [("identity.user_id", ASCENDING), ("identity.session_id", ASCENDING)]
        cursor = self._collection.find(condition, sort=order, limit=limit)
        return [_state(document) async for document in cursor]

    async def note_gap(self, session: str, seqs: Sequence[int], now_ms: int) -> None:
        """Remember since when turns are missing; the first note of each stands. Idempotent."""
        await self._collection.update_one(
            {"session": session}, {"$min": {f"gaps.{seq}": now_ms for seq in seqs}}
        )

    def _new(self, root: str, identity: SessionIdentity) -> Document:
        return {
            "_id": root,
            "identity": identity.model_dump(exclude_none=True),
            "session": self._ids.session(identity, FIRST_INCARNATION),
            "incarnation": FIRST_INCARNATION,
        }


def _state(document: Document) -> SessionState:
    gaps: dict[str, Any] = document.get("gaps", {})
    return SessionState(
        identity=SessionIdentity.model_validate(document["identity"]),
        session=document["session"],
        incarnation=document["incarnation"],
        gaps={int(seq): int(since_ms) for seq, since_ms in gaps.items()},
    )
