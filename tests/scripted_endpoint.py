"""A real HTTP server on loopback that answers chat completions as a test's script says.

The vendor client, its transport and instructor stay real; only what the model says and how the
connection behaves is scripted, one `Reply` a request.
"""

import asyncio
import contextlib
import gzip
import json
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Self

Json = dict[str, Any]

USAGE: Json = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
"""What a scripted completion says it cost, unless told otherwise."""

TOOL_NAME = "Memories"
"""The function a scripted answer calls, unless told otherwise."""

_GATE_POLL_SECONDS = 0.002


class Ending(StrEnum):
    """What becomes of the connection once the reply's bytes are out."""

    KEPT = "kept"
    """The whole body is sent and the connection stays open for the next request."""
    CLOSED = "closed"
    """The connection is closed in good order, whatever the body still owed."""
    RESET = "reset"
    """The connection is reset (RST)."""
    SILENT = "silent"
    """Nothing more is ever sent; the connection stays open until the client leaves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer to one request: what is sent, when, and how it ends."""

    status: int = 200
    """The status code of the response line."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """More headers, replacing those of the same name."""
    body: bytes = b""
    """The body as it goes over the wire; `Content-Length` is always its full length."""
    content_type: str = "application/json"
    """The `Content-Type` header."""
    delay: timedelta = timedelta(0)
    """How long the request waits before its first byte."""
    gate: threading.Event | None = None
    """When given, the first byte also waits until the test sets it."""
    sent_bytes: int | None = None
    """How much of the body is sent; `None` is all of it."""
    piece_bytes: int | None = None
    """The body goes out in pieces of this size; `None` is one piece."""
    piece_interval: timedelta = timedelta(0)
    """How long to wait between two pieces."""
    ending: Ending = Ending.KEPT
    """What becomes of the connection afterwards."""
    endless_piece: bytes | None = None
    """When given, the body goes on with it for ever; `Transfer-Encoding` must be chunked."""
    starts: bool = True
    """False: not even a status line is sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One request as it arrived."""

    method: str
    """The verb of the request line."""
    path: str
    """Path and query of the request line."""
    headers: Mapping[str, str]
    """Header values by lower-case name."""
    body: bytes
    """The raw body."""
    received_at: datetime
    """When its last byte was read."""

    @property
    def json(self) -> Json:
        """The body, decoded."""
        return json.loads(self.body)

    @property
    def messages(self) -> list[Json]:
        """The chat messages of the body."""
        return self.json["messages"]


Responder = Callable[[Json], Reply]
"""Turns a request's JSON into its reply; called one request at a time, and must not block."""


# --- replies -------------------------------------------------------------------------------------


def answers(
    *,
    semantic: Iterable[Json] = (),
    episodic: Iterable[Json] = (),
    procedural: Iterable[Json] = (),
    taxonomic: Iterable[Json] = (),
    summary: str = "",
    finish_reason: str = "tool_calls",
    usage: Json | None = USAGE,
    tool_name: str = TOOL_NAME,
) -> Reply:
    """Return a good answer: one tool call with these items."""
    answer = {
        "semantic": list(semantic),
        "episodic": list(episodic),
        "procedural": list(procedural),
        "taxonomic": list(taxonomic),
        "summary": summary,
    }
    return calls_tool(answer, finish_reason=finish_reason, usage=usage, tool_name=tool_name)


def calls_tool(
    *arguments: Json | str,
    finish_reason: str = "tool_calls",
    usage: Json | None = USAGE,
    tool_name: str = TOOL_NAME,
) -> Reply:
    """Return a completion with one tool call for each of these arguments.

    Args:
        arguments: A string goes out as it is, so it may be cut off or hold a key twice.
        finish_reason: Why the model says it stopped.
        usage: The usage block; `None` leaves it out.
        tool_name: The function that is called.
    """
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": f"call_{number}",
                "type": "function",
                "function": {
                    "name": tool_name,
                    "arguments": call if isinstance(call, str) else json.dumps(call),
                },
            }
            for number, call in enumerate(arguments, start=1)
        ],
    }
    return completes([message], finish_reason=finish_reason, usage=usage)


def cut_off(arguments: str = '{"semantic": [{"subject": "us') -> Reply:
    """Return an answer the model broke off because its tokens ran out."""
    return calls_tool(arguments, finish_reason="length")


def says(content: str | None, *, finish_reason: str = "stop", usage: Json | None = USAGE) -> Reply:
    """Return a completion of plain text, with no tool call."""
    message = {"role": "assistant", "content": content}
    return completes([message], finish_reason=finish_reason, usage=usage)


def refuses(reason: str = "I cannot help with that.") -> Reply:
    """Return a completion whose `refusal` field is filled."""
    message = {"role": "assistant", "content": None, "refusal": reason}
    return completes([message], finish_reason="stop")


