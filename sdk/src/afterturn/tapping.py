"""Listening to a vendor's client where it meets the network, and changing nothing.

The clients of OpenAI and Anthropic send every request through an HTTP client (`httpx` or, newer,
`httpx2`). A twin of that client, which shares its connections, notes the bytes that go by. So
whatever the vendor's client returns is its own, whichever of its methods was called, and each of
its retries is seen for what it is. All reading of those bytes happens later, in another thread.
"""

import copy
import re
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import aclosing, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum, auto
from functools import cache
from typing import Any, Final, TypeVar

from afterturn.scopes import Conversation
from afterturn.wires.routes import Route

ANSWER_BYTES: Final = 16 * 1024 * 1024
"""The longest answer that is kept to be read; of a longer one nothing is recorded."""

_EVENT_END: Final = re.compile(rb"\r?\n\r?\n")
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
    is_stream: bool = False
    """Whether the answer is a stream of events."""
    first_byte: float = 0.0
    ended: float = 0.0
    end: End | None = None
    is_pulling: bool = False
    """Whether the body is waited for: then what happens there decides how it ended."""
    chunks: list[bytes] = field(default_factory=list[bytes])
    size: int = 0

    def answered(self, response: Any) -> None:
        """Note that an answer began."""
        kind = str(response.headers.get("content-type", ""))
        self.is_stream = kind.startswith("text/event-stream")
        self.first_byte = time.monotonic()

    def note(self, chunk: bytes) -> None:
        """Note bytes of the answer."""
        self.size += len(chunk)
        if self.size <= ANSWER_BYTES:
            self.chunks.append(chunk)

    @contextmanager
    def reading(self) -> Generator[None]:
        """Note how the reading inside ends."""
        self.is_pulling = True
        try:
            yield
        except Exception:
            self.finish(End.BROKEN)
            raise
        except BaseException:
            self.finish(End.LEFT)
            raise
        self.finish(End.READ)

    def closed(self) -> None:
        """Note that the body was closed, be it by the HTTP client, at its end, or by the caller."""
        if not self.is_pulling:
            self.finish(End.LEFT)

    def finish(self, end: End) -> None:
        """Note the end; the first one counts."""
        if self.end is None:
            self.end = end
            self.ended = time.monotonic()
            self.deliver(self)

    def body(self) -> bytes | None:
        """Return the answer as far as the caller had it; None if it was too long."""
        return None if self.size > ANSWER_BYTES else b"".join(self.chunks)


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


def pieces(chunk: bytes) -> list[bytes]:
    """Return the same bytes, cut behind each event, so that whoever leaves has had no more."""
    ends = [found.end() for found in _EVENT_END.finditer(chunk)]
    if not ends or ends == [len(chunk)]:
        return [chunk]
    cut = [chunk[begin:end] for begin, end in zip([0, *ends], [*ends, len(chunk)], strict=True)]
    return cut if cut[-1] else cut[:-1]


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
                _listen(call, response)
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
                _listen_async(call, response)
            else:
                _read(call, response)
        return response

    return send


def _read(call: Call, response: Any) -> None:
    call.note(response.content)
    call.finish(End.READ)


def _listen(call: Call, response: Any) -> None:
    inner, close = response.iter_bytes, response.close

    def iter_bytes(chunk_size: int | None = None) -> Iterator[bytes]:
        with call.reading(), closing(inner(chunk_size)) as chunks:
            for chunk in chunks:
                call.is_pulling = False
                for piece in pieces(chunk) if chunk_size is None else (chunk,):
                    call.note(piece)
                    yield piece
                call.is_pulling = True

    def closed() -> None:
        try:
            close()
        finally:
            call.closed()

    response.iter_bytes, response.close = iter_bytes, closed


def _listen_async(call: Call, response: Any) -> None:
    inner, close = response.aiter_bytes, response.aclose

    async def aiter_bytes(chunk_size: int | None = None) -> AsyncIterator[bytes]:
        with call.reading():
            async with aclosing(inner(chunk_size)) as chunks:
                async for chunk in chunks:
                    call.is_pulling = False
                    for piece in pieces(chunk) if chunk_size is None else (chunk,):
                        call.note(piece)
                        yield piece
                    call.is_pulling = True

    async def closed() -> None:
        try:
            await close()
        finally:
            call.closed()

    response.aiter_bytes, response.aclose = aiter_bytes, closed
