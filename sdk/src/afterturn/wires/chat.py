"""OpenAI's chat completions, and those of every server that speaks them."""

from collections.abc import Iterable
from typing import Any, Final

from afterturn.turns import Json, ToolCall, Turn
from afterturn.wires.exchange import (
    FAILED,
    UNDECIDED,
    Answer,
    Outcome,
    Said,
    named,
    objects,
    parts_of,
    speaking,
    text_of,
    unfinished,
)

_LEGACY_CALL: Final = "function_call"
"""The field, and here also the id, of the one call of an older assistant."""


def said(request: Json) -> Said | None:
    """Return what a request says; None where it is no conversation."""
    if not isinstance(request.get("messages"), list):
        return None
    turns: list[Turn] = []
    for message in objects(request["messages"]):
        match message.get("role"):
            case "user":
                content, attached = parts_of(message.get("content"), joined_by="\n")
                turns.append(Turn(role="user", content=content, attached=attached))
            case "assistant":
                turns.append(_assistant(message))
            case "tool" | "function" as role:
                turns.append(_result(message, role, turns))
            case _:
                pass
    return Said(turns=speaking(turns))


def answer(document: Json) -> Answer:
    """Return what an answer says that came in one piece."""
    choices = objects(document.get("choices"))
    if not choices:
        return FAILED
    if len(choices) > 1:
        return UNDECIDED
    message = choices[0].get("message")
    if not isinstance(message, dict):
        return FAILED
    return _whole(_assistant(objects([message])[0]), document)


def streamed(events: Iterable[Json]) -> Answer:
    """Return what an answer says that came in pieces."""
    texts: list[str] = []
    calls: dict[int, Json] = {}
    head: Json = {}
    is_finished = False
    for event in events:
        if event.get("error"):
            return FAILED
        head = {**head, **{key: value for key, value in event.items() if value}}
        for choice in objects(event.get("choices")):
            if choice.get("index", 0) != 0:
                return UNDECIDED
            delta = choice.get("delta")
            if isinstance(delta, dict):
                _add(objects([delta])[0], texts, calls)
            is_finished = is_finished or choice.get("finish_reason") is not None
    if not is_finished:
        return unfinished(texts, head.get("model")) if head else FAILED
    message = {"content": "".join(texts), "tool_calls": [calls[key] for key in sorted(calls)]}
    return _whole(_assistant(message), head)


def _whole(turn: Turn, document: Json) -> Answer:
    return Answer(
        outcome=Outcome.WHOLE, turns=speaking([turn]), model=text_of(document.get("model"))
    )


def _add(delta: Json, texts: list[str], calls: dict[int, Json]) -> None:
    for name in ("content", "refusal"):
        text = text_of(delta.get(name))
        if text is not None:
            texts.append(text)
    for piece in objects(delta.get("tool_calls")):
        place = piece.get("index", len(calls))
        call = calls.setdefault(place, {"id": "", "function": {"name": "", "arguments": ""}})
        call["id"] = piece.get("id") or call["id"]
        function: Any = piece.get("function") or {}
        call["function"]["name"] += function.get("name") or ""
        call["function"]["arguments"] += function.get("arguments") or ""


def _assistant(message: Json) -> Turn:
    content, attached = parts_of(message.get("content"), joined_by="")
    calls = [_call(call) for call in objects(message.get("tool_calls"))]
    if isinstance(message.get(_LEGACY_CALL), dict):
        calls.append(_call({"id": _LEGACY_CALL, "function": message[_LEGACY_CALL]}))
    return Turn(
        role="assistant",
        content=content or text_of(message.get("refusal")) or "",
        tool_calls=tuple(calls),
        attached=attached,
    )


def _call(call: Json) -> ToolCall:
    inner: Any = call.get("function") or call.get("custom") or {}
    return ToolCall(
        call_id=str(call.get("id") or ""),
        name=str(inner.get("name") or ""),
        arguments=inner.get("arguments", inner.get("input", "")),
    )


def _result(message: Json, role: str, before: list[Turn]) -> Turn:
    content, attached = parts_of(message.get("content"), joined_by="\n")
    is_legacy = role == "function"
    call_id = _LEGACY_CALL if is_legacy else str(message.get("tool_call_id") or "")
    name = message.get("name") if is_legacy else named(before).get(call_id)
    return Turn(
        role="tool",
        content=content,
        tool_call_id=call_id or None,
        tool_name=text_of(name),
        attached=attached,
    )
