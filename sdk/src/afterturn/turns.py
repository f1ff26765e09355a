"""A turn as a conversation's runtime said it, and how it is told from others."""

import json
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, Literal

Json = dict[str, Any]
Role = Literal["user", "assistant", "tool"]

DIGEST_BYTES: Final = 16
"""Enough that no two turns of the world meet by chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool the assistant called."""

    call_id: str
    """What the result names it by."""
    name: str
    """The tool."""
    arguments: Any
    """As the vendor has them: text of JSON at OpenAI, an object at Anthropic."""

    def as_json(self) -> Json:
        """Return it as the memory server takes it."""
        return {"id": self.call_id, "name": self.name, "arguments": self.arguments}


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One message of a conversation, whoever's client sent it."""

    role: Role
    """Who speaks."""
    content: str = ""
    """The text, to the byte; what is not text stands in it as `[image_url]`, by its type."""
    tool_calls: tuple[ToolCall, ...] = ()
    """What an assistant calls."""
    tool_call_id: str | None = None
    """Which call a tool answers."""
    tool_name: str | None = None
    """The tool that answers, where its call was seen."""
    is_error: bool = False
    """Whether a tool failed."""
    attached: tuple[str, ...] = ()
    """Digests of what is not text; they are never sent."""

    @property
    def says_something(self) -> bool:
        """Whether there is anything to record."""
        return bool(self.content.strip() or self.tool_calls)

    def digest(self) -> bytes:
        """Return what the turn is recognised by, however its runtime writes it down.

        White space around the text, and how the JSON of arguments is written, make no difference:
        runtimes strip the one and dump the other anew.
        """
        calls = [(call.call_id, call.name, _meaning(call.arguments)) for call in self.tool_calls]
        said = [
            self.role,
            self.content.strip(),
            calls,
            self.tool_call_id,
            self.is_error,
            self.attached,
        ]
        return digest_of(said)


def digest_of(value: object) -> bytes:
    """Return the digest of JSON; lone surrogates are as good as any other character."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()


def _meaning(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments
