"""A memory server and a model to talk to, and what the one has of what was said to the other."""

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from agent_engine_sdk_memory import Memory
from openai import OpenAI
from pymongo.database import Database

from afterturn import Recorder
from tests.scripted_endpoint import Json, Reply, ScriptedEndpoint, sends

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


def taking(endpoint: ScriptedEndpoint) -> Callable[[], Memory]:
    """Let an endpoint take turns as a memory server does; return how to connect to it."""
    endpoint.respond_with(lambda turn: taken(str(turn["session_id"])))
    return lambda: Memory(base_url=endpoint.url)


def taken(session: str = "monday") -> Reply:
    """Return what a memory server answers to a turn it took."""
    result = {"id": "t", "session_id": session, "turn_seq": 1}
    return replace(sends(result), status=201)


def contents(endpoint: ScriptedEndpoint) -> list[str]:
    """Return what was said in the turns that an endpoint was sent, in order."""
    return [str(request.json["content"]) for request in endpoint.requests]


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


Talk = list[Any]


def user(content: str) -> Json:
    """Return what a user says, as OpenAI has it."""
    return {"role": "user", "content": content}


def assistant(content: str) -> Json:
    """Return what an assistant says, as OpenAI has it."""
    return {"role": "assistant", "content": content}


def client_of(endpoint: ScriptedEndpoint, *, retries: int = 0) -> OpenAI:
    """Return a client of a scripted model."""
    return OpenAI(base_url=endpoint.url, api_key="k", max_retries=retries, timeout=20)


def complete(client: OpenAI, messages: Talk, **options: Any) -> Any:
    """Ask a model; what is passed and returned is untyped."""
    create: Any = client.chat.completions.create
    return create(model="m", messages=messages, **options)
