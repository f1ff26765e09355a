"""The offline extractor as an OpenAI-compatible endpoint on loopback.

`python -m compose.offline.server --port 9100` runs it as a process; `offline_extractor()` runs it
inside one. It is no language model, and its model name, its fingerprint and a header say so.
"""

import argparse
import asyncio
import json
import re
import signal
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from compose.offline.rules import SpokenTurn, remember

MODEL = "afterturn-offline-rules-1"
"""The name this endpoint gives as its model, whatever it is asked for."""

DISCLAIMER = "rules, not a language model"
"""What it says of itself, as `system_fingerprint` and in the header `x-afterturn-model`."""

LARGEST_BODY_BYTES = 32 * 1024 * 1024

Json = dict[str, Any]

_KINDS = ("semantic", "episodic", "procedural", "taxonomic", "summary")
_BLOCK = re.compile(r"(?s)<(turns|context)>\s*\n?(.*?)</\1>")
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed"}


class UnknownRequestError(ValueError):
    """The request is none that the rules can answer."""


def complete(request: Json) -> Json:
    """Return the chat completion for a request.

    Raises:
        UnknownRequestError: It has no turns, or asks for another schema than the answer's.
    """
    if request.get("stream"):
        raise UnknownRequestError("Streaming is not offered: leave 'stream' out.")
    turns, context = _conversation(request)
    tool, properties = _asked_for(request)
    answer = {
        kind: value
        for kind, value in remember(turns, context).as_answer().items()
        if kind in properties
    }
    arguments = json.dumps(answer, ensure_ascii=False)
    message: Json = {"role": "assistant", "content": None}
    if tool is None:
        message["content"] = arguments
    else:
        function = {"name": tool, "arguments": arguments}
        message["tool_calls"] = [{"id": "call_rules_1", "type": "function", "function": function}]
    prompt_tokens = _words(json.dumps(request.get("messages"), ensure_ascii=False))
    completion_tokens = _words(arguments)
    return {
        "id": "chatcmpl-offline",
        "object": "chat.completion",
        "created": 0,
        "model": MODEL,
        "system_fingerprint": DISCLAIMER,
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": "stop" if tool is None else "tool_calls",
                "logprobs": None,
            }
        ],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        },
    }


def _asked_for(request: Json) -> tuple[str | None, frozenset[str]]:
    """Return the tool to call, if one, and the parts of the answer its schema has."""
    schema: object = None
    name: str | None = None
    tools = request.get("tools")
    response_format = request.get("response_format")
    if isinstance(tools, list) and tools:
        function = _mapping(_mapping(cast("list[object]", tools)[0]).get("function"))
        name, schema = str(function.get("name")), function.get("parameters")
    elif isinstance(response_format, dict):
        described = _mapping(cast("Json", response_format).get("json_schema"))
        schema = described.get("schema")
    properties = frozenset(_mapping(_mapping(schema).get("properties"))).intersection(_KINDS)
    if not properties:
        raise UnknownRequestError(
            f"One tool or JSON schema with some of {', '.join(_KINDS)} is needed."
        )
    return name, properties


def _conversation(request: Json) -> tuple[list[SpokenTurn], list[SpokenTurn]]:
    messages = request.get("messages")
    if not isinstance(messages, list):
        raise UnknownRequestError("'messages' is no list.")
    for message in reversed(cast("list[object]", messages)):
        if _mapping(message).get("role") != "user":
            continue
        blocks = dict(_BLOCK.findall(_text(_mapping(message).get("content"))))
        if "turns" in blocks:
            return _turns(blocks["turns"]), _turns(blocks.get("context", ""))
    raise UnknownRequestError("No user message has turns between <turns> and </turns>.")


def _turns(lines: str) -> list[SpokenTurn]:
    turns: list[SpokenTurn] = []
    for line in lines.splitlines():
        if not line.strip():
            continue
        try:
            turn = _mapping(json.loads(line))
            said_at = turn.get("at")
            turns.append(
                SpokenTurn(
                    seq=int(turn["seq"]),
                    role=str(turn["role"]),
                    content=str(turn["content"]),
                    at=None if said_at is None else datetime.fromisoformat(str(said_at)),
                )
            )
        except (ValueError, KeyError, TypeError) as error:
            raise UnknownRequestError("A line between <turns> is no turn.") from error
    return turns


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = (_mapping(part).get("text") for part in cast("list[object]", content))
        return "\n".join(part for part in parts if isinstance(part, str))
    return ""


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Json", value) if isinstance(value, dict) else {}