def filtered(content: str | None = None) -> Reply:
    """Return a completion stopped by the vendor's content filter."""
    return says(content, finish_reason="content_filter")


def completes(
    messages: Sequence[Json],
    *,
    finish_reason: str = "stop",
    usage: Json | None = USAGE,
) -> Reply:
    """Return a completion with one choice for each of these messages; none is `choices: []`."""
    completion: Json = {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 1_767_225_600,
        "model": "scripted-1",
        "choices": [
            {"index": index, "message": message, "finish_reason": finish_reason}
            for index, message in enumerate(messages)
        ],
    }
    if usage is not None:
        completion["usage"] = usage
    return sends(completion)


def status(
    code: int,
    *,
    retry_after: float | str | None = None,
    error_code: str | None = None,
    message: str = "scripted",
) -> Reply:
    """Return a failure in the shape of the vendor's error object.

    Args:
        code: The HTTP status.
        retry_after: The `Retry-After` header, as seconds or an HTTP date.
        error_code: The object's `code`, such as `insufficient_quota`.
        message: The object's `message`.
    """
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    error = {"message": message, "type": "scripted_error", "param": None, "code": error_code}
    return replace(sends({"error": error}), status=code, headers=headers)


def sends(document: object) -> Reply:
    """Return any JSON document with status 200, such as `{"error": …}` or `{"choices": null}`."""
    return Reply(body=json.dumps(document).encode())


def raw(body: bytes, *, code: int = 200, content_type: str = "application/json") -> Reply:
    """Return these bytes as they are."""
    return Reply(status=code, body=body, content_type=content_type)


def html(page: str = "<html><body>Sign in</body></html>", *, code: int = 200) -> Reply:
    """Return a web page, as a proxy or a login wall does."""
    return raw(page.encode(), code=code, content_type="text/html; charset=utf-8")


def hangs() -> Reply:
    """Return no byte, ever."""
    return Reply(starts=False, ending=Ending.SILENT)


def resets() -> Reply:
    """Return a connection reset in place of an answer."""
    return Reply(starts=False, ending=Ending.RESET)


def hangs_up() -> Reply:
    """Return a closed connection in place of an answer."""
    return Reply(starts=False, ending=Ending.CLOSED)


def truncated(reply: Reply, *, sent_bytes: int, ending: Ending = Ending.CLOSED) -> Reply:
    """Return `reply`, its connection ending in the middle of the body."""
    return replace(reply, sent_bytes=sent_bytes, ending=ending)


def trickled(reply: Reply, *, piece_bytes: int = 1, interval: timedelta) -> Reply:
    """Return `reply`, its body coming in small pieces with a pause between them."""
    return replace(reply, piece_bytes=piece_bytes, piece_interval=interval)


def delayed(reply: Reply, delay: timedelta) -> Reply:
    """Return `reply`, its first byte coming later."""
    return replace(reply, delay=delay)


def packed(reply: Reply) -> Reply:
    """Return `reply`, its body packed with gzip."""
    return replace(
        reply, body=gzip.compress(reply.body), headers={**reply.headers, "Content-Encoding": "gzip"}
    )


def endless(reply: Reply, piece: bytes = b" " * 65_536) -> Reply:
    """Return `reply`, its body going on in chunks of this until the client leaves."""
    return replace(reply, endless_piece=piece, headers={"Transfer-Encoding": "chunked"})


def held(reply: Reply, gate: threading.Event) -> Reply:
    """Return `reply`, its first byte coming once `gate` is set."""
    return replace(reply, gate=gate)


# --- the server ----------------------------------------------------------------------------------


