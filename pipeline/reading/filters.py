"""Metadata filters: a closed grammar, so that nothing a caller sends is ever an operator by itself.

A filter is an object. Each key is a path, whose value is either what it must equal or an object of
operators; or it is `$and`, `$or`, `$nor` with a list of filters. Missing fields equal nothing.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, cast

from pydantic import JsonValue

from pipeline.errors import FilterError
from schemas.project import MetadataType
from schemas.turn import INT64

Paths = Mapping[str, MetadataType] | Collection[str]
Scalar = str | int | float | bool
Condition = dict[str, Any]
"""A condition of MongoDB."""

DEPTH: Final = 8
"""How deep filters may nest."""
CLAUSES: Final = 200
"""How many clauses a filter may have in all."""
SET_VALUES: Final = 1000
"""How many values a set may have."""
TEXT: Final = 1024
"""The longest text that may be compared with."""
OWN: Final = "metadata."
"""What every path of a caller's own metadata begins with."""
UNDECLARED: Final = frozenset({"agent_id"})
"""What may be filtered by without being declared."""

_PATH: Final = re.compile(r"metadata\.[a-z][a-z0-9_]{0,63}(\.[a-z][a-z0-9_]{0,63})?")
_RANGES: Final = frozenset({"$gt", "$gte", "$lt", "$lte"})
_TOLD: Final = {
    MetadataType.STRING: "texts",
    MetadataType.NUMBER: "numbers",
    MetadataType.BOOLEAN: "true or false",
    MetadataType.DATE: "dates in ISO 8601",
}
_COMPOSED: Final = ("$and", "$or", "$nor")
_CONTRARIES: Final = {"$ne": "$eq", "$nin": "$in"}
_NOTHING: Final[Condition] = {"_id": {"$in": []}}
"""What nothing meets."""
_MISSING: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """One comparison of one field."""

    path: str
    operator: str
    operand: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """Filters joined: all of them, any of them, none of them."""

    operator: str
    parts: tuple["Filter", ...]


Filter = Clause | Composed

EVERYTHING: Final = Composed(operator="$and", parts=())


def parse(sent: JsonValue, paths: Mapping[str, MetadataType] | Collection[str] | None) -> Filter:
    """Return a filter.

    Args:
        sent: What a caller sent.
        paths: The paths that are declared, each with its type where it has one. None: any
            well-formed path, which may match nothing.

    Raises:
        FilterError: It is none, or names a path that is not declared; the message lists what is.
    """
    return _Parser(paths).composed("$and", [sent], 0)


def matches(found: Filter, fields: Mapping[str, Any]) -> bool:
    """Return whether fields pass a filter; `metadata` holds the caller's own."""
    if isinstance(found, Composed):
        results = (matches(part, fields) for part in found.parts)
        match found.operator:
            case "$and":
                return all(results)
            case "$or":
                return any(results)
            case _:
                return not any(results)
    value = _value(fields, found.path)
    return _COMPARISONS[found.operator](value, found.operand)


def to_query(found: Filter, place: Callable[[str], str]) -> Condition:
    """Return a condition of MongoDB that is met by whatever passes a filter.

    It says what `matches` says, but of ranges of dates, which are stored as text in any form of
    ISO 8601: of these it is met by every text, and `matches` has the last word.

    Args:
        found: The filter.
        place: Where a document has what a path names.
    """
    return _condition(found, place, is_wanted=True)


def own_paths(found: Filter) -> set[str]:
    """Return the paths of callers' own metadata that a filter names."""
    if isinstance(found, Composed):
        return {path for part in found.parts for path in own_paths(part)}
    return {found.path} if found.path.startswith(OWN) else set()


def _condition(found: Filter, place: Callable[[str], str], *, is_wanted: bool) -> Condition:
    """Return the condition of a filter, or of its contrary."""
    if isinstance(found, Clause):
        return _clause_condition(found, place(found.path), is_wanted=is_wanted)
    of_parts = is_wanted is not (found.operator == "$nor")
    parts = [_condition(part, place, is_wanted=of_parts) for part in found.parts]
    is_all = is_wanted is (found.operator != "$or")
    if not parts:
        return {} if is_all else _NOTHING
    return {"$and" if is_all else "$or": parts}


