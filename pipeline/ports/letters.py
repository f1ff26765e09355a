"""What the steps need of the store of dead letters."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from schemas.failure import FailureClass, Letter, LetterQuery, LetterState


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterSummary:
    """What groups of letters are made from; of each the field of `Letter`."""

    letter_id: str
    fingerprint: str
    failure_class: FailureClass
    reason: str
    action: str
    disposition: str
    created_at: datetime
    last_death: datetime


class Letters(Protocol):
    """The dead letters."""

    async def put(self, letter: Letter) -> None:
        """Store a death that is not stored yet, as not on its topic. Idempotent by id and death."""
        ...

    async def get(self, letter_id: str) -> Letter | None:
        """Return one."""
        ...

    async def matching(self, wanted: LetterQuery, limit: int | None = None) -> list[Letter]:
        """Return those that match without key, value and headers, the one that died first last."""
        ...

    async def following(
        self, wanted: LetterQuery, after: tuple[datetime, str] | None, limit: int
    ) -> list[Letter]:
        """Return those that match as `matching` does, the one that died first first.

        Args:
            wanted: Which.
            after: Only those beyond this one: when it died first, and its id.
            limit: So many at most.
        """
        ...

    async def mark(self, letter_id: str, job_id: str | None, *, deaths: int) -> None:
        """Keep which job sends it back, where it is dead and died so often. Idempotent."""
        ...

    async def states_of_job(self, job_id: str) -> Mapping[LetterState, int]:
        """Return how those that a job sent back stand now; one that is dead died again."""
        ...

    async def change(
        self,
        letter_id: str,
        *,
        deaths: int,
        states: Collection[LetterState],
        to: LetterState,
        discarded_for: str | None = None,
    ) -> bool:
        """Change a state, where it died so often and is in one of these; false where it is not."""
        ...

    async def mark_sent(self, letter_id: str) -> None:
        """It is on the dead topic. Idempotent."""
        ...

    async def unsent(self, before_ms: int, limit: int) -> list[Letter]:
        """Return those that are not, though stored before then (server time)."""
        ...

    async def count(self) -> int:
        """Return how many there are."""
        ...
