"""A model for benchmarks: answers after a fixed time, in a process of its own."""

import asyncio
import json
import multiprocessing
from collections.abc import Generator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection

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
                writer.write(_response(request["tools"][0]["function"]["name"]))
                await writer.drain()

    server = await asyncio.start_server(converse, "127.0.0.1", 0, backlog=256)
    connection.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def _response(tool: str) -> bytes:
    call = {"name": tool, "arguments": json.dumps(_ANSWER)}
    body = json.dumps(
        {
            "id": "c",
            "object": "chat.completion",
            "created": 0,
            "model": "bench",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "tool_calls",
                    "message": {
                        "role": "assistant",
                        "content": None,
                        "tool_calls": [{"id": "t", "type": "function", "function": call}],
                    },
                }
            ],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }
    ).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body