def _clause_condition(clause: Clause, path: str, *, is_wanted: bool) -> Condition:
    operator, operand = clause.operator, clause.operand
    if operator in _CONTRARIES:
        operator, is_wanted = _CONTRARIES[operator], not is_wanted
    elif operator == "$exists":
        operand, is_wanted = True, is_wanted is operand
    if operator not in _RANGES:
        compared = list(cast("tuple[Scalar, ...]", operand)) if operator == "$in" else operand
        conditions: list[Condition] = [{path: {operator: compared}}]
    elif isinstance(operand, str) and _moment(operand) is not None:
        if not is_wanted:
            return {}
        conditions = [{path: {"$type": "string"}}]
    elif isinstance(operand, int | float) and not isinstance(operand, bool):
        # The database compares what a list holds, too.
        conditions = [{path: {operator: operand}}, {path: {"$not": {"$type": "array"}}}]
    else:
        return _NOTHING if is_wanted else {}
    if clause.path.count(".") > 1:
        # The database looks into each object of a list, too.
        conditions.append({path.rpartition(".")[0]: {"$not": {"$type": "array"}}})
    met: Condition = {"$and": conditions} if len(conditions) > 1 else conditions[0]
    return met if is_wanted else {"$nor": [met]}


class _Parser:
    def __init__(self, paths: Paths | None) -> None:
        self._types: Mapping[str, MetadataType] = (
            cast("Mapping[str, MetadataType]", paths) if isinstance(paths, Mapping) else {}
        )
        self._paths = None if paths is None else {*paths, *UNDECLARED}
        self._clauses = 0

    def composed(self, operator: str, sent: object, depth: int) -> Composed:
        if not isinstance(sent, list) or not sent:
            raise FilterError(f"{operator} takes a list of filters that is not empty")
        parts = [self._filter(part, depth) for part in cast("list[object]", sent)]
        return Composed(operator=operator, parts=tuple(parts))

    def _filter(self, sent: object, depth: int) -> Filter:
        if depth > DEPTH:
            raise FilterError(f"a filter nests at most {DEPTH} deep")
        if not isinstance(sent, dict):
            raise FilterError("a filter is an object of paths and what they are compared with")
        parts: list[Filter] = []
        for key, value in cast("dict[str, object]", sent).items():
            if key in _COMPOSED:
                parts.append(self.composed(key, value, depth + 1))
            else:
                parts.extend(self._clauses_of(self._path(key), value))
        return Composed(operator="$and", parts=tuple(parts))

    def _path(self, key: str) -> str:
        if self._paths is not None and key not in self._paths:
            known = ", ".join(sorted(self._paths))
            raise FilterError(f"a filter names a path that is not declared; declared are: {known}")
        if key not in UNDECLARED and not _PATH.fullmatch(key):
            raise FilterError(
                "a filter names a path that can't be declared: it is `metadata.` and one or two"
                " names of small letters, digits and underscores, or `agent_id`"
            )
        return key

    def _clauses_of(self, path: str, value: object) -> list[Filter]:
        given = cast("dict[str, object]", value) if isinstance(value, dict) else {"$eq": value}
        if not given:
            raise FilterError("an object of operators must not be empty")
        self._clauses += len(given)
        if self._clauses > CLAUSES:
            raise FilterError(f"a filter has at most {CLAUSES} clauses")
        clauses: list[Filter] = []
        for name, sent in given.items():
            operand = _operand(name, sent)
            self._agree(path, name, operand)
            clauses.append(Clause(path=path, operator=name, operand=operand))
        return clauses

    def _agree(self, path: str, operator: str, operand: object) -> None:
        """Refuse what can match nothing that is of the declared type."""
        declared = self._types.get(path)
        if declared is None or operator == "$exists":
            return
        if operator in _RANGES and declared not in (MetadataType.NUMBER, MetadataType.DATE):
            raise FilterError(f"{path} is declared as {declared}: ranges want a number or a date")
        compared = cast("tuple[object, ...]", operand) if isinstance(operand, tuple) else (operand,)
        if not all(_is_of(each, declared) for each in compared):
            raise FilterError(
                f"{path} is declared as {declared}: compare it with {_TOLD[declared]}"
            )


