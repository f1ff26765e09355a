"""Which letters a page shows: the same filters in its address, its form and its links."""

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from datetime import datetime
from typing import Any, Final

from pydantic import TypeAdapter

from api.console.forms import as_utc, validated
from api.console.pages import iso
from pipeline.ports.letters import LetterQuery
from schemas.failure import LetterState

ANY: Final = "any"
"""In the place of a state: letters of all states."""
NAMES: Final[Mapping[str, str]] = {
    "failure_class": "class",
    "fingerprint": "group",
    "project_id": "project",
    "letter_id": "letter",
}
"""What fields are called in addresses, where it is not their own name."""
_NOT_ASKED: Final = ("projects", "letter_id")
_FILTERS: Final = tuple(each.name for each in fields(LetterQuery) if each.name not in _NOT_ASKED)
_ADAPTER: Final[TypeAdapter[LetterQuery]] = TypeAdapter(LetterQuery)


def query_from(
    given: Iterable[tuple[str, str]], projects: tuple[str | None, ...] | None
) -> LetterQuery:
    """Return which letters are asked for; dead ones where no state is named.

    Args:
        given: Names and values, as in an address; what is blank is not given, and what is no
            filter is not looked at.
        projects: Whose letters may be seen at all.

    Raises:
        FormError: A filter holds what it can't.
    """
    sent = {name: value.strip() for name, value in given if value.strip()}
    asked: dict[str, Any] = {
        name: sent[NAMES.get(name, name)] for name in _FILTERS if NAMES.get(name, name) in sent
    }
    state = asked.setdefault("state", LetterState.DEAD.value)
    if state == ANY:
        del asked["state"]
    query = validated(_ADAPTER, asked, NAMES)
    return replace(query, since=as_utc(query.since), until=as_utc(query.until), projects=projects)


def asked_of(query: LetterQuery) -> dict[str, str]:
    """Return what an address says to ask for the same: `query_from` gives it back."""
    found = {
        NAMES.get(name, name): _told(value)
        for name in _FILTERS
        if (value := getattr(query, name)) is not None
    }
    return {"state": ANY} | found


def _told(value: Any) -> str:
    return iso(value) if isinstance(value, datetime) else str(value)
