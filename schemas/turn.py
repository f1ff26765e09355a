"""One message of a conversation: as it is said (`TurnDraft`) and as it is stored (`Turn`)."""

import json
import math
import re
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AfterValidator, AwareDatetime, Field, JsonValue, model_validator

from schemas.base import Frozen
from schemas.identity import Name, SessionIdentity

CONTENT_BYTES = 2 * 1024 * 1024
"""The longest text of a turn, in UTF-8; the HTTP body's limit is the same."""
METADATA_BYTES = 256 * 1024
"""The largest metadata of a turn, as JSON in UTF-8."""
METADATA_DEPTH = 32
INT64 = 2**63
_SURROGATE = re.compile("[\ud800-\udfff]")


class Role(StrEnum):
    """Who speaks."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    SYSTEM = "system"


def _encodable(text: str) -> None:
    if not text.isascii() and _SURROGATE.search(text):
        raise ValueError("must hold no lone surrogate")


def _storable(value: JsonValue, depth: int = 1) -> None:
    if depth > METADATA_DEPTH:
        raise ValueError(f"must not nest deeper than {METADATA_DEPTH} levels")
    if isinstance(value, dict):
        for key, inner in value.items():
            if "\x00" in key:
                raise ValueError("must hold no NUL in a key")
            _encodable(key)
            _storable(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            _storable(inner, depth + 1)
    elif isinstance(value, str):
        _encodable(value)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("must hold finite numbers only")
    elif isinstance(value, int) and not isinstance(value, bool) and not -INT64 <= value < INT64:
        raise ValueError("must hold whole numbers of 64 bits only")


def _metadata(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    _storable(value)
    size = len(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    if size > METADATA_BYTES:
        raise ValueError(f"must be at most {METADATA_BYTES} bytes of JSON")
    return value


def _arguments(value: JsonValue) -> JsonValue:
    _storable(value)
    return value


def _content(value: str) -> str:
    if len(value.encode("utf-8", "surrogatepass")) > CONTENT_BYTES:
        raise ValueError(f"must be at most {CONTENT_BYTES} bytes of UTF-8")
    return value


Metadata = Annotated[dict[str, JsonValue], AfterValidator(_metadata)]


class ToolCall(Frozen):
    """A tool the assistant called in a turn."""

    id: str = Field(min_length=1, max_length=256)
    name: str = Field(min_length=1, max_length=256)
    arguments: Annotated[JsonValue, AfterValidator(_arguments)] = None


class TurnDraft(Frozen):
    """A turn as its runtime hands it over, before it has a place in its session.

    Text may be empty only where an assistant calls a tool. Empty metadata is no metadata.
    """

    role: Role
    content: Annotated[str, AfterValidator(_content)] = ""
    tool_calls: tuple[ToolCall, ...] = Field(default=(), max_length=128)
    tool_call_id: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    tool_name: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    is_error: bool = False
    model_name: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    metadata: Metadata | None = None
    idempotency_key: Name | None = None
    created_at: AwareDatetime | None = None
    """When it was said, if that was not now. The future counts as the moment of recording."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.content.strip() and not (self.role is Role.ASSISTANT and self.tool_calls):
            raise ValueError("content must not be empty")
        if self.tool_calls and self.role is not Role.ASSISTANT:
            raise ValueError("tool_calls belong to the role assistant")
        return self


class Turn(Frozen):
    """A stored turn; its content never changes."""

    turn_id: str
    session: str
    """The session's opaque key."""
    identity: SessionIdentity
    incarnation: int
    seq: int
    """Its place in the session, from 1, without gaps."""
    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    tool_name: str | None = None
    is_error: bool = False
    model_name: str | None = None
    metadata: dict[str, Any] | None = None
    created_at: datetime
    recorded_at: datetime
    effective_at: datetime
    """When it counts as said: never after it was recorded, nor before the turn before it."""
    tokens: int
    """Its length for budgets, in tokens of o200k_base."""
    repairs: int = 0
    """How many lone surrogates were replaced by U+FFFD in its text and metadata."""
