"""A memory server and a model to talk to, and what the one has of what was said to the other."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from agent_engine_sdk_memory import Memory
from pymongo.database import Database

from afterturn import Recorder
from tests.scripted_endpoint import Json, Reply

MARA: dict[str, Any] = {"session_id": "monday", "user_id": "mara"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A memory server of all tests, and the project of one."""

    url: str
    project: str
    database: Database[Json]

    def memory(self) -> Memory:
        """Return the published client."""
        return Memory(base_url=self.url, project_id=self.project)


@contextmanager
def flushed(server: Server, **options: Any) -> Generator[Recorder]:
    """Yield a recorder; at the end all that it took must be with the server."""
    with Recorder(server.memory, **options) as recorder:
        yield recorder
        assert recorder.flush(20), recorder.counts


def stored(server: Server, session: str = "monday") -> list[Json]:
    """Return the turns of a session, in order."""
    whose = {"identity.session_id": session, "identity.project_id": server.project}
    return list(server.database["turns"].find(whose).sort("seq", 1))


def said(server: Server, session: str = "monday") -> list[tuple[str, str]]:
    """Return who said what in a session, in order."""
    return [(turn["role"], turn["content"]) for turn in stored(server, session)]


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
