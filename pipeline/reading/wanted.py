"""What a search wants of a memory besides its scope: a condition, and the last word.

The condition goes with every query, before anything is scored. Which of a record's contents meets
it is then told by `passes`, which is exact where the condition is not (`filters.to_query`).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, cast

from pipeline.reading import filters
from pipeline.reading.filters import EVERYTHING, Condition, Filter
from pipeline.saving import custom
from schemas.memory import CustomContent, Tag
from schemas.record import ContentRun, RunState

_HELD: Final = (RunState.CURRENT, RunState.REPLACED, RunState.ENDED)
"""What a content may be now that held once: what was wrong, or over when it was said, never did."""
_FACTS: Final = {
    *("state", "first_at", "closed_at", "agents", "sessions", "metadata"),
    *("content", "fields"),
}

Run = Mapping[str, Any]
"""A content as it is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What narrows a search. Each thing that is given narrows it; none widens it but `history`."""

    filter: Filter = EVERYTHING
    session_id: str | None = None
    agent_id: str | None = None
    domain: str | None = None
    """Of terms."""
    tags: tuple[str, ...] = ()
    """Any of them, as procedures are saved with."""
    type: str | None = None
    """The custom type."""
    type_tags: tuple[Tag, ...] = ()
    """All of them, as the custom type declares them."""
    history: bool = False
    """Whether what is not current any more is wanted too."""
    as_of: datetime | None = None
    """What was current then is wanted, and nothing else."""

    @property
    def is_all_current(self) -> bool:
        """Whether whatever is current in a scope is wanted."""
        return self == Wanted()

    @property
    def needs_history(self) -> bool:
        """Whether what is not current may be wanted."""
        return self.history or self.as_of is not None

    def condition(self) -> Condition:
        """Return what one run of a record must meet.

        A field comes first: the embedded database takes it for a value's otherwise.
        """
        parts: list[Condition] = []
        if self.filter != EVERYTHING:
            parts.append(filters.to_query(self.filter, _place))
        if self.session_id is not None:
            parts.append({"sessions": self.session_id})
        if self.agent_id is not None:
            parts.append({"agents": self.agent_id})
        if self.domain is not None:
            parts.append({"content.domain": self.domain})
        if self.tags:
            parts.append({"fields.tags": {"$in": list(self.tags)}})
        if self.type is not None:
            parts.append({"content.type": self.type})
        parts.extend(
            {"content.tags": {"$elemMatch": {"name": tag.name, "value": tag.value}}}
            for tag in self.type_tags
        )
        return self._states() | ({"$and": parts} if parts else {})

    def passes(self, run: Run) -> bool:
        """Return whether a run is wanted."""
        content = _object(run.get("content"))
        return (
            self._is_of_its_time(run)
            and (self.session_id is None or self.session_id in run["sessions"])
            and (self.agent_id is None or self.agent_id in run["agents"])
            and (self.domain is None or content.get("domain") == self.domain)
            and (not self.tags or _has_any(_object(run.get("fields")).get("tags"), self.tags))
            and (self.type is None or content.get("type") == self.type)
            and (not self.type_tags or custom.matches(_custom(content), self.type_tags))
            and filters.matches(self.filter, _filterable(run))
        )

    def passes_run(self, run: ContentRun) -> bool:
        """Return whether a run of a record is wanted."""
        return self.passes(run.model_dump(include=_FACTS))

    def _states(self) -> Condition:
        if self.as_of is not None:
            return {
                "state": {"$in": list(_HELD)},
                "first_at": {"$lte": self.as_of},
                "$or": [{"closed_at": None}, {"closed_at": {"$gt": self.as_of}}],
            }
        return {"state": {"$exists": True} if self.history else RunState.CURRENT}

    def _is_of_its_time(self, run: Run) -> bool:
        if self.as_of is None:
            return self.history or run["state"] == RunState.CURRENT
        closed_at = run.get("closed_at")
        return (
            run["state"] in _HELD
            and run["first_at"] <= self.as_of
            and (closed_at is None or closed_at > self.as_of)
        )


def _place(path: str) -> str:
    """Return where a run has what a filter's path names."""
    return "agents" if path == "agent_id" else path


def _filterable(run: Run) -> Mapping[str, Any]:
    return {"agent_id": list(run["agents"]), "metadata": run.get("metadata")}


def _object(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _custom(content: Mapping[str, Any]) -> CustomContent:
    return CustomContent.model_validate(content)


def _has_any(own: object, tags: Collection[str]) -> bool:
    return isinstance(own, list) and any(tag in own for tag in tags)
