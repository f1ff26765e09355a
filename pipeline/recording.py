"""From what a caller says to the turn that is stored: checked, repaired, never half right.

Repaired, and counted, are lone surrogates, which no store and no JSON can carry: each becomes
U+FFFD in text, metadata and tool arguments. A moment in the future counts as the moment of
recording. Everything else is kept to the byte or refused.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar, cast

from pydantic import BaseModel, ValidationError

from pipeline.errors import InvalidInputError, Problem
from pipeline.ids import OpaqueIds
from pipeline.ports.turns import NewestTurn, SessionState
from schemas.event import moment
from schemas.identity import SessionIdentity
from schemas.turn import CONTENT_BYTES, METADATA_BYTES, METADATA_DEPTH, ToolCall, Turn, TurnDraft

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

REPLACEMENT: Final = "\ufffd"
"""What a lone surrogate becomes."""
MAXIMUM_PROBLEMS: Final = 20
"""How many broken rules are told of at once."""

_SURROGATES: Final = re.compile("([\ud800-\udbff][\udc00-\udfff])|[\ud800-\udfff]")
"""A pair that came in two halves, or a half alone."""
_WHOLE: Final = "turn"
"""The field of a rule that is about no single one."""
_FIELDS: Final = frozenset(TurnDraft.model_fields)
_CALL_DEPTH: Final = 2
"""How much deeper the arguments of a tool call lie than metadata."""
_NAMES: Final = frozenset(
    {*TurnDraft.model_fields, *ToolCall.model_fields, *SessionIdentity.model_fields}
)
"""What an error may call by name; every other key is the caller's."""
_RULES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "missing": "is required",
        "extra_forbidden": "has a field that nobody declared",
        "invalid_key": "has a field that nobody declared",
        "enum": "must be one of {expected}",
        "string_type": "must be text",
        "string_too_short": "must have at least {min_length} character",
        "string_too_long": "must have at most {max_length} characters",
        "string_unicode": "must hold no lone surrogate",
        "too_long": "must have at most {max_length} items",
        "bool_type": "must be true or false",
        "bool_parsing": "must be true or false",
        "dict_type": "must be an object",
        "model_type": "must be an object",
        "tuple_type": "must be a list",
        "list_type": "must be a list",
        "int_type": "must be a whole number",
        "int_parsing": "must be a whole number",
        "float_type": "must be a number",
        "float_parsing": "must be a number",
        "finite_number": "must be a finite number",
        "greater_than": "must be more than {gt}",
        "greater_than_equal": "must be at least {ge}",
        "less_than_equal": "must be at most {le}",
        "json_invalid": "must be JSON",
        "model_attributes_type": "must be an object",
        "literal_error": "must be one of {expected}",
        "invalid-json-value": "must hold JSON values only",
        "timezone_aware": "must say its offset from UTC",
    }
)
"""By pydantic's type of error; what it says itself may quote the input."""

