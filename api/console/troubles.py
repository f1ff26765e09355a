"""What an operator must see first: what is wrong, since when, and what to do about it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from api.console.pages import span, to
from pipeline.letters.grouping import Group

NEW: Final = timedelta(hours=24)
"""A way of failing that was seen first so long ago or less is new."""
SHOWN: Final = 8
"""Ways of failing on the overview; the page of groups has all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One thing that is wrong."""

    level: Literal["stopped", "failed", "waiting"]
    """`stopped`: nothing goes on until somebody acts; `failed`: letters; `waiting`: by itself."""
    title: str
    action: str
    detail: str = ""
    since: datetime | None = None
    href: str | None = None
    """Where its cause is."""
    is_new: bool = False
    resumes: str | None = None
    """The breaker or guard that can be let go on."""


def troubles_of(
    ledger: dict[str, Any],
    broker: dict[str, Any] | None,
    groups: Sequence[Group],
    *,
    now: datetime,
    open_at_most: timedelta,
) -> list[Trouble]:
    """Return what is wrong, the worst first; among letters the newest way of failing first.

    Args:
        ledger: As `ledger_status` returns it.
        broker: As `broker_status` does; none: not known.
        groups: Of the dead letters that may be seen.
        now: From when ages are told.
        open_at_most: How old the oldest open turn is while all goes well.
    """
    return [
        *map(_held, ledger["held_back"]),
        *_silent(broker),
        *_topics(broker),
        *_late(ledger["open"], open_at_most),
        *(_group(each, now) for each in newest_first(groups)[:SHOWN]),
        *_waiting(ledger),
    ]


def newest_first(groups: Sequence[Group]) -> list[Group]:
    """Return groups by when their way of failing was seen first, the latest before the others."""
    return sorted(groups, key=lambda one: (one.first_at, one.fingerprint), reverse=True)


def _held(one: dict[str, Any]) -> Trouble:
    if one["kind"] == "guard":
        return Trouble(
            level="stopped",
            title="A mass guard holds letters back",
            detail=f"{one['name']}: so many died of {one['reason']} that it looks like a bad"
            " deploy.",
            action=f"{one['action']} Then resume it.",
            since=datetime.fromtimestamp(one["since_ms"] / 1000, UTC),
            resumes=one["name"],
        )
    tries_at = datetime.fromtimestamp(one["next_try_ms"] / 1000, UTC)
    return Trouble(
        level="stopped",
        title=f"A breaker is {one['state']}: {one['reason'] or 'its model fails'}",
        detail=f"{one['name']}: extraction with this model waits. It is tried by itself at"
        f" {tries_at:%H:%M:%S} UTC.",
        action=f"{one['action']} Then resume it, to have it tried at once.",
        resumes=one["name"],
    )


def _topics(broker: dict[str, Any] | None) -> list[Trouble]:
    problems: list[str] = [] if broker is None else broker["topics"]
    return [
        Trouble(level="stopped", title="A topic is not as it must be", action=problem)
        for problem in problems
    ]


def _group(group: Group, now: datetime) -> Trouble:
    return Trouble(
        level="failed",
        title=f"{_counted(group.letters, 'letter')}: {group.reason}",
        detail=f"{group.failure_class}, fingerprint {group.fingerprint}",
        action=group.action,
        since=group.first_at,
        href=to("/letters", group=group.fingerprint, state="dead"),
        is_new=now - group.first_at <= NEW,
    )


def _waiting(ledger: dict[str, Any]) -> list[Trouble]:
    found = [
        Trouble(
            level="waiting",
            title=f"{_counted(one['extractions'], 'extraction')} to be tried again: {reason}",
            detail="That happens by itself, when it is due.",
            action=one["action"],
        )
        for reason, one in ledger["extractions"]["reasons"].items()
    ]
    return found + [
        Trouble(
            level="waiting",
            title=f"{_counted(one['records'], 'embedding')} to be tried again: {reason}",
            detail="That happens by itself, when it is due.",
            action=one["action"] or "Look at the embedding service.",
        )
        for reason, one in ledger["embeddings"]["reasons"].items()
    ]


def _late(opened: dict[str, Any], open_at_most: timedelta) -> list[Trouble]:
    seconds = opened["oldest_seconds"]
    if seconds is None or seconds <= open_at_most.total_seconds():
        return []
    return [
        Trouble(
            level="stopped",
            title=f"A turn has waited {span(seconds)} to be cut",
            detail="Nothing is lost; it becomes memory once it is cut.",
            action="See that `run waker` and `run snapshot` run, and that Kafka answers.",
        )
    ]


def _silent(broker: dict[str, Any] | None) -> list[Trouble]:
    if broker is None or broker["lag"] is not None:
        return []
    return [
        Trouble(
            level="stopped",
            title="Kafka does not answer",
            detail="Recording goes on without it; what is recorded becomes memory afterwards.",
            action="Bring Kafka back; the work goes on by itself. `./afterturn doctor` tells more.",
        )
    ]


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
