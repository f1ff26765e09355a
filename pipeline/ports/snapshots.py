"""What the steps need of the store of snapshots."""

from collections.abc import Sequence
from typing import Protocol

from schemas.job import Selection
from schemas.snapshot import Snapshot


class Snapshots(Protocol):
    """The snapshots, and which of them are unsettled."""

    async def insert(self, snapshot: Snapshot, *, wake_at_ms: int) -> None:
        """Store it as unsettled.

        Raises:
            pymongo.errors.DuplicateKeyError: Another cutter made one that starts at the same turn.
        """
        ...

    async def last(self, session: str) -> Snapshot | None:
        """Return the one that ends a session's tiling so far."""
        ...

    async def covering(self, session: str, seq: int) -> list[Snapshot]:
        """Return those that end at `seq` or later, in the order of the session."""
        ...

    async def get(self, snapshot_id: str) -> Snapshot | None:
        """Return one."""
        ...

    async def settle(self, snapshot_id: str, *, run: int, summary: str | None) -> None:
        """Mark it settled and keep its summary, if `run` is its active one. Idempotent."""
        ...

    async def unsettled_due(self, now_ms: int, limit: int) -> list[Snapshot]:
        """Return unsettled ones whose `wake_at` is at or before now, oldest first."""
        ...

    async def activate(self, snapshot_id: str, *, run: int, replacing: int) -> bool:
        """Let another run count, where the one to be replaced does; return whether it counts now.

        Idempotent. Settled or not, it stays.
        """
        ...

    async def selected(
        self,
        selection: Selection,
        *,
        after: str | None,
        limit: int,
        among: Sequence[str] | None = None,
    ) -> list[Snapshot]:
        """Return settled snapshots by their ids, by what a selection says of themselves.

        Args:
            selection: Whose they are, and when they were cut; the rest of it is not looked at.
            after: Only those beyond this id.
            limit: So many at most.
            among: Only these, whatever `after` is; none: any.
        """
        ...

    async def reopen(self, snapshot_id: str, *, run: int, wake_at_ms: int) -> None:
        """Mark a settled one unsettled, if `run` is its active one. Idempotent."""
        ...

    async def wake_later(self, snapshot_id: str, wake_at_ms: int) -> None:
        """Look at an unsettled one again at `wake_at_ms`."""
        ...
