"""How much there is and how it flows, read from MongoDB for people who watch: no words."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pipeline.stores.mongo import Database, Document
from schemas.extraction import Outcome
from schemas.failure import FailureClass, LetterState

LETTERS: Final = 5000
"""Letters that are looked at at most; the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """How many documents of each kind there are, as the server counts them by itself."""

    turns: int
    snapshots: int
    extractions: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """What happened in a span of time."""

    turns: int
    """Turns that were cut."""
    snapshots: int
    outcomes: dict[Outcome, int]
    """Extractions that came to an outcome, replays too."""

    @property
    def extractions(self) -> int:
        """How many came to an outcome."""
        return sum(self.outcomes.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """A letter, as far as a picture of letters over time needs it."""

    at: datetime
    """When it died first."""
    failure_class: FailureClass
    state: LetterState


class MongoFigures:
    """Reads them; each by few commands over an index, whatever the collections hold."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def totals(self) -> Totals:
        """Return them, as of about now."""
        counts = [
            await self._database[name].estimated_document_count()
            for name in ("turns", "snapshots", "extractions", "records")
        ]
        turns, snapshots, extractions, records = counts
        return Totals(turns=turns, snapshots=snapshots, extractions=extractions, records=records)

    async def flow(self, since: datetime) -> Flow:
        """Return what happened since a moment."""
        turns = snapshots = 0
        cut = {"first_seq": True, "last_seq": True}
        async for each in self._database["snapshots"].find({"created_at": {"$gte": since}}, cut):
            turns += each["last_seq"] - each["first_seq"] + 1
            snapshots += 1
        settled = self._database["extractions"].find(
            {"settled_at": {"$gte": since}}, {"outcome": True}
        )
        outcomes = Counter([Outcome(each["outcome"]) async for each in settled])
        return Flow(turns=turns, snapshots=snapshots, outcomes=dict(outcomes))

    async def deaths(self, since: datetime, projects: Collection[str | None] | None) -> list[Death]:
        """Return letters that died first then or later, the newest first.

        Args:
            since: When.
            projects: Of one of these, where none is "of no project"; none: of any.
        """
        condition: Document = {
            "state": {"$in": [state.value for state in LetterState]},
            "created_at": {"$gte": since},
        }
        if projects is not None:
            condition["project_id"] = {"$in": list(projects)}
        wanted = {"created_at": True, "failure_class": True, "state": True}
        cursor = self._database["letters"].find(condition, wanted).sort("created_at", -1)
        return [
            Death(
                at=each["created_at"],
                failure_class=FailureClass(each["failure_class"]),
                state=LetterState(each["state"]),
            )
            async for each in cursor.limit(LETTERS)
        ]
