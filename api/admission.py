"""How much is let in: so many requests at once, so many bytes each. The rest is told so at once.

A runtime must never wait on us because a database does: who finds the room full gets 503 and a
time to try again, and nothing of the request is kept.
"""

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.access import CONSOLE, SIGN_IN_PATH
from api.errors import answer, unavailable

WAITING: Final = 256
"""Requests that may be under way at once."""
SIGNING_IN: Final = 32
"""How many of those who sign in; a room of its own, since anybody may fill it."""
BODY_TIME: Final = timedelta(seconds=30)
"""How long a body may take to arrive: who is under way takes room from others."""
BODY_BYTES: Final = 2 * 1024 * 1024
"""The largest body."""
_SIGN_IN: Final = (SIGN_IN_PATH, f"{CONSOLE}/login")
_OPEN: Final = ("/health/", "/metrics")
"""What answers however full it is."""


class Admission:
    """Lets so many requests in at once."""

    def __init__(self, app: ASGIApp, waiting: int = WAITING, signing_in: int = SIGNING_IN) -> None:
        self._app = app
        self._room = {False: waiting, True: signing_in}
        """By whether it is for who signs in."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse at once."""
        if scope["type"] != "http" or scope["path"].startswith(_OPEN):
            await self._app(scope, receive, send)
            return
        room = scope["path"] in _SIGN_IN
        if self._room[room] <= 0:
            full = unavailable("too many requests wait for the database: try again in a moment")
            await full(scope, receive, send)
            return
        self._room[room] -= 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._room[room] += 1


class BodyLimit:
    """Refuses what is too large before it is all read, and what does not arrive in time."""

    def __init__(
        self, app: ASGIApp, limit: int = BODY_BYTES, within: timedelta = BODY_TIME
    ) -> None:
        self._app = app
        self._limit = limit
        self._within = within

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse as soon as the body is known to be too large or too late."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > self._limit:
            await self._refusal()(scope, receive, send)
            return
        seen = 0
        refusal: ASGIApp | None = None
        is_begun = is_read = False
        ends_at = asyncio.get_running_loop().time() + self._within.total_seconds()

        async def bounded() -> Message:
            nonlocal seen, is_read, refusal
            try:
                # Once it is read, what is waited for is the caller's going away.
                async with asyncio.timeout_at(None if is_read else ends_at):
                    message = await receive()
            except TimeoutError:
                refusal = answer(408, "TOO_SLOW", "the body did not arrive in time: send it again")
                raise _UnreadError from None
            is_read = not message.get("more_body", False)
            seen += len(message.get("body", b""))
            if seen > self._limit:
                refusal = self._refusal()
                raise _UnreadError
            return message

        async def noted(message: Message) -> None:
            nonlocal is_begun
            # Whatever is made of the error on its way up is no answer of ours.
            if refusal is None or is_begun:
                is_begun = True
                await send(message)

        with suppress(_UnreadError):
            await self._app(scope, bounded, noted)
        if refusal is not None and not is_begun:
            await refusal(scope, receive, send)

    def _refusal(self) -> ASGIApp:
        return answer(413, "TOO_LARGE", f"a body has at most {self._limit} bytes")


class _UnreadError(Exception):
    """The body is not read to its end; it never leaves `BodyLimit`."""
