"""What selecting snapshots needs from the outside, beside the ports that all steps have."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from schemas.extraction import Outcome
from schemas.job import Lost, Messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """What a run came to."""

    outcome: Outcome | None
    version: str | None


class Outlines(Protocol):
    """The runs of extraction, in outline."""

    async def outlines(self, extraction_ids: Sequence[str]) -> dict[str, Outline]:
        """Return of those runs that there are what they came to, by id."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What messages of a topic are about."""

    snapshot_ids: frozenset[str]
    lost: tuple[Lost, ...]
    """What was asked for and is not there any more."""


class Topics(Protocol):
    """Looks into topics, and leaves no trace: it is in no group and commits nothing."""

    async def read(self, messages: Messages) -> Read:
        """Return what messages are about, as many as there are when it is called.

        Raises:
            JobError: There are no such messages, and can't be.
            BrokerUnavailableError: Kafka did not answer in time.
        """
        ...


class Listings(Protocol):
    """Which snapshots a job is about, where that was found when it was started."""

    async def put(self, job_id: str, snapshot_ids: Sequence[str]) -> None:
        """Store them. Idempotent; several commands."""
        ...

    async def after(self, job_id: str, cursor: str | None, limit: int) -> list[str]:
        """Return those beyond one, in order; at the end none."""
        ...
