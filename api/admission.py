"""How much is let in: so many requests at once, so many bytes each. The rest is told so at once.

A runtime must never wait on us because a database does: who finds the room full gets 503 and a
time to try again, and nothing of the request is kept.
"""

from contextlib import suppress
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import answer, unavailable

WAITING: Final = 256
"""Requests that may be under way at once."""
BODY_BYTES: Final = 2 * 1024 * 1024
"""The largest body."""
_OPEN: Final = ("/health/", "/metrics")
"""What answers however full it is."""


class Admission:
    """Lets so many requests in at once."""

    def __init__(self, app: ASGIApp, waiting: int = WAITING) -> None:
        self._app = app
        self._room = waiting

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse at once."""
        if scope["type"] != "http" or scope["path"].startswith(_OPEN):
            await self._app(scope, receive, send)
            return
        if self._room <= 0:
            full = unavailable("too many requests wait for the database: try again in a moment")
            await full(scope, receive, send)
            return
        self._room -= 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._room += 1


class BodyLimit:
    """Refuses what is too large before it is all read."""

    def __init__(self, app: ASGIApp, limit: int = BODY_BYTES) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse as soon as the body is known to be too large."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > self._limit:
            await self._refusal()(scope, receive, send)
            return
        seen = 0
        is_begun = False

        async def bounded() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._limit:
                raise _TooLargeError
            return message

        async def noted(message: Message) -> None:
            nonlocal is_begun
            # Whatever is made of the error on its way up is no answer of ours.
            if seen <= self._limit or is_begun:
                is_begun = True
                await send(message)

        with suppress(_TooLargeError):
            await self._app(scope, bounded, noted)
        if seen > self._limit and not is_begun:
            await self._refusal()(scope, receive, send)

    def _refusal(self) -> ASGIApp:
        return answer(413, "TOO_LARGE", f"a body has at most {self._limit} bytes")


class _TooLargeError(Exception):
    """The body goes on beyond its limit; it never leaves `BodyLimit`."""
