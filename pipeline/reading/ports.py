"""What reading asks of the database: what changed in a scope, and what of it may be returned."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pipeline.reading.filters import Condition, Filter
from pipeline.reading.wanted import Run
from schemas.identity import ReadScope
from schemas.memory import RecordKind
from schemas.record import Record
from schemas.turn import Turn

Version = tuple[int, int, int]
"""What is another as soon as readers must look at a record again."""


class RecordReads(Protocol):
    """The records, as searches read them: from the primary, by majority."""

    def all_of(self, scope: ReadScope, kinds: Sequence[RecordKind]) -> AsyncIterator[Record]:
        """Yield the records of a scope."""
        ...

    async def changed(self, scope: ReadScope, since_ms: int) -> dict[str, Version]:
        """Return what changed since a moment of server time, with how it stands.

        Only the project and the owner of the scope narrow it.
        """
        ...

    async def of_ids(
        self,
        ids: Collection[str],
        scope: ReadScope,
        kinds: Sequence[RecordKind],
        condition: Condition | None = None,
    ) -> list[Record]:
        """Return those of a scope, in no order; with a condition, those that have a run like it."""
        ...

    def runs_of(
        self, scope: ReadScope, kinds: Sequence[RecordKind], condition: Condition
    ) -> AsyncIterator[tuple[str, Run]]:
        """Yield id and each run of the records of a scope that have a run like the condition.

        Of a run there is what `Wanted.passes` looks at, and its assertions.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowed:
    """The turns of a scope that pass a filter."""

    scope: ReadScope
    """Of one conversation: `session_id` is given."""
    filter: Filter


class TurnReads(Protocol):
    """The turns of conversations, as searches read them: from the primary, by majority."""

    def since(self, scope: ReadScope, known: Mapping[str, int]) -> AsyncIterator[Turn]:
        """Yield the turns of a scope that are not known; of one session in order.

        Args:
            scope: Of one session id: several sessions where it names no user or organization.
            known: Up to which seq each session is known.
        """
        ...

    async def of_ids(self, ids: Collection[str], narrowed: Narrowed) -> list[Turn]:
        """Return those of a scope that pass, in no order."""
        ...

    async def passing(self, narrowed: Narrowed) -> set[str]:
        """Return the ids of all turns of a scope that pass."""
        ...
