"""What the steps need of the store of dead letters."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from schemas.failure import FailureClass, Letter, LetterState
from schemas.topics import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterQuery:
    """Which letters: what is given must be so, what is none may be anything."""

    letter_id: str | None = None
    state: LetterState | None = None
    stage: Stage | None = None
    failure_class: FailureClass | None = None
    reason: str | None = None
    fingerprint: str | None = None
    disposition: Literal["content", "exhausted"] | None = None
    project_id: str | None = None
    projects: tuple[str | None, ...] | None = None
    """It is of one of these, where none is "of no project"."""
    session: str | None = None
    """The opaque key of one."""
    model: str | None = None
    topic: str | None = None
    """Where the message lay that failed."""
    since: datetime | None = None
    """It died first then or later."""
    until: datetime | None = None
    """It died first before then."""
    deaths: int | None = None
    """It died at least so often."""


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