def _words(text: str) -> int:
    """Return a count for the usage block: words, and Chinese characters one by one."""
    return len(re.findall(r"[\u3400-\u9fff]|[^\W\u3400-\u9fff]+", text))


# --- HTTP ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    method: str
    path: str
    body: bytes
    keeps_alive: bool


@asynccontextmanager
async def offline_extractor(*, host: str = "127.0.0.1", port: int = 0) -> AsyncGenerator[str]:
    """Run the endpoint in this event loop and yield its base URL, such as a client is given."""
    connections: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a stream callback always runs in one
        connections.add(task)
        # Cancelled at the end: a cancelled stream callback would be reported by the loop.
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await _converse(reader, writer)
        writer.transport.abort()
        connections.discard(task)

    server = await asyncio.start_server(accept, host, port, backlog=512)
    bound_port: int = server.sockets[0].getsockname()[1]
    try:
        yield f"http://{host}:{bound_port}/v1"
    finally:
        server.close()
        for task in tuple(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


async def _converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        try:
            request = await _read(reader)
        except (ValueError, asyncio.LimitOverrunError):
            await _write(writer, 400, _error("The request is no HTTP the endpoint knows."))
            return
        if request is None:
            return
        await _write(writer, *_answer(request))
        if not request.keeps_alive:
            return


async def _read(reader: asyncio.StreamReader) -> _Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    line, *header_lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, target, _version = line.split(" ", 2)
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (header.partition(":") for header in header_lines)
    }
    length = int(headers.get("content-length", "0"))
    if not 0 <= length <= LARGEST_BODY_BYTES or "transfer-encoding" in headers:
        raise ValueError("a body of unknown or too great a length")
    return _Request(
        method=method,
        path=target.partition("?")[0],
        body=await reader.readexactly(length),
        keeps_alive=headers.get("connection", "").lower() != "close",
    )


def _answer(request: _Request) -> tuple[int, Json]:
    match request.method, request.path:
        case "POST", "/v1/chat/completions":
            return _completion(request.body)
        case "GET", "/v1/models":
            listed = {"id": MODEL, "object": "model", "created": 0, "owned_by": "afterturn"}
            return 200, {"object": "list", "data": [listed]}
        case "GET", "/health" | "/v1/health":
            return 200, {"status": "ok", "model": MODEL, "note": DISCLAIMER}
        case _, "/v1/chat/completions" | "/v1/models" | "/health":
            return 405, _error(f"{request.method} is not offered here.")
        case _:
            return 404, _error("There is nothing here.")


def _completion(body: bytes) -> tuple[int, Json]:
    try:
        return 200, complete(dict(_mapping(json.loads(body))))
    except UnknownRequestError as error:
        return 400, _error(str(error))
    except ValueError:
        return 400, _error("The body is no JSON.")


def _error(message: str) -> Json:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return {"error": error}


async def _write(writer: asyncio.StreamWriter, status: int, document: Json) -> None:
    # Escaped to ASCII: a lone surrogate that came in as \ud83d goes out the same way.
    body = json.dumps(document).encode()
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n"
        f"x-afterturn-model: {DISCLAIMER}\r\n\r\n"
    )
    writer.write(head.encode("latin-1") + body)
    await writer.drain()


async def _serve(host: str, port: int) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    async with offline_extractor(host=host, port=port) as url:
        sys.stdout.write(f"{MODEL} ({DISCLAIMER}) at {url}\n")
        sys.stdout.flush()
        await stopping.wait()


def main(arguments: list[str] | None = None) -> None:
    """Run the endpoint until it is told to stop."""
    parser = argparse.ArgumentParser(description=f"The offline extractor: {DISCLAIMER}.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one and prints it")
    options = parser.parse_args(arguments)
    asyncio.run(_serve(options.host, options.port))


if __name__ == "__main__":
    main()
