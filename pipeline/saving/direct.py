"""What an agent saves, corrects or ends itself: an assertion like any other, through the fold.

Its source position is the server's time, and never before that of what it was saved over: an agent
that saves twice means the second.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from pydantic import JsonValue
from pymongo.errors import DocumentTooLarge

from pipeline.errors import UnknownMemoryError
from pipeline.folding.refolding import Folder
from pipeline.folding.slots import slot_key
from pipeline.forgetting.barring import is_barred
from pipeline.ids import OpaqueIds
from pipeline.ports.clocks import ServerTime
from pipeline.ports.records import Records
from pipeline.reading.memories import Memory, memories_of
from schemas.assertion import Assertion, DirectSave, RestsOn, SourcePosition
from schemas.identity import ReadScope, Scope
from schemas.memory import Content, CustomKind, Kind, RecordKind, Relation
from schemas.record import Record, RunState

_SUBJECT: Final = "user"
_EACH_ITS_OWN: Final = (Kind.EPISODIC, CustomKind.CUSTOM)
"""Kinds of which no save is over another."""
_TICK: Final = timedelta(milliseconds=1)
"""The smallest step between two moments that MongoDB keeps apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """Who saves, as far as it is known; provenance only, it scopes nothing."""

    source: str = "agent"
    agent_id: str | None = None
    session_id: str | None = None
    execution_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What is to be a memory."""

    scope: Scope
    kind: RecordKind
    content: Content
    fields: dict[str, JsonValue] | None = None
    metadata: dict[str, JsonValue] | None = None


class Saver:
    """Saves, corrects and ends memories.

    Concurrency: of two saves at once the later by the server's time stands; within a millisecond,
    one of them. What Kafka is told of it, the waker's sweep tells.
    """

    def __init__(
        self,
        *,
        folder: Folder,
        records: Records,
        ids: OpaqueIds,
        server_time: ServerTime,
        new_name: Callable[[], str],
    ) -> None:
        self._folder = folder
        self._records = records
        self._ids = ids
        self._server_time = server_time
        self._new_name = new_name
        """Makes a name that no other save ever has."""

    async def save(self, draft: Draft, author: Author, *, upsert: bool) -> Memory:
        """Save a memory; return it as it reads now.

        With `upsert` it replaces what is current in its slot, and goes by its id if that was one.
        Not idempotent: saved twice it was said twice.

        Raises:
            pymongo.errors.PyMongoError: It may not be saved.
        """
        while True:
            name = self._ids.direct_save(self._new_name())
            slot, key = self._slot(draft, name)
            before = await self._records.get(slot)
            current = [] if before is None else memories_of([before])
            memory_id = current[0].memory_id if upsert and len(current) == 1 else name
            saved = self._assertion(
                draft,
                author,
                name=name,
                key=key,
                memory_id=memory_id,
                relation=Relation.REPLACES if upsert else Relation.ADDS,
                at=await self._moment(before),
            )
            memory = await self._asserted(saved)
            if memory is not None:
                return memory
            # Something of the slot was forgotten at the same moment: this is said after that.

    async def find(
        self, memory_id: str, scope: ReadScope, states: tuple[RunState, ...] = (RunState.CURRENT,)
    ) -> Memory:
        """Return a memory of a scope in one of these states, its latest content.

        Raises:
            UnknownMemoryError: There is none.
        """
        records = await self._records.of_memory(memory_id, scope)
        found = [one for one in memories_of(records, states) if one.memory_id == memory_id]
        if not found:
            raise UnknownMemoryError(memory_id)
        return max(found, key=lambda one: one.last_said)

    async def correct(self, memory: Memory, draft: Draft, author: Author) -> Memory:
        """Put a draft in the place of a memory, whose id it keeps; return it as it reads now.

        A draft of another scope or slot ends the memory there and begins it here.

        Raises:
            UnknownMemoryError: It was forgotten meanwhile.
            pymongo.errors.PyMongoError: It may not be corrected, or half: then do it again.
        """
        while True:
            name = self._ids.direct_save(self._new_name())
            slot, key = self._slot(draft, name, memory)
            is_moved = slot != memory.record.record_id
            there = await self._records.get(slot)
            at = await self._moment(memory.record, there)
            saved = self._assertion(
                draft,
                author,
                name=name,
                key=key,
                memory_id=memory.memory_id,
                relation=Relation.CORRECTS,
                target=memory.memory_id,
                at=at,
                rests_on=None if is_moved else _last_of(memory),
            )
            result = await self._asserted(saved)
            if result is not None:
                break
            await self._still_there(memory)
        if is_moved and not await self._end(memory, author, at):
            await self._folder.remove([saved])
            raise UnknownMemoryError(memory.memory_id)
        return result

    async def end(self, memory: Memory, author: Author) -> None:
        """End a memory: it is no longer read, and stays in its history. Idempotent.

        One that is forgotten meanwhile is ended by that.

        Raises:
            pymongo.errors.PyMongoError: It may not be ended.
        """
        await self._end(memory, author, await self._moment(memory.record))

    async def _end(self, memory: Memory, author: Author, at: datetime) -> bool:
        """End it; false if it was forgotten meanwhile."""
        record, run = memory.record, memory.run
        draft = Draft(
            scope=record.scope,
            kind=record.kind,
            content=run.content,
            fields=run.fields,
            metadata=run.metadata,
        )
        ended = self._assertion(
            draft,
            author,
            name=self._ids.direct_save(self._new_name()),
            key=record.key,
            memory_id=memory.memory_id,
            relation=Relation.ENDED,
            target=memory.memory_id,
            at=at,
            rests_on=_last_of(memory),
        )
        return await self._stands(ended) is not None

    async def _still_there(self, memory: Memory) -> None:
        """Raise where what a memory said when it was found is in its record no more."""
        record = await self._records.get(memory.record.record_id)
        held = () if record is None else record.runs
        if all(memory.run.assertions[-1] not in run.assertions for run in held):
            raise UnknownMemoryError(memory.memory_id)

    async def _asserted(self, assertion: Assertion) -> Memory | None:
        """Assert it and return it as it reads; none if its slot may not hold it."""
        record = await self._stands(assertion)
        if record is None:
            return None
        for memory in memories_of([record], tuple(RunState)):
            if assertion.assertion_id in memory.run.assertions:
                return memory
        raise UnknownMemoryError(assertion.assertion_id)

    async def _stands(self, assertion: Assertion) -> Record | None:
        """Assert it and return its record; none, with nothing left, if that may not hold it."""
        try:
            await self._folder.assert_all([assertion])
        except DocumentTooLarge:
            # Who is told that it was not saved must not read it once there is room.
            await self._folder.remove([assertion])
            raise
        record = await self._records.get(assertion.slot)
        if record is None or is_barred(record.bar, assertion):
            await self._folder.remove([assertion])
            return None
        return record

    def _slot(self, draft: Draft, name: str, memory: Memory | None = None) -> tuple[str, str]:
        """Return id and key of a draft's slot; some kinds have one for each save."""
        if draft.kind in _EACH_ITS_OWN:
            key = slot_key(draft.kind, _SUBJECT, draft.content, name)
            key = key if memory is None else memory.record.key
        else:
            subject = _SUBJECT if memory is None else memory.record.subject
            key = slot_key(draft.kind, subject, draft.content, None)
        return self._ids.slot(draft.scope, draft.kind, key), key

    async def _moment(self, *records: Record | None) -> datetime:
        """Return the server's time, or just after all that the records hold and may not hold."""
        now = datetime.fromtimestamp(await self._server_time.now_ms() / 1000, UTC)
        held = [run.last_at for record in records if record for run in record.runs]
        closed = [
            run.closed_at for record in records if record for run in record.runs if run.closed_at
        ]
        barred = [record.bar.as_of for record in records if record and record.bar]
        return max([now, *(moment + _TICK for moment in (*held, *closed, *barred))])

    def _assertion(
        self,
        draft: Draft,
        author: Author,
        *,
        name: str,
        key: str,
        memory_id: str,
        relation: Relation,
        at: datetime,
        target: str | None = None,
        rests_on: RestsOn | None = None,
    ) -> Assertion:
        return Assertion(
            assertion_id=name,
            slot=self._ids.slot(draft.scope, draft.kind, key),
            scope=draft.scope,
            kind=draft.kind,
            key=key,
            subject=_SUBJECT,
            content=draft.content,
            relation=relation,
            holds_now=True,
            evidence=None,
            position=SourcePosition(effective_at=at, session="", seq=0, item=0),
            extraction_id=None,
            snapshot_id=None,
            run=None,
            part=None,
            session=None,
            session_id=author.session_id,
            agent_id=author.agent_id,
            saved=DirectSave(
                memory_id=memory_id,
                target=target,
                source=author.source,
                metadata=draft.metadata,
                fields=draft.fields,
                execution_id=author.execution_id,
                rests_on=rests_on,
            ),
        )


def _last_of(memory: Memory) -> RestsOn:
    return RestsOn(assertion_id=memory.run.assertions[-1], said_at=memory.last_said)
