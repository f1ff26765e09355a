"""A model for benchmarks: answers after a fixed time, in a process of its own.

It also takes turns, as a memory server does, and forgets them.
"""

import asyncio
import json
import multiprocessing
from collections.abc import Generator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any

_ANSWER = {
    "semantic": [
        {
            "attribute": "home",
            "label": "Porto",
            "text": "The user lives in Porto.",
            "relation": "replaces",
            "evidence": [1],
            "quote": "I moved to Porto",
        }
    ],
    "episodic": [],
    "procedural": [],
    "taxonomic": [],
    "summary": "The user moved to Porto.",
}


@contextmanager
def answering_after(seconds: float) -> Generator[str]:
    """Yield the base URL of an endpoint that answers every request alike after so long."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(seconds, theirs), daemon=True
    )
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}/v1"
    finally:
        process.kill()
        process.join()


def _serve(seconds: float, connection: Connection) -> None:
    asyncio.run(_answer_all(seconds, connection))


async def _answer_all(seconds: float, connection: Connection) -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line.partition(b":")[2])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length")
                )
                request = json.loads(await reader.readexactly(length))
                await asyncio.sleep(seconds)
                writer.write(_response(head, request))
                await writer.drain()

    server = await asyncio.start_server(converse, "127.0.0.1", 0, backlog=256)
    connection.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def _response(head: bytes, request: dict[str, Any]) -> bytes:
    if b"/turns " in head:
        return _http(201, {"id": "t", "session_id": request["session_id"], "turn_seq": 1})
    return _http(200, _completion(request))


def _completion(request: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": "That is noted, for next time."}
    for tool in request.get("tools", ()):
        call = {"name": tool["function"]["name"], "arguments": json.dumps(_ANSWER)}
        calls = [{"id": "t", "type": "function", "function": call}]
        message = {"role": "assistant", "content": None, "tool_calls": calls}
    reason = "tool_calls" if "tool_calls" in message else "stop"
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 0,
        "model": "bench",
        "choices": [{"index": 0, "finish_reason": reason, "message": message}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def _http(status: int, document: dict[str, Any]) -> bytes:
    body = json.dumps(document).encode()
    head = (
        f"HTTP/1.1 {status} OK\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