ModelT = TypeVar("ModelT", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A draft that may be stored."""

    draft: TurnDraft
    repairs: int
    """How many lone surrogates were replaced."""

    @property
    def texts(self) -> tuple[str, ...]:
        """All that a model would read of it."""
        calls = (
            json.dumps([call.name, call.arguments], ensure_ascii=False)
            for call in self.draft.tool_calls
        )
        return (self.draft.content, *calls)

    def body(self) -> str:
        """Return what was said as canonical JSON: two drafts are the same if these are."""
        said = self.draft.model_dump(mode="json", exclude={"idempotency_key"}, exclude_none=True)
        return json.dumps(said, sort_keys=True, ensure_ascii=False)


def accept(said: object) -> Accepted:
    """Return a turn as it may be stored.

    Args:
        said: A mapping of the fields of `TurnDraft`, or one.

    Raises:
        InvalidInputError: It breaks rules; it names them and repeats nothing of what was said.
    """
    raw = said.model_dump() if isinstance(said, TurnDraft) else said
    if not isinstance(raw, Mapping):
        raise _invalid(_WHOLE, "must be an object")
    repair = _Repair()
    fields = {
        name: repair.field(name if name in _FIELDS else _WHOLE, value)
        for name, value in cast("Mapping[str, object]", raw).items()
    }
    if fields.get("metadata") == {}:
        del fields["metadata"]
    draft = _validated(TurnDraft, fields)
    if draft.created_at is not None:
        draft = draft.model_copy(update={"created_at": _utc(draft.created_at)})
    return Accepted(draft=draft, repairs=repair.count)


def accept_identity(said: object) -> SessionIdentity:
    """Return whose session it is.

    Raises:
        InvalidInputError: A name is missing, blank, too long or can't be kept to the letter.
    """
    if isinstance(said, SessionIdentity):
        return said
    if not isinstance(said, Mapping):
        raise _invalid(_WHOLE, "must be an object")
    return _validated(SessionIdentity, dict(cast("Mapping[str, object]", said)))


def compose(
    accepted: Accepted,
    *,
    identity: SessionIdentity,
    state: SessionState,
    after: NewestTurn | None,
    tokens: int,
    now: datetime,
    ids: OpaqueIds,
) -> Turn:
    """Return the turn after the newest one of its session, recorded now.

    Its effective time is the running maximum, along seq, of the earlier of `created_at` and
    `recorded_at`: so a clock that goes back, or a date that is wrong, turns no talk around.
    """
    draft = accepted.draft
    now = moment(now)
    seq = 1 if after is None else after.seq + 1
    created_at = now if draft.created_at is None else min(draft.created_at, now)
    return Turn(
        turn_id=ids.turn(state.session, seq),
        session=state.session,
        identity=identity,
        incarnation=state.incarnation,
        seq=seq,
        role=draft.role,
        content=draft.content,
        tool_calls=draft.tool_calls,
        tool_call_id=draft.tool_call_id,
        tool_name=draft.tool_name,
        is_error=draft.is_error,
        model_name=draft.model_name,
        metadata=draft.metadata,
        created_at=created_at,
        recorded_at=now,
        effective_at=created_at if after is None else max(created_at, after.effective_at),
        tokens=tokens,
        repairs=accepted.repairs,
    )


class _Repair:
    """Repairs the values of fields, no deeper and no larger than what may be stored."""

    def __init__(self) -> None:
        self.count = 0
        self._room = 0

    def field(self, name: str, value: object) -> object:
        """Return a field's value with its texts repaired; what is no JSON is left as it is.

        Raises:
            InvalidInputError: It is too large or too deep to be looked at further.
        """
        most = METADATA_BYTES if name == "metadata" else CONTENT_BYTES
        self._room = most
        try:
            return self._value(value, METADATA_DEPTH + _CALL_DEPTH)
        except _TooLargeError:
            rule = f"must be at most {most} bytes of UTF-8"
        except _TooDeepError:
            rule = f"must not nest deeper than {METADATA_DEPTH} levels"
        except _SameKeysError:
            rule = "must have keys that differ in more than lone surrogates"
        except _NoTextError:
            rule = "must be text, not bytes"
        raise _invalid(name, rule)

    def _value(self, value: object, levels: int) -> object:
        # Every part of a value takes at least a byte, so this bounds values that hold themselves.
        self._take(1)
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, (bytes, bytearray)):
            raise _NoTextError
        if isinstance(value, ToolCall):
            value = value.model_dump()
        if not isinstance(value, (Mapping, list, tuple)):
            return value
        if levels == 0:
            raise _TooDeepError
        if isinstance(value, Mapping):
            return self._mapping(cast("Mapping[object, object]", value), levels - 1)
        items = cast("list[object] | tuple[object, ...]", value)
        repaired = [self._value(item, levels - 1) for item in items]
        return repaired if isinstance(value, list) else tuple(repaired)

    def _mapping(self, mapping: Mapping[object, object], levels: int) -> dict[object, object]:
        repaired = {
            self._text(key) if isinstance(key, str) else key: self._value(inner, levels)
            for key, inner in mapping.items()
        }
        if len(repaired) != len(mapping):
            raise _SameKeysError
        return repaired

    def _text(self, text: str) -> str:
        self._take(len(text))
        return text if text.isascii() else _SURROGATES.sub(self._mended, text)

    def _mended(self, found: re.Match[str]) -> str:
        pair: str | None = found.group(1)
        if pair is not None:
            return pair.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        self.count += 1
        return REPLACEMENT

    def _take(self, room: int) -> None:
        self._room -= room
        if self._room < 0:
            raise _TooLargeError


class _UnfitError(Exception):
    """Why a value is not looked at further; it never leaves `_Repair`."""


class _TooLargeError(_UnfitError):
    """It has no room in its field."""


class _TooDeepError(_UnfitError):
    """It nests too deep, or holds itself."""


class _SameKeysError(_UnfitError):
    """Two keys of an object become one when they are repaired."""


class _NoTextError(_UnfitError):
    """It is bytes where text should be."""


def _utc(given: datetime) -> datetime:
    try:
        return moment(given.astimezone(UTC))
    except OverflowError:
        pass
    raise _invalid("created_at", "must lie in the years 1 to 9999 of UTC")


def _validated(model: type[ModelT], fields: object) -> ModelT:
    """Return the model, or the problems of its fields without a value of them."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        broken = error.errors(include_url=False, include_input=False)
    # Outside of the handler: pydantic's error quotes the input and must not become our context.
    problems = dict.fromkeys(_problem(details) for details in broken)
    raise InvalidInputError(tuple(problems)[:MAXIMUM_PROBLEMS])


def rule_of(details: "ErrorDetails") -> str:
    """Return which rule is broken, in words of ours only: those of pydantic may quote the input."""
    if details["type"] == "value_error":
        return details["msg"].removeprefix("Value error, ")
    return _RULES.get(details["type"], "is not valid").format_map(details.get("ctx", {}))


def _problem(details: "ErrorDetails") -> Problem:
    """Return which rule is broken where."""
    field, rule = _field(details["loc"]), rule_of(details)
    if details["type"] != "value_error":
        return Problem(field=field or _WHOLE, rule=rule)
    first, _, rest = rule.partition(" ")
    if not field and first in _NAMES:
        return Problem(field=first, rule=rest)
    return Problem(field=field or _WHOLE, rule=rule)


def _field(place: tuple[int | str, ...]) -> str:
    """Return a place by declared names and positions: `metadata`, `tool_calls.0.name`."""
    if not place or place[0] not in _NAMES:
        return ""
    known = [str(place[0])]
    for part in place[1:3] if place[0] == "tool_calls" else ():
        if isinstance(part, str) and part not in _NAMES:
            break
        known.append(str(part))
    return ".".join(known)


def _invalid(field: str, rule: str) -> InvalidInputError:
    return InvalidInputError((Problem(field=field, rule=rule),))
