"""Listening to a vendor's client where it meets the network, and changing nothing.

The clients of OpenAI and Anthropic send every request through an HTTP client (`httpx` or, newer,
`httpx2`). A twin of that client, which shares its connections, notes the bytes that go by. So
whatever the vendor's client returns is its own, whichever of its methods was called, and each of
its retries is seen for what it is. All reading of those bytes happens later, in another thread.
"""

import copy
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum, auto
from functools import cache
from typing import Any, Final, TypeVar

from afterturn.scopes import Conversation
from afterturn.wires.routes import Route

ANSWER_BYTES: Final = 16 * 1024 * 1024
"""The longest answer that is kept to be read; of a longer one nothing is recorded."""

_INNER: Final = "_afterturn_inner"
_TAP: Final = "_afterturn_tap"

HttpT = TypeVar("HttpT")


class End(Enum):
    """How a body ended."""

    READ = auto()
    """The caller had all of it."""
    LEFT = auto()
    """The caller wanted no more of it."""
    BROKEN = auto()
    """The network failed the caller."""


@dataclass(slots=True, kw_only=True)
class Call:
    """One request that was answered, and the answer as it comes."""

    route: Route
    conversation: Conversation
    request: bytes
    started_at: datetime
    started: float
    """By the clock that only goes forward, in seconds."""
    deliver: Callable[["Call"], None]
    """Takes the call when it has ended; it never waits and never raises."""
    response: Any = None
    """The HTTP client's response, for its headers and its way to unpack a body."""
    first_byte: float = 0.0
    ended: float = 0.0
    end: End | None = None
    chunks: list[bytes] = field(default_factory=list[bytes])
    size: int = 0

    def answered(self, response: Any) -> None:
        """Note that an answer began."""
        self.response = response
        self.first_byte = time.monotonic()

    def note(self, chunk: bytes) -> None:
        """Note bytes of the answer."""
        self.size += len(chunk)
        if self.size <= ANSWER_BYTES:
            self.chunks.append(chunk)

    def finish(self, end: End) -> None:
        """Note the end; the first one counts."""
        if self.end is None:
            self.end = end
            self.ended = time.monotonic()
            self.deliver(self)

    @property
    def is_stream(self) -> bool:
        """Whether the answer is a stream of events."""
        return str(self.response.headers.get("content-type", "")).startswith("text/event-stream")

    def body(self) -> bytes | None:
        """Return the answer as the caller read it, unpacked; None if it was too long."""
        if self.size > ANSWER_BYTES:
            return None
        raw = b"".join(self.chunks)
        if not self.response.headers.get("content-encoding"):
            return raw
        response: Any = self.response.__class__
        unpacked: bytes = response(200, headers=self.response.headers, content=raw).content
        return unpacked


Tap = Callable[[Any], Call | None]
"""Says whether a request is listened to; it never waits and never raises."""


def begin(
    route: Route, conversation: Conversation, request: bytes, deliver: Callable[[Call], None]
) -> Call:
    """Return a call that begins now."""
    return Call(
        route=route,
        conversation=conversation,
        request=request,
        started_at=datetime.now(UTC),
        started=time.monotonic(),
        deliver=deliver,
    )


def tapped(http: HttpT, tap: Tap) -> HttpT:
    """Return a twin of an HTTP client which tells the tap; one that is a twin already is renewed.

    Concurrency: twins and the client itself may be used at once, by any number of threads.
    """
    inner: Any = getattr(http, _INNER, http)
    twin = copy.copy(inner)
    twin.__class__ = _twin_class(inner.__class__)
    # The twin keeps the client alive: its end closes the connections that they share.
    setattr(twin, _INNER, inner)
    setattr(twin, _TAP, tap)
    return twin


def is_http_client(value: object) -> bool:
    """Return whether something is an HTTP client that can be listened to."""
    return hasattr(value, "send") and hasattr(value, "build_request") and hasattr(value, "__dict__")


@cache
def _twin_class(base: type[Any]) -> type[Any]:
    send = _async_send(base) if hasattr(base, "aclose") else _sync_send(base)
    return type(base.__name__, (base,), {"send": send, "__del__": _leave_open})


def _heeded(twin: Any, request: Any) -> Call | None:
    tap: Tap = getattr(twin, _TAP)
    return tap(request)


def _leave_open(_twin: Any) -> None:
    """Close nothing: the client whose connections they are does, at its own end."""


def _sync_send(base: Any) -> Any:
    def send(self: Any, request: Any, *, stream: bool = False, **options: Any) -> Any:
        call = _heeded(self, request)
        response = base.send(self, request, stream=stream, **options)
        if call is not None and response.is_success:
            call.answered(response)
            if stream:
                response.stream = _tee(response, call)
            else:
                _read(call, response)
        return response

    return send


def _async_send(base: Any) -> Any:
    async def send(self: Any, request: Any, *, stream: bool = False, **options: Any) -> Any:
        call = _heeded(self, request)
        response = await base.send(self, request, stream=stream, **options)
        if call is not None and response.is_success:
            call.answered(response)
            if stream:
                response.stream = _tee(response, call)
            else:
                _read(call, response)
        return response

    return send


@dataclass(slots=True)
class _Unpacked:
    """A response whose body the HTTP client unpacked already."""

    headers: dict[str, str]


def _read(call: Call, response: Any) -> None:
    call.response = _Unpacked({"content-type": response.headers.get("content-type", "")})
    call.note(response.content)
    call.finish(End.READ)


class _Tee:
    """A stream that is noted as it goes by."""

    def __init__(self, inner: Any, call: Call) -> None:
        self.inner = inner
        self.call = call

    def __iter__(self) -> Iterator[bytes]:
        try:
            for chunk in self.inner:
                self.call.note(chunk)
                yield chunk
        except Exception:
            self.call.finish(End.BROKEN)
            raise
        self.call.finish(End.READ)

    def close(self) -> None:
        try:
            self.inner.close()
        finally:
            self.call.finish(End.LEFT)


class _AsyncTee:
    """The same for coroutines."""

    def __init__(self, inner: Any, call: Call) -> None:
        self.inner = inner
        self.call = call

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self.inner:
                self.call.note(chunk)
                yield chunk
        except Exception:
            self.call.finish(End.BROKEN)
            raise
        self.call.finish(End.READ)

    async def aclose(self) -> None:
        try:
            await self.inner.aclose()
        finally:
            self.call.finish(End.LEFT)


def _tee(response: Any, call: Call) -> Any:
    """Return the stream of a response, noted; it is of the library that the response is of."""
    kind = _AsyncTee if hasattr(response.stream, "aclose") else _Tee
    return _tee_class(kind, response.__class__.__module__.partition(".")[0])(response.stream, call)


@cache
def _tee_class(kind: type[Any], library: str) -> Any:
    base = "AsyncByteStream" if kind is _AsyncTee else "SyncByteStream"
    return type(kind.__name__, (kind, getattr(sys.modules[library], base)), {})
