"""Reading a model's answer: refusing what would lose records silently, keeping what can be kept.

A second call, a key that stands twice, a frame of the wrong shape would each lose items without a
word, so they are defects of the whole answer. An item that can't be stored is emptied in its
place: it is set aside when the items are judged, and its neighbours keep their numbers.
"""

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any, Final, cast

from pydantic import JsonValue

from pipeline.failing.reasons import Reason
from schemas.memory import Kind

ANSWER_CHARACTERS: Final = 1_000_000
_ITEM_DEPTH: Final = 16
_INT64: Final = 2**63
_LISTS: Final = tuple(str(kind) for kind in Kind)


class DefectError(Exception):
    """What is wrong with an answer as a whole; `str()` says it to the model, with none of it."""

    def __init__(self, reason: Reason) -> None:
        self.reason = reason
        super().__init__(_TOLD[reason])


_TOLD: Final = {
    Reason.TWO_TOOL_CALLS: "Call the function exactly once, with everything in that one call.",
    Reason.TWO_CHOICES: "Give one answer only.",
    Reason.WRONG_TOOL: "Call the function that was offered, by its exact name.",
    Reason.NO_TOOL_CALL: "Call the function; plain text is not read.",
    Reason.NOT_JSON: "The arguments are not valid JSON.",
    Reason.DUPLICATE_KEY: "A key stands twice in one object; put everything under one key.",
    Reason.WRONG_SHAPE: "The arguments must be one JSON object.",
    Reason.TOO_LARGE: "The answer is far too long; keep to what is worth keeping.",
}


class Repeating(dict[str, Any]):
    """A JSON object in which a key stands more than once; only its last value is left."""


def loads(text: str | bytes) -> Any:
    """Return what a JSON text holds; objects that repeat a key are `Repeating`.

    Raises:
        DefectError: It is no JSON.
    """
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        # Whatever the error quotes of the answer stays behind.
        raise DefectError(Reason.NOT_JSON) from None


def parse(arguments: object) -> dict[str, JsonValue]:
    """Return the arguments of the one call as an object whose every item can be stored.

    Args:
        arguments: As text, or as `loads` has read them where a protocol sends them as an object.

    Raises:
        DefectError: They can't be read without losing something.
    """
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    if len(text) > ANSWER_CHARACTERS:
        raise DefectError(Reason.TOO_LARGE)
    answer = loads(arguments) if isinstance(arguments, str) else arguments
    if any(isinstance(value, Repeating) for value in _everything_in(answer)):
        raise DefectError(Reason.DUPLICATE_KEY)
    if not isinstance(answer, dict):
        raise DefectError(Reason.WRONG_SHAPE)
    return {
        key: _readable(key, value) for key, value in cast("dict[str, JsonValue]", answer).items()
    }


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else Repeating(found)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _everything_in(value: Any) -> Iterator[Any]:
    waiting = [value]
    while waiting:
        value = waiting.pop()
        yield value
        if isinstance(value, dict):
            waiting.extend(cast("dict[str, Any]", value).values())
        elif isinstance(value, list):
            waiting.extend(cast("list[Any]", value))


def _readable(key: str, value: JsonValue) -> JsonValue:
    if key in _LISTS and isinstance(value, list):
        return [_storable(item) for item in value]
    return _storable(value)


def _storable(value: JsonValue) -> JsonValue:
    """Return a value with lone surrogates replaced; none where MongoDB can't hold it."""
    return _repaired(value) if _fits(value) else None


def _fits(value: JsonValue, depth: int = 0) -> bool:
    match value:
        case dict():
            keys_fit = not any("\x00" in key for key in value)
            return keys_fit and _all_fit(value.values(), depth)
        case list():
            return _all_fit(value, depth)
        case float():
            return math.isfinite(value)  # 1e999 is valid JSON and no number
        case int():
            return -_INT64 <= value < _INT64
        case _:
            return True


def _all_fit(values: Iterable[JsonValue], depth: int) -> bool:
    return depth < _ITEM_DEPTH and all(_fits(value, depth + 1) for value in values)


def _repaired(value: JsonValue) -> JsonValue:
    match value:
        case str():
            return _text(value)
        case list():
            return [_repaired(inner) for inner in value]
        case dict():
            return {_text(key): _repaired(inner) for key, inner in value.items()}
        case _:
            return value


def _text(value: str) -> str:
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
