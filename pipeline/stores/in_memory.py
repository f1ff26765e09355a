"""Twins of stores, in memory: the same contract without a server.

Each method runs without giving way, so it is as atomic as the one command it stands for.
"""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from pipeline.embedding.ledger import again
from pipeline.embedding.ports import Embedded, StoredVector, Vector
from pipeline.ports.records import SlotKey
from pipeline.stores.records import MARK_GRACE
from schemas.assertion import Assertion
from schemas.embedding import Embedding, EmbeddingState
from schemas.identity import ReadScope
from schemas.memory import RecordKind
from schemas.record import Record
from schemas.tombstone import Bar, Tombstone, TombstoneState
from schemas.topics import Stage


class MemoryAssertions:
    """Port `Assertions`."""

    def __init__(self) -> None:
        self._by_id: dict[str, Assertion] = {}

    async def write(self, assertions: Sequence[Assertion]) -> None:
        """Store those that are new. Idempotent by their ids."""
        for assertion in assertions:
            self._by_id.setdefault(assertion.assertion_id, assertion)

    async def of_slot(self, slot: str) -> list[Assertion]:
        """Return all assertions of a slot."""
        return [found for found in self._by_id.values() if found.slot == slot]

    async def of_extraction(self, extraction_id: str) -> list[Assertion]:
        """Return all assertions of a run."""
        return [found for found in self._by_id.values() if found.extraction_id == extraction_id]

    async def remove(self, assertion_ids: Sequence[str]) -> None:
        """Remove them. Idempotent."""
        for assertion_id in assertion_ids:
            self._by_id.pop(assertion_id, None)


@dataclass(slots=True, kw_only=True)
class _Row:
    """What `pipeline.stores.records` keeps in a document."""

    record: Record
    writers: int = 0
    dirty: int | None = None
    unannounced: int | None = None
    changed_rev: int = 0
    embedding: Embedding | None = None


class MemoryRecords:
    """Port `Records`.

    Args:
        now_ms: The server's time in epoch milliseconds.
        grace: How old a mark must be for any fold to end it.
    """

    def __init__(self, now_ms: Callable[[], int], *, grace: timedelta = MARK_GRACE) -> None:
        self._now_ms = now_ms
        self._grace_ms = int(grace.total_seconds() * 1000)
        self._rows: dict[str, _Row] = {}

    async def mark_dirty(self, slots: Sequence[SlotKey]) -> None:
        """Raise each `rev` and mark it to be folded; makes shells where there is none."""
        for slot in slots:
            row = self._rows.setdefault(slot.slot, _Row(record=_shell(slot)))
            words = {} if row.record.key else {"key": slot.key, "subject": slot.subject}
            self._mark(row, words)

    def _mark(self, row: _Row, changes: Mapping[str, object]) -> None:
        row.record = row.record.model_copy(update={**changes, "rev": row.record.rev + 1})
        row.writers += 1
        row.dirty = self._now_ms()

    async def get(self, slot: str) -> Record | None:
        """Return one."""
        row = self._rows.get(slot)
        return None if row is None else row.record

    async def store(self, record: Record, *, read_rev: int, changed: bool, ends_mark: bool) -> bool:
        """Store a fold where `rev` is still `read_rev`, and raise it."""
        row = self._rows.get(record.record_id)
        if row is None or row.record.rev != read_rev:
            return False
        row.record = row.record.model_copy(
            update={
                "key": record.key,
                "subject": record.subject,
                "runs": record.runs,
                "rev": read_rev + 1,
            }
        )
        row.writers -= ends_mark
        is_old = row.dirty is not None and row.dirty <= self._now_ms() - self._grace_ms
        if row.writers <= 0 or is_old:
            row.writers, row.dirty = 0, None
        if changed:
            row.changed_rev = read_rev + 1
            before = row.embedding or Embedding(state=EmbeddingState.PENDING)
            row.embedding = again(before, now_ms=self._now_ms())
            if row.unannounced is None:
                row.unannounced = self._now_ms()
        return True

    async def bar(self, record_id: str, bar: Bar, *, read_rev: int) -> bool:
        """Store what its slot may not hold, where `rev` is still `read_rev`; raise and mark it."""
        row = self._rows.get(record_id)
        if row is None or row.record.rev != read_rev:
            return False
        self._mark(row, {"bar": bar})
        return True

    async def bars(self, slots: Sequence[str]) -> dict[str, Bar]:
        """Return what slots may not hold, of those of which anything was forgotten."""
        rows = {slot: self._rows[slot].record.bar for slot in slots if slot in self._rows}
        return {slot: bar for slot, bar in rows.items() if bar is not None}

    async def dirty(self, limit: int) -> list[str]:
        """Return marked slots, the oldest marks first."""
        marks = [(row.dirty, slot) for slot, row in self._rows.items() if row.dirty is not None]
        return [slot for _, slot in sorted(marks)[:limit]]

    async def unannounced(self, limit: int) -> list[Record]:
        """Return changed records whose event is not acknowledged yet, the oldest first."""
        changes = [
            (row.unannounced, slot)
            for slot, row in self._rows.items()
            if row.unannounced is not None
        ]
        return [self._rows[slot].record for _, slot in sorted(changes)[:limit]]

    async def mark_announced(self, record_id: str, rev: int) -> None:
        """The event of this revision is acknowledged; a later change stays unannounced."""
        row = self._rows.get(record_id)
        if row is not None and row.changed_rev <= rev:
            row.unannounced = None

    async def of_scope(
        self, scope: ReadScope, *, kinds: Sequence[RecordKind] = ()
    ) -> AsyncIterator[Record]:
        """Yield the records of a scope, shells too; each given field is an equality."""
        for record in [row.record for row in self._rows.values()]:
            if _is_within(record, scope) and (not kinds or record.kind in kinds):
                yield record

    async def of_memory(self, memory_id: str, scope: ReadScope) -> list[Record]:
        """Return the records of a scope that have a memory's runs."""
        return [
            row.record
            for row in self._rows.values()
            if any(run.memory_id == memory_id for run in row.record.runs)
            and _is_within(row.record, scope)
        ]

    async def embedded(self, record_id: str) -> Embedded | None:
        """Return a record with how far its embedding is."""
        row = self._rows.get(record_id)
        if row is None or row.embedding is None:
            return None
        return Embedded(owner=row.record, embedding=row.embedding)

    async def swap_embedding(self, record_id: str, before: Embedding, after: Embedding) -> bool:
        """Store a state where the one it was made from still stands."""
        row = self._rows.get(record_id)
        if row is None or row.embedding is None or row.embedding.rev != before.rev:
            return False
        row.embedding = after
        return True

    async def all_embedded(self) -> list[Embedded]:
        """Return all that have an embedding, by id."""
        found = [await self.embedded(record_id) for record_id in sorted(self._rows)]
        return [each for each in found if each is not None]


class MemoryEmbeddingLedger:
    """Port `EmbeddingLedger`: with the records, as it is stored."""

    def __init__(self, records: MemoryRecords) -> None:
        self._records = records

    async def get(self, record_id: str) -> Embedded | None:
        """Return one."""
        return await self._records.embedded(record_id)

    async def swap(self, record_id: str, before: Embedding, after: Embedding) -> bool:
        """Store a state where the one it was made from still stands."""
        return await self._records.swap_embedding(record_id, before, after)

    async def due(self, before_ms: int, limit: int) -> list[Embedded]:
        """Return pending ones that were due before then, the oldest first."""
        due = [
            each
            for each in await self._records.all_embedded()
            if each.embedding.state is EmbeddingState.PENDING and each.embedding.due_ms <= before_ms
        ]
        return sorted(due, key=lambda each: each.embedding.due_ms)[:limit]

    async def after(self, record_id: str, limit: int, *, project_id: str | None) -> list[Embedded]:
        """Return those whose ids follow one, in the order of ids."""
        return [
            each
            for each in await self._records.all_embedded()
            if each.owner_id > record_id and project_id in (None, self._project_of(each))
        ][:limit]

    @staticmethod
    def _project_of(found: Embedded) -> str:
        owner = found.owner
        return (owner.scope if isinstance(owner, Record) else owner.identity).project_id


