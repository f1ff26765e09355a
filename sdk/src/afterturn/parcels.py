"""A turn as it is sent: the arguments of the memory client's `record_turn`, and for whom."""

import json
from dataclasses import dataclass
from typing import Any, cast

from afterturn.scopes import Conversation
from afterturn.tapping import Call
from afterturn.turns import Json, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """A turn as it is to be sent."""

    conversation: Conversation
    turn: Json
    """The arguments of the memory client's `record_turn`."""
    size: int
    """In bytes, as JSON."""


def parcel(conversation: Conversation, turn: Json) -> Parcel:
    """Return what is sent; halves of characters, which nobody can send, become U+FFFD."""
    try:
        size = len(json.dumps(turn, ensure_ascii=False).encode())
    except UnicodeEncodeError:
        turn = cast("Json", _mended(turn))
        size = len(json.dumps(turn, ensure_ascii=False).encode())
    return Parcel(conversation=conversation, turn=turn, size=size)


def arguments(turn: Turn, key: str) -> Json:
    """Return a turn and its idempotency key as arguments of the memory client."""
    given: Json = {"role": turn.role, "content": turn.content, "idempotency_key": key}
    if turn.tool_calls:
        given["tool_calls"] = [call.as_json() for call in turn.tool_calls]
    if turn.tool_call_id is not None:
        given["tool_call_id"] = turn.tool_call_id
    if turn.tool_name is not None:
        given["tool_name"] = turn.tool_name
    if turn.is_error:
        given["is_error"] = True
    return given


def asked_at(call: Call) -> Json:
    """Return the times of what a call says, as metadata."""
    return {"afterturn": {"said_at": call.started_at.isoformat()}}


def answered_at(call: Call, *, is_whole: bool) -> Json:
    """Return the times of an answer, as metadata: begun when, and after how many milliseconds."""
    times: Json = {
        "said_at": call.started_at.isoformat(),
        "answer_ms": round((call.ended - call.started) * 1000),
    }
    if call.is_stream:
        times["first_byte_ms"] = round((call.first_byte - call.started) * 1000)
    if not is_whole:
        times["is_unfinished"] = True
    return {"afterturn": times}


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        return {_mended(key): _mended(inner) for key, inner in pairs}
    if isinstance(value, list):
        return [_mended(inner) for inner in cast("list[Any]", value)]
    return value
