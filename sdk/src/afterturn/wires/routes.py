"""Which requests are conversations, and how each is read."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, cast

from afterturn.turns import Json
from afterturn.wires import chat, messages, responses
from afterturn.wires.events import events
from afterturn.wires.exchange import FAILED, Answer, Said


class Route(StrEnum):
    """A way to talk to a model."""

    CHAT = "chat.completions"
    """OpenAI's, and of whoever speaks it: `POST .../chat/completions`."""
    RESPONSES = "responses"
    """OpenAI's: `POST .../responses`."""
    MESSAGES = "messages"
    """Anthropic's: `POST .../messages`."""


@dataclass(frozen=True, slots=True)
class _Wire:
    said: Callable[[Json], Said | None]
    answer: Callable[[Json], Answer]
    streamed: Callable[[Iterable[Json]], Answer]


_WIRES: Final = MappingProxyType(
    {
        Route.CHAT: _Wire(chat.said, chat.answer, chat.streamed),
        Route.RESPONSES: _Wire(responses.said, responses.answer, responses.streamed),
        Route.MESSAGES: _Wire(messages.said, messages.answer, messages.streamed),
    }
)
_ENDS: Final = MappingProxyType(
    {
        "/chat/completions": Route.CHAT,
        "/responses": Route.RESPONSES,
        "/messages": Route.MESSAGES,
    }
)


def route_of(method: str, path: str) -> Route | None:
    """Return what a request is, as far as its first line tells; None: no conversation."""
    if method != "POST":
        return None
    ended = path.rstrip("/")
    return next((route for end, route in _ENDS.items() if ended.endswith(end)), None)


def said_in(route: Route, body: bytes) -> Said | None:
    """Return what a request says; None where it is no conversation after all."""
    request = _object(body)
    return None if request is None else _WIRES[route].said(request)


def answered_in(route: Route, body: bytes, *, is_stream: bool) -> Answer:
    """Return what an answer says, as far as it came."""
    wire = _WIRES[route]
    if is_stream:
        return wire.streamed(events(body))
    document = _object(body)
    return FAILED if document is None else wire.answer(document)


def _object(body: bytes) -> Json | None:
    try:
        value: Any = json.loads(body)
    except ValueError:
        return None
    return cast("Json", value) if isinstance(value, dict) else None
