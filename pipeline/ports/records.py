"""What the steps need of the stores of assertions and records."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from schemas.assertion import Assertion
from schemas.identity import ReadScope, Scope
from schemas.memory import RecordKind
from schemas.record import Record
from schemas.tombstone import Bar


class Assertions(Protocol):
    """The assertions."""

    async def write(self, assertions: Sequence[Assertion]) -> None:
        """Store those that are new; not atomic over several. Idempotent by their ids."""
        ...

    async def of_slot(self, slot: str) -> list[Assertion]:
        """Return all assertions of a slot, from the primary."""
        ...

    async def of_extraction(self, extraction_id: str) -> list[Assertion]:
        """Return all assertions of a run."""
        ...

    async def remove(self, assertion_ids: Sequence[str]) -> None:
        """Remove them. Idempotent."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotKey:
    """A slot in plain words, needed to make its record where there is none."""

    slot: str
    scope: Scope
    kind: RecordKind
    key: str
    subject: str


class Records(Protocol):
    """The records, and which of them are dirty or unannounced."""

    async def mark_dirty(self, slots: Sequence[SlotKey]) -> None:
        """Raise each `rev` and mark it to be folded; makes shells where there is none.

        Because the mark raises `rev`, a fold that read before it can't store after it. Each slot
        at most once; not atomic over several.
        """
        ...

    async def get(self, slot: str) -> Record | None:
        """Return one, from the primary."""
        ...

    async def store(self, record: Record, *, read_rev: int, changed: bool, ends_mark: bool) -> bool:
        """Store a fold where `rev` is still `read_rev`, and raise it; false if somebody was faster.

        Args:
            record: Its key, subject and runs are stored; what else it has belongs to its slot.
            read_rev: What `rev` was before the assertions were read.
            changed: Whether it is to be announced and embedded anew.
            ends_mark: Whether the caller marked the slot and has done what it marked it for. The
                slot is clean with the last mark ended. Marks so old that their writers must be
                dead are ended by any fold.
        """
        ...

    async def bar(self, record_id: str, bar: Bar, *, read_rev: int) -> bool:
        """Store what its slot may not hold any more where `rev` is still `read_rev`; mark it.

        As a mark does, it raises `rev`: a fold that read before it can't store after it.
        """
        ...

    async def bars(self, slots: Sequence[str]) -> dict[str, Bar]:
        """Return what slots may not hold, of those of which anything was forgotten."""
        ...

    async def dirty(self, limit: int) -> list[str]:
        """Return marked slots, the oldest marks first."""
        ...

    async def unannounced(self, limit: int) -> list[Record]:
        """Return changed records whose event is not acknowledged yet, the oldest first."""
        ...

    async def mark_announced(self, record_id: str, rev: int) -> None:
        """The event of this revision is acknowledged; a later change stays unannounced."""
        ...

    def of_scope(
        self, scope: ReadScope, *, kinds: Sequence[RecordKind] = ()
    ) -> AsyncIterator[Record]:
        """Yield the records of a scope, shells too, of all kinds where none is named.

        Each field of the scope that is given is an equality in the query. Agent and session are
        those of any run.
        """
        ...

    async def of_memory(self, memory_id: str, scope: ReadScope) -> list[Record]:
        """Return the records of a scope that have a memory's runs; from the primary.

        They are several where the memory was given another reach.
        """
        ...