class ScriptedEndpoint:
    """An OpenAI-compatible endpoint whose every reply a test decides.

    A request takes the next reply of the script; when that is used up, the responder's; when
    there is none, a 500 that is counted in `unscripted`. It runs in a thread of its own, so it
    serves clients of any event loop and of none.

    Concurrency: every method may be called from any thread.
    """

    def __init__(self, *replies: Reply, respond: Responder | None = None) -> None:
        self._lock = threading.Lock()
        self._script = deque(replies)
        self._respond = respond
        self._respond_to: dict[str, Responder] = {}
        self._received: list[Received] = []
        self._arrived = threading.Condition(self._lock)
        self._unscripted = 0
        self._errors: list[Exception] = []
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._port = int(self._socket.getsockname()[1])
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="scripted-endpoint", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The base URL a vendor client is given."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def requests(self) -> tuple[Received, ...]:
        """Every request so far, in order of arrival."""
        with self._lock:
            return tuple(self._received)

    @property
    def count(self) -> int:
        """How many requests have arrived."""
        with self._lock:
            return len(self._received)

    @property
    def unscripted(self) -> int:
        """How many requests found neither a reply nor a responder."""
        with self._lock:
            return self._unscripted

    @property
    def errors(self) -> tuple[Exception, ...]:
        """What responders have raised."""
        with self._lock:
            return tuple(self._errors)

    def script(self, *replies: Reply) -> None:
        """Append replies to the script."""
        with self._lock:
            self._script.extend(replies)

    def respond_with(self, respond: Responder | None) -> None:
        """Let this callable answer what the script does not."""
        with self._lock:
            self._respond = respond

    def respond_to(self, key: str, respond: Responder) -> None:
        """Let this callable answer requests with a key, whoever answers the others."""
        with self._lock:
            self._respond_to[f"Bearer {key}"] = respond

    def always(self, reply: Reply) -> None:
        """Answer so whatever the script does not."""
        self.respond_with(lambda _request: reply)

    def clear(self) -> None:
        """Forget the script, the responder and all that was recorded."""
        with self._lock:
            self._script.clear()
            self._respond = None
            self._respond_to.clear()
            self._received.clear()
            self._unscripted = 0
            self._errors.clear()

    def wait_for(self, count: int, *, timeout: timedelta = timedelta(seconds=10)) -> None:
        """Block until this many requests have arrived.

        Raises:
            TimeoutError: They did not arrive in time.
        """
        with self._arrived:
            arrived = self._arrived.wait_for(
                lambda: len(self._received) >= count, timeout.total_seconds()
            )
            if not arrived:
                raise TimeoutError(f"{len(self._received)} of {count} requests arrived")

    def stop(self) -> None:
        """Close every connection and end the thread.

        Idempotent: a second call changes nothing.
        """
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        connections: set[asyncio.Task[None]] = set()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            connections.add(task)
            try:
                await self._converse(reader, writer)
            except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                # The client left, or `stop` was called: either way the conversation is over, and
                # a cancelled stream callback would only be reported as an error by the loop.
                pass
            finally:
                writer.transport.abort()
                connections.discard(task)

        server = await asyncio.start_server(accept, sock=self._socket)
        await self._stopping.wait()
        server.close()
        for task in tuple(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (received := await _read_request(reader)) is not None:
            reply = self._take(received)
            await asyncio.sleep(reply.delay.total_seconds())
            # A threading.Event can be set by any thread and awaited by none.
            while reply.gate is not None and not reply.gate.is_set():  # noqa: ASYNC110
                await asyncio.sleep(_GATE_POLL_SECONDS)
            await _send(reply, writer)
            if reply.ending is Ending.SILENT:
                await reader.read()
            if reply.ending is Ending.RESET:
                # Lingering for no time makes the close a reset.
                connection: socket.socket = writer.get_extra_info("socket")
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if reply.ending is not Ending.KEPT:
                return

    def _take(self, received: Received) -> Reply:
        with self._arrived:
            self._received.append(received)
            self._arrived.notify_all()
            if self._script:
                return self._script.popleft()
            key = received.headers.get("authorization", "")
            respond = self._respond_to.get(key, self._respond)
            if respond is None:
                self._unscripted += 1
                return status(500, message="The script has no reply for this request.")
        try:
            return respond(received.json)
        except Exception as error:
            with self._lock:
                self._errors.append(error)
            return status(500, message="The responder raised.")


async def _read_request(reader: asyncio.StreamReader) -> Received | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            return None
        raise
    request_line, *header_lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, path, _version = request_line.split(" ", 2)
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in header_lines)
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(
        method=method, path=path, headers=headers, body=body, received_at=datetime.now(UTC)
    )


async def _send(reply: Reply, writer: asyncio.StreamWriter) -> None:
    if not reply.starts:
        return
    headers = {
        "Content-Type": reply.content_type,
        "x-request-id": "req-scripted",
        **({"Content-Length": str(len(reply.body))} if reply.endless_piece is None else {}),
        **reply.headers,
    }
    head = f"HTTP/1.1 {reply.status} Scripted\r\n" + "".join(
        f"{name}: {value}\r\n" for name, value in headers.items()
    )
    writer.write(head.encode("latin-1") + b"\r\n")
    if reply.endless_piece is not None:
        await _send_for_ever(reply.body, reply.endless_piece, writer)
    body = reply.body[: reply.sent_bytes]
    size = reply.piece_bytes or max(len(body), 1)
    for start in range(0, len(body), size):
        if start:
            await asyncio.sleep(reply.piece_interval.total_seconds())
        writer.write(body[start : start + size])
        with contextlib.suppress(ConnectionError):
            await writer.drain()
    await writer.drain()


async def _send_for_ever(body: bytes, piece: bytes, writer: asyncio.StreamWriter) -> None:
    """Send chunks until the client leaves, which raises."""
    while True:
        if body:
            writer.write(f"{len(body):x}\r\n".encode() + body + b"\r\n")
            await writer.drain()
        body = piece
