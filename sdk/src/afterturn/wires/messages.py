"""Anthropic's messages."""

import json
from collections.abc import Iterable
from typing import Any, Final

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

_UNSAID: Final = {"thinking", "redacted_thinking", "tool_use", "tool_result"}
"""Blocks that are no part of a message's text."""
_VENDORS_OWN: Final = ("server_tool_", "mcp_tool_")
"""Beginnings of blocks of tools that the vendor runs; so does every `..._tool_result`."""


def said(request: Json) -> Said | None:
    """Return what a request says; None where it is no conversation."""
    if not isinstance(request.get("messages"), list):
        return None
    turns: list[Turn] = []
    messages = objects(request["messages"])
    for message in messages:
        if message.get("role") == "assistant":
            turns.append(_assistant(message.get("content")))
        elif message.get("role") == "user":
            turns.extend(_user(message.get("content"), turns))
    begun = bool(messages) and messages[-1].get("role") == "assistant"
    return Said(turns=speaking(turns), starts_answer=begun and turns[-1].says_something)


def answer(document: Json) -> Answer:
    """Return what an answer says that came in one piece."""
    if document.get("type") != "message" or document.get("stop_reason") is None:
        return FAILED
    return Answer(
        outcome=Outcome.WHOLE,
        turns=speaking([_assistant(document.get("content"))]),
        model=text_of(document.get("model")),
    )


def streamed(events: Iterable[Json]) -> Answer:
    """Return what an answer says that came in pieces."""
    document: Json = {}
    blocks: dict[int, Json] = {}
    for event in events:
        match event.get("type"):
            case "error":
                return FAILED
            case "message_start":
                document = dict(event.get("message") or {})
            case "content_block_start":
                blocks[event.get("index", 0)] = dict(event.get("content_block") or {})
            case "content_block_delta":
                _add(blocks.setdefault(event.get("index", 0), {}), event.get("delta") or {})
            case "message_delta":
                delta: Json = event.get("delta") or {}
                document |= {key: value for key, value in delta.items() if value}
            case _:
                pass
    if document.get("stop_reason") is None:
        texts = (str(blocks[place].get("text", "")) for place in sorted(blocks))
        return unfinished(texts, document.get("model")) if document else FAILED
    document["content"] = [_complete(blocks[place]) for place in sorted(blocks)]
    return answer(document)


def _complete(block: Json) -> Json:
    """Return a block with the object that its pieces of JSON make; cut off, they stay text."""
    written = block.get("written")
    if not written:
        return block
    try:
        return {**block, "input": json.loads(written)}
    except ValueError:
        return {**block, "input": written}


def _add(block: Json, delta: Json) -> None:
    match delta.get("type"):
        case "text_delta":
            block["text"] = block.get("text", "") + delta.get("text", "")
        case "input_json_delta":
            block["written"] = block.get("written", "") + delta.get("partial_json", "")
        case _:
            pass


def _assistant(content: Any) -> Turn:
    text, attached = _text(content, joined_by="")
    calls = tuple(
        ToolCall(
            call_id=str(block.get("id") or ""),
            name=str(block.get("name") or ""),
            arguments=block.get("input") or {},
        )
        for block in objects(content)
        if block.get("type") == "tool_use"
    )
    return Turn(role="assistant", content=text, tool_calls=calls, attached=attached)


def _user(content: Any, before: list[Turn]) -> list[Turn]:
    """Return the tools' results, and then what the user says beside them."""
    names = named(before)
    turns: list[Turn] = []
    for block in objects(content):
        if block.get("type") == "tool_result":
            text, attached = parts_of(block.get("content") or "", joined_by="\n")
            call_id = str(block.get("tool_use_id") or "")
            turns.append(
                Turn(
                    role="tool",
                    content=text,
                    tool_call_id=call_id or None,
                    tool_name=names.get(call_id),
                    is_error=bool(block.get("is_error")),
                    attached=attached,
                )
            )
    text, attached = _text(content, joined_by="\n")
    return [*turns, Turn(role="user", content=text, attached=attached)]


def _text(content: Any, *, joined_by: str) -> tuple[str, tuple[str, ...]]:
    if isinstance(content, str):
        return content, ()
    return parts_of([block for block in objects(content) if _is_said(block)], joined_by=joined_by)


def _is_said(block: Json) -> bool:
    kind = str(block.get("type"))
    return not (kind in _UNSAID or kind.startswith(_VENDORS_OWN) or kind.endswith("_tool_result"))
