"""OpenAI's responses, whose requests may name what OpenAI keeps instead of sending it again."""

from collections.abc import Iterable
from typing import Final

from afterturn.turns import Json, ToolCall, Turn
from afterturn.wires.exchange import (
    FAILED,
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

_ENDS: Final = {"response.completed", "response.incomplete"}
_DELTAS: Final = {"response.output_text.delta", "response.refusal.delta"}
_FAILURES: Final = {"response.failed", "error"}


def said(request: Json) -> Said | None:
    """Return what a request says; None where it is no conversation.

    Every item is a turn of its own, so a history recognises what came as one answer.
    """
    given = request.get("input")
    if isinstance(given, str):
        turns = [Turn(role="user", content=given)]
    elif isinstance(given, list):
        turns = _turns(objects(given))
    else:
        return None
    return Said(
        turns=speaking(turns),
        root=text_of(request.get("previous_response_id")) or "",
        is_kept=bool(request.get("conversation")),
    )


def answer(document: Json) -> Answer:
    """Return what an answer says that came in one piece."""
    if document.get("error") or document.get("status") not in {"completed", "incomplete"}:
        return FAILED
    return Answer(
        outcome=Outcome.WHOLE,
        turns=speaking(_turns(objects(document.get("output")))),
        model=text_of(document.get("model")),
        answer_id=text_of(document.get("id")) or "",
    )


def streamed(events: Iterable[Json]) -> Answer:
    """Return what an answer says that came in pieces: its last event has all of it."""
    texts: list[str] = []
    model: object = None
    is_begun = False
    for event in events:
        is_begun = True
        kind = event.get("type")
        if kind in _FAILURES:
            return FAILED
        response = event.get("response")
        if isinstance(response, dict):
            (whole,) = objects([response])
            if kind in _ENDS:
                return answer(whole)
            model = whole.get("model")
        elif kind in _DELTAS:
            texts.append(str(event.get("delta") or ""))
    return unfinished(texts, model) if is_begun else FAILED


def _turns(items: Iterable[Json]) -> list[Turn]:
    turns: list[Turn] = []
    for item in items:
        turn = _turn(item, turns)
        if turn is not None:
            turns.append(turn)
    return turns


def _turn(item: Json, before: list[Turn]) -> Turn | None:
    match item.get("type", "message"), item.get("role"):
        case "message", "user":
            content, attached = parts_of(item.get("content"), joined_by="\n")
            return Turn(role="user", content=content, attached=attached)
        case "message", "assistant":
            content, attached = parts_of(item.get("content"), joined_by="")
            return Turn(role="assistant", content=content, attached=attached)
        case (("function_call" | "custom_tool_call"), _):
            call = ToolCall(
                call_id=str(item.get("call_id") or ""),
                name=str(item.get("name") or ""),
                arguments=item.get("arguments", item.get("input", "")),
            )
            return Turn(role="assistant", tool_calls=(call,))
        case (("function_call_output" | "custom_tool_call_output"), _):
            content, attached = parts_of(item.get("output"), joined_by="\n")
            call_id = str(item.get("call_id") or "")
            return Turn(
                role="tool",
                content=content,
                tool_call_id=call_id or None,
                tool_name=named(before).get(call_id),
                attached=attached,
            )
        case _:
            return None