def _operand(operator: str, sent: object) -> object:
    if operator in ("$in", "$nin"):
        if not isinstance(sent, list) or len(cast("list[object]", sent)) > SET_VALUES:
            raise FilterError(f"{operator} takes a list of at most {SET_VALUES} values")
        return tuple(_scalar(value) for value in cast("list[object]", sent))
    if operator == "$exists":
        if not isinstance(sent, bool):
            raise FilterError("$exists takes true or false")
        return sent
    if operator not in _COMPARISONS:
        known = ", ".join(sorted((*_COMPARISONS, *_COMPOSED)))
        raise FilterError(f"a filter uses an operator that there is not; there are: {known}")
    return _scalar(sent)


def _scalar(sent: object) -> Scalar:
    is_finite = not isinstance(sent, float) or math.isfinite(sent)
    if not isinstance(sent, str | int | float | bool) or not is_finite:
        raise FilterError("a filter compares with texts, finite numbers, true and false only")
    if isinstance(sent, int) and not -INT64 <= sent < INT64:
        raise FilterError("a filter compares with whole numbers of 64 bits only")
    if isinstance(sent, str) and len(sent) > TEXT:
        raise FilterError(f"a filter compares with texts of at most {TEXT} characters")
    return sent


def _is_of(operand: object, declared: MetadataType) -> bool:
    match declared:
        case MetadataType.STRING:
            return isinstance(operand, str)
        case MetadataType.NUMBER:
            return isinstance(operand, int | float) and not isinstance(operand, bool)
        case MetadataType.BOOLEAN:
            return isinstance(operand, bool)
        case MetadataType.DATE:
            return isinstance(operand, str) and _moment(operand) is not None


def _value(fields: Mapping[str, Any], path: str) -> object:
    value: object = fields
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return _MISSING
        value = cast("Mapping[str, object]", value)[name]
    return value


def _equal(value: object, operand: object) -> bool:
    """Compare as JSON does: true is not 1, and a list has a value if it holds it."""
    if isinstance(value, list):
        return any(_is_same(each, operand) for each in cast("list[object]", value))
    return _is_same(value, operand)


def _is_same(value: object, operand: object) -> bool:
    return isinstance(value, bool) is isinstance(operand, bool) and value == operand


def _ordered(value: object, operand: object, compare: Callable[[Any, Any], bool]) -> bool:
    if isinstance(value, bool) or isinstance(operand, bool):
        return False
    if isinstance(value, int | float) and isinstance(operand, int | float):
        return compare(value, operand)
    if isinstance(value, str) and isinstance(operand, str):
        moments = _moment(value), _moment(operand)
        return None not in moments and compare(*moments)
    return False


def _moment(text: str) -> datetime | None:
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        return None
    # Not `astimezone`: the server's own zone is nobody's, and it can't place the first day.
    return read if read.tzinfo else read.replace(tzinfo=UTC)


_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "$eq": _equal,
    "$ne": lambda value, operand: not _equal(value, operand),
    "$in": lambda value, operand: any(_equal(value, each) for each in operand),
    "$nin": lambda value, operand: not any(_equal(value, each) for each in operand),
    "$exists": lambda value, operand: (value is not _MISSING) is operand,
    "$gt": lambda value, operand: _ordered(value, operand, lambda a, b: a > b),
    "$gte": lambda value, operand: _ordered(value, operand, lambda a, b: a >= b),
    "$lt": lambda value, operand: _ordered(value, operand, lambda a, b: a < b),
    "$lte": lambda value, operand: _ordered(value, operand, lambda a, b: a <= b),
}
