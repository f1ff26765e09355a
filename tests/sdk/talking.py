"""A memory server and a model to talk to, and what the one has of what was said to the other."""

import json
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

from agent_engine_sdk_memory import Memory

from afterturn import Recorder
from tests.integration.serving import Server, ask
from tests.scripted_endpoint import Json, Reply

MARA: dict[str, Any] = {"session_id": "monday", "user_id": "mara"}


@contextmanager
def recorder_of(url: str, **options: Any) -> Generator[Recorder]:
    """Yield a recorder into the memory server at an address."""
    recorder = Recorder(lambda: Memory(base_url=url), **options)
    try:
        yield recorder
    finally:
        recorder.close(0.1)


@asynccontextmanager
async def flushed(server: Server, **options: Any) -> AsyncGenerator[Recorder]:
    """Yield a recorder; at the end all that it took must be with the server."""
    with recorder_of(server.url, **options) as recorder:
        yield recorder
        assert await ask(recorder.flush, 20), recorder.counts


async def stored(server: Server, session: str = "monday") -> list[Json]:
    """Return the turns of a session, in order."""
    turns = server.parts.database["turns"].find({"identity.session_id": session})
    return [turn async for turn in turns.sort("seq", 1)]


async def said(server: Server, session: str = "monday") -> list[tuple[str, str]]:
    """Return who said what in a session, in order."""
    return [(turn["role"], turn["content"]) for turn in await stored(server, session)]


def streams(*events: Json | str, named: bool = False, **fields: Any) -> Reply:
    """Return a stream of these events."""
    lines = [
        (f"event: {event['type']}\n" if named and isinstance(event, dict) else "")
        + f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n"
        for event in events
    ]
    body = "".join(lines).encode()
    return replace(Reply(body=body, content_type="text/event-stream"), **fields)


def chat_chunks(*texts: str, finish: str | None = "stop") -> list[Json]:
    """Return the chunks of a streamed chat completion."""
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    deltas.extend({"content": text} for text in texts)
    chunks = [chat_chunk(delta) for delta in deltas]
    return chunks if finish is None else [*chunks, chat_chunk({}, finish=finish)]


def chat_chunk(delta: Json, *, finish: str | None = None) -> Json:
    """Return one chunk of a streamed chat completion."""
    return {
        "id": "chatcmpl-scripted",
        "object": "chat.completion.chunk",
        "created": 1_767_225_600,
        "model": "scripted-1",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }


def answering(texts: Iterable[str], make: Callable[[str], Reply]) -> Callable[[Json], Reply]:
    """Return a model that says these texts, one a request."""
    left = iter(texts)
    return lambda _request: make(next(left))