class MemoryVectors:
    """Port `Vectors`."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, str], Vector] = {}

    async def put(self, vectors: Sequence[StoredVector]) -> None:
        """Store vectors; those that are there are replaced."""
        for one in vectors:
            self._rows[one.owner, one.model, one.content_hash] = one.vector

    async def of_owners(self, model: str, owners: Sequence[str]) -> dict[str, dict[str, Vector]]:
        """Return owner -> content hash -> vector."""
        found: dict[str, dict[str, Vector]] = {}
        for (owner, of, content_hash), vector in self._rows.items():
            if of == model and owner in owners:
                found.setdefault(owner, {})[content_hash] = vector
        return found

    async def hashes_of(self, model: str, owner: str) -> frozenset[str]:
        """Return which texts of an owner have a vector of a model."""
        return frozenset(one for whose, of, one in self._rows if (whose, of) == (owner, model))

    async def keep_only(self, owner: str, hashes: Collection[str]) -> None:
        """Delete an owner's vectors that are of none of these texts."""
        for key in [key for key in self._rows if key[0] == owner and key[2] not in hashes]:
            del self._rows[key]

    async def delete_of(self, owners: Sequence[str]) -> None:
        """Delete whatever owners have, of every model."""
        for key in [key for key in self._rows if key[0] in owners]:
            del self._rows[key]

    async def delete_of_others(self, model: str) -> int:
        """Delete every vector of other models; return how many there were."""
        others = [key for key in self._rows if key[1] != model]
        for key in others:
            del self._rows[key]
        return len(others)

    def stored(self) -> frozenset[tuple[str, str, str]]:
        """Return owner, model and content hash of all that is stored."""
        return frozenset(self._rows)


class MemoryTombstones:
    """Port `Tombstones`."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[Tombstone, int]] = {}

    async def write(self, tombstone: Tombstone, *, due_ms: int) -> None:
        """Store one; it is due from then on. Idempotent by its id."""
        self._rows.setdefault(tombstone.tombstone_id, (tombstone, due_ms))

    async def advance(self, tombstone: Tombstone, state: TombstoneState, *, due_ms: int) -> None:
        """Store how far it is, if it is as it was read; one that is done is never due."""
        stored, _ = self._rows[tombstone.tombstone_id]
        if stored.state is tombstone.state:
            after = stored.model_copy(update={"state": state})
            self._rows[tombstone.tombstone_id] = (after, due_ms)

    async def due(self, now_ms: int, limit: int) -> list[Tombstone]:
        """Return those that are due, the longest waiting first."""
        waiting = [
            (due_ms, tombstone_id)
            for tombstone_id, (tombstone, due_ms) in self._rows.items()
            if tombstone.state is not TombstoneState.DONE and due_ms <= now_ms
        ]
        return [self._rows[tombstone_id][0] for _, tombstone_id in sorted(waiting)[:limit]]


class MemoryDeliveries:
    """Port `Deliveries`."""

    def __init__(self) -> None:
        self._starts: dict[tuple[Stage, str], int] = {}

    async def unended(self, stage: Stage) -> set[str]:
        """Return what was begun at a stage and has no end."""
        return {subject for at, subject in self._starts if at is stage}

    async def starts(self, stage: Stage, subject: str) -> int:
        """Return how many starts in a row have no end."""
        return self._starts.get((stage, subject), 0)

    async def put(self, stage: Stage, subject: str, starts: int) -> None:
        """Say how many starts in a row have no end. Idempotent."""
        self._starts[stage, subject] = starts

    async def remove(self, stage: Stage, subject: str) -> None:
        """It ended. Idempotent."""
        self._starts.pop((stage, subject), None)


def _is_within(record: Record, scope: ReadScope) -> bool:
    has: dict[str, tuple[str | None, ...]] = {
        "project_id": (record.scope.project_id,),
        "org_id": (record.scope.org_id,),
        "user_id": (record.scope.owner,),
        "visibility": (record.scope.visibility,),
        "agent_id": tuple(agent for run in record.runs for agent in run.agents),
        "session_id": tuple(session for run in record.runs for session in run.sessions),
    }
    return all(value is None or value in has[name] for name, value in scope)


def _shell(slot: SlotKey) -> Record:
    return Record(
        record_id=slot.slot,
        scope=slot.scope,
        kind=slot.kind,
        key=slot.key,
        subject=slot.subject,
        runs=(),
        rev=0,
    )
