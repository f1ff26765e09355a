"""Dead letters in groups: one for each way of failing, so that a thousand letters are one line."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from pipeline.ports.letters import LetterSummary
from schemas.failure import FailureClass, Letter

Failed = Letter | LetterSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Letters of one fingerprint: they failed in one way, and one thing mends them."""

    fingerprint: str
    failure_class: FailureClass
    reason: str
    action: str
    letters: int
    exhausted: int
    """How many of them only need to be sent back once the fault is gone."""
    first_at: datetime
    """When the first of them died first."""
    last_at: datetime
    """When one of them died last."""
    new: int
    """How many died since the moment that was asked for."""


def grouped(letters: Iterable[Failed], *, since: datetime | None = None) -> list[Group]:
    """Return letters in groups, the largest first; ties by which failed last.

    Args:
        letters: Any, in any order.
        since: What died then or later counts as new; none: nothing does.
    """
    members: dict[str, list[Failed]] = {}
    for letter in letters:
        members.setdefault(letter.fingerprint, []).append(letter)
    groups = [_group(each, since) for each in members.values()]
    return sorted(groups, key=lambda one: (one.letters, one.last_at, one.fingerprint), reverse=True)


def _group(letters: list[Failed], since: datetime | None) -> Group:
    newest = max(letters, key=lambda one: (one.last_death, one.letter_id))
    return Group(
        fingerprint=newest.fingerprint,
        failure_class=newest.failure_class,
        reason=newest.reason,
        action=newest.action,
        letters=len(letters),
        exhausted=sum(one.disposition == "exhausted" for one in letters),
        first_at=min(one.created_at for one in letters),
        last_at=newest.last_death,
        new=0 if since is None else sum(one.last_death >= since for one in letters),
    )
