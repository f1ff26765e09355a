"""What an audit reads, from MongoDB; nothing is written."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from pymongo import ASCENDING

from pipeline.auditing import EmbeddingView, ListedSnapshot, SessionView, TurnMark
from pipeline.extracting.planning import extraction_id
from pipeline.ports.extractions import Extractions
from pipeline.ports.records import Assertions, Records
from pipeline.ports.turns import Sessions, Turns
from pipeline.stores.embeddings import TURN_PREFIX, MongoEmbeddingLedger, embedded_turn
from pipeline.stores.embeds_turns import MongoEmbedsTurns
from pipeline.stores.mongo import Database, Document
from pipeline.stores.snapshots import snapshot_from
from pipeline.stores.tombstones import MongoTombstones
from schemas.assertion import Assertion
from schemas.embedding import EmbeddingState
from schemas.record import Record
from schemas.tombstone import Bar
from schemas.turn import Turn


class MongoAuditReads:
    """Port `AuditReads`."""

    def __init__(
        self,
        database: Database,
        *,
        sessions: Sessions,
        turns: Turns,
        extractions: Extractions,
        assertions: Assertions,
        records: Records,
    ) -> None:
        self._database = database
        self._sessions = sessions
        self._turns = turns
        self._extractions = extractions
        self._assertions = assertions
        self._records = records
        self._embeds_turns = MongoEmbedsTurns(database)
        self._embeddings = MongoEmbeddingLedger(database, self._embeds_turns)
        self._tombstones = MongoTombstones(database)

    async def sessions(self) -> AsyncIterator[str]:
        """Yield the key of every session that has turns."""
        async for session in self._grouped("turns", "session"):
            yield session

    async def session(self, session: str) -> SessionView:
        """Return a session as it stands; the snapshots are read before the turns.

        So a cut that happens between the two shows as turns that are open still.
        """
        state = await self._sessions.by_key(session)
        snapshots = [
            ListedSnapshot(snapshot=snapshot_from(document), is_listed="wake_at_ms" in document)
            async for document in self._database["snapshots"]
            .find({"session": session})
            .sort("first_seq", ASCENDING)
        ]
        extractions = {
            listed.snapshot.snapshot_id: extraction
            for listed in snapshots
            if (
                extraction := await self._extractions.get(
                    extraction_id(listed.snapshot.snapshot_id, listed.snapshot.active_run)
                )
            )
        }
        marks = [
            TurnMark(seq=document["seq"], is_open="open" in document)
            async for document in self._database["turns"]
            .find({"session": session}, {"seq": 1, "open": 1})
            .sort("seq", ASCENDING)
        ]
        return SessionView(
            session=session,
            turns=marks,
            snapshots=snapshots,
            extractions=extractions,
            gaps=frozenset(state.gaps if state else ()),
        )

    async def turns(self, session: str, first_seq: int, last_seq: int) -> list[Turn]:
        """Return the turns of a range."""
        return await self._turns.read(session, first_seq, last_seq)

    async def assertions_of(self, extraction_id: str) -> list[Assertion]:
        """Return the assertions of a run."""
        return await self._assertions.of_extraction(extraction_id)

    async def slots(self) -> AsyncIterator[str]:
        """Yield every slot that has a record, then those that have assertions only."""
        known: set[str] = set()
        async for document in self._database["records"].find({}, {"_id": 1}):
            known.add(document["_id"])
            yield document["_id"]
        async for slot in self._grouped("assertions", "slot"):
            if slot not in known:
                yield slot

    async def slot(self, slot: str) -> tuple[Record | None, list[Assertion]]:
        """Return its record and its assertions."""
        return await self._records.get(slot), await self._assertions.of_slot(slot)

    async def bars(self, slots: Sequence[str]) -> dict[str, Bar]:
        """Return what slots may not hold, of those of which anything was forgotten."""
        return await self._records.bars(slots)

    async def embedding(self, owner_id: str) -> EmbeddingView:
        """Return how a record or turn is embedded."""
        vectors: dict[str, set[str]] = {}
        wanted = {"model": True, "content_hash": True}
        async for document in self._database["vectors"].find({"owner": owner_id}, wanted):
            vectors.setdefault(document["model"], set()).add(document["content_hash"])
        by_model = {model: frozenset(hashes) for model, hashes in vectors.items()}
        if not owner_id.startswith(TURN_PREFIX):
            found = await self._embeddings.get(owner_id)
            return EmbeddingView(found=found, vectors=by_model if found else {})
        turn = await self._database["turns"].find_one({"_id": owner_id})
        if turn is None:
            return EmbeddingView(found=None, vectors=by_model)
        wanting = await self._embeds_turns.that_embed_turns()
        return EmbeddingView(
            found=embedded_turn(turn),
            vectors=by_model,
            is_wanted=turn["identity"]["project_id"] in wanting,
        )

    async def embedded_turns(self) -> AsyncIterator[str]:
        """Yield the id of every turn that has an embedding, then those that only have vectors."""
        known: set[str] = set()
        states = {"$in": [state.value for state in EmbeddingState]}
        async for document in self._database["turns"].find({"embedding.state": states}, {"_id": 1}):
            known.add(document["_id"])
            yield document["_id"]
        async for owner in self._grouped("vectors", "owner"):
            if owner.startswith(TURN_PREFIX) and owner not in known:
                yield owner

    async def is_forgetting(self, slot: str) -> bool:
        """Return whether something of a slot is being forgotten and may not be removed yet."""
        return await self._tombstones.is_forgetting(slot)

    async def _grouped(self, collection: str, field: str) -> AsyncIterator[str]:
        stages: list[Document] = [{"$group": {"_id": f"${field}"}}, {"$sort": {"_id": 1}}]
        cursor: Any = await self._database[collection].aggregate(stages, allowDiskUse=True)
        async for document in cursor:
            yield document["_id"]
