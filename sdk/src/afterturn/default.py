"""One line for who wants no more: the recorder that a process shares."""

import threading
from collections.abc import Collection
from typing import Final, TypeVar

from afterturn.recorder import EVERY_ROUTE, Recorder
from afterturn.scopes import Conversation
from afterturn.wires.routes import Route

ClientT = TypeVar("ClientT")

_lock: Final = threading.Lock()
_shared: list[Recorder] = []


def recorded(
    client: ClientT,
    *,
    conversation: Conversation | None = None,
    routes: Collection[Route] = EVERY_ROUTE,
    by_default: bool = True,
) -> ClientT:
    """Return a client like this one, recorded in the memory server that the environment names.

    The same as `Recorder().recorded(client, ...)`, with one recorder for the whole process; the
    environment is that of `agent_engine_sdk_memory.Memory()`.

    Raises:
        ValueError: The environment names no memory server.
        TypeError: It is no client of OpenAI or Anthropic.
    """
    with _lock:
        if not _shared:
            _shared.append(Recorder())
    return _shared[0].recorded(
        client, conversation=conversation, routes=routes, by_default=by_default
    )
