"""A searcher over a real database, with what saves, forgets and embeds beside it."""

from collections.abc import AsyncIterator, Collection, Sequence
from itertools import count
from typing import Any

from pymongo.errors import AutoReconnect

from consumers.wiring import Installation, wire
from pipeline.embedding.ports import Purpose, Refused, StoredVector, content_hash
from pipeline.ports.clocks import ServerTime
from pipeline.reading.filters import Condition
from pipeline.reading.index import Mode
from pipeline.reading.memories import Memory, memories_of
from pipeline.reading.ports import Version
from pipeline.reading.searching import Found, Searcher
from pipeline.saving.direct import Author, Draft, Saver
from pipeline.settings import Settings
from pipeline.stores.mongo import SERVER_NOW_MS, Database
from pipeline.stores.record_reads import MongoRecordReads
from pipeline.stores.turn_reads import MongoTurnReads
from pipeline.stores.vectors import MongoVectors
from schemas.identity import ReadScope, Scope, Visibility
from schemas.memory import Content, Kind, RecordKind, SemanticContent
from schemas.record import Record, RunState
from tests.embedding import HashedEmbedder
from tests.integration.serving import Silent

PROJECT = "p"
MARAS = ReadScope(project_id=PROJECT, user_id="mara")
MODES = tuple(Mode)
_NAMES = count()


class CountedReads(MongoRecordReads):
    """Counts what is read; sees no change while it is blind, and nothing while it is down."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.whole = 0
        self.changes = 0
        self.taken: list[int] = []
        self.is_blind = False
        self.is_down = False

    async def all_of(self, scope: ReadScope, kinds: Sequence[RecordKind]) -> AsyncIterator[Record]:
        self.whole += 1
        self._answers()
        async for record in super().all_of(scope, kinds):
            yield record

    async def changed(self, scope: ReadScope, since_ms: int) -> dict[str, Version]:
        self.changes += 1
        self._answers()
        return {} if self.is_blind else await super().changed(scope, since_ms)

    async def of_ids(
        self,
        ids: Collection[str],
        scope: ReadScope,
        kinds: Sequence[RecordKind],
        condition: Condition | None = None,
    ) -> list[Record]:
        self.taken.append(len(ids))
        return await super().of_ids(ids, scope, kinds, condition)

    def _answers(self) -> None:
        if self.is_down:
            raise AutoReconnect


class World:
    """One process of an installation. The embedder refuses texts that it is told to."""

    def __init__(
        self, parts: Installation, *, embedder: HashedEmbedder | None, **options: Any
    ) -> None:
        self.parts = parts
        self.embedder = embedder
        self.vectors = MongoVectors(parts.database)
        self.reads = CountedReads(parts.database)
        self.saver = Saver(
            folder=parts.folder,
            records=parts.records,
            ids=parts.ids,
            server_time=parts.server_time,
            new_name=lambda: f"save {next(_NAMES)}",
        )
        self.searcher = Searcher(
            records=self.reads,
            turns=MongoTurnReads(parts.database),
            server_time=parts.server_time,
            command_timeout=parts.settings.mongo.timeout,
            embedder=embedder,
            vectors=self.vectors,
            **options,
        )

    async def save(
        self,
        text: str,
        *,
        label: str | None = None,
        content: Content | None = None,
        kind: Kind = Kind.SEMANTIC,
        user: str = "mara",
        project: str = PROJECT,
        visibility: Visibility = Visibility.PRIVATE,
        metadata: dict[str, Any] | None = None,
        fields: dict[str, Any] | None = None,
        agent: str | None = None,
        session: str | None = None,
        upsert: bool = True,
    ) -> Memory:
        """Save a memory; a label that is saved again replaces."""
        name = label or text
        draft = Draft(
            scope=Scope(project_id=project, owner=user, visibility=visibility),
            kind=kind,
            content=content or SemanticContent(attribute=name[:200], label=name[:200], text=text),
            metadata=metadata,
            fields=fields,
        )
        author = Author(agent_id=agent, session_id=session)
        return await self.saver.save(draft, author, upsert=upsert)

    async def embed(self) -> None:
        """Do what the embedding consumer does, of every record there is."""
        if self.embedder is None:
            return
        records = [
            record async for record in self.parts.records.of_scope(ReadScope(project_id=PROJECT))
        ]
        for record in records:
            texts = [memory.text for memory in memories_of([record], tuple(RunState))]
            found = await self.embedder.embed(texts, Purpose.PASSAGE)
            stored = [
                StoredVector(
                    owner=record.record_id,
                    model=self.embedder.model,
                    content_hash=content_hash(text),
                    vector=vector,
                    scope=record.scope,
                    kind=record.kind.value,
                )
                for text, vector in zip(texts, found, strict=True)
                if not isinstance(vector, Refused)
            ]
            await self.vectors.put(stored)
            await self.parts.database["records"].update_one(
                {"_id": record.record_id}, [{"$set": {"changed_ms": SERVER_NOW_MS}}]
            )

    async def search(
        self,
        query: str,
        mode: Mode = Mode.TEXT,
        *,
        scope: ReadScope = MARAS,
        kinds: Sequence[RecordKind] = (Kind.SEMANTIC,),
        limit: int = 10,
        **options: Any,
    ) -> Found[Memory]:
        """Search memories."""
        moment = options.pop("moment", None)
        asked = await self.searcher.understood(query, {mode}, moment=moment)
        return await self.searcher.memories(scope, kinds, asked, mode=mode, limit=limit, **options)

    async def find(self, query: str, mode: Mode = Mode.TEXT, **options: Any) -> list[str]:
        """Return the texts of what is found, best first."""
        found = await self.search(query, mode, **options)
        return [hit.item.text for hit in found.hits]


async def world_over(
    db: Database,
    *,
    refusing: Collection[str] = (),
    embedder: HashedEmbedder | None = None,
    is_embedded: bool = True,
    server_time: ServerTime | None = None,
    **options: Any,
) -> World:
    """Return a process over a database; its caches are its own."""
    parts = await wire(Settings(), db, Silent(), server_time=server_time)
    made = embedder or HashedEmbedder(refusing=refusing)
    return World(parts, embedder=made if is_embedded else None, **options)
