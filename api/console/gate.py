"""The way into the console: nobody gets a page, and no form counts, that is not let through here.

It stands before the routes, so that a page that is added is closed too.
"""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl, urlencode

from pymongo.errors import PyMongoError
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.access import Gatekeeper
from api.console.session import (
    CONSOLE,
    LOGIN,
    FormTokens,
    Visitor,
    comes_from_here,
    is_safe,
    session_of,
)
from api.errors import retry_after
from pipeline.access.rights import Permission
from pipeline.errors import TooOftenError, UnauthenticatedError
from pipeline.metrics import Metrics

STYLE: Final = f"{CONSOLE}/static/"
"""What needs no session: it tells nothing."""
WORDS: Final = (f"{CONSOLE}/sessions", f"{CONSOLE}/users")
"""What shows somebody's words, and needs more than to operate."""
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self';"
        " base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    # Not `no-referrer`: browsers then hide whence a form comes, which is looked at.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_FORM: Final = "application/x-www-form-urlencoded"
_FIELDS: Final = 5000

Refuse = Callable[[Request, int, str, str], Response]
"""Makes the page that says why not: of a status, a title and a text."""


class Gate:
    """Lets in who may operate, and forms that their own pages sent."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        gatekeeper: Gatekeeper | None,
        tokens: FormTokens,
        metrics: Metrics,
        refuse: Refuse,
    ) -> None:
        self._app = app
        self._gatekeeper = gatekeeper
        self._tokens = tokens
        self._metrics = metrics
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse. Who asks is in the request's state, and the form that was sent."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        request = Request(scope, receive)
        scope.setdefault("state", {})["visitor"] = None
        refused = await self._refused(request)
        if refused is not None:
            await refused(scope, receive, guarded)
            return
        await self._app(scope, _nothing_more if _has_body(scope) else receive, guarded)

    async def _refused(self, request: Request) -> Response | None:
        """Return why a request goes no further; none where it does."""
        path: str = request.scope["path"]
        if path.startswith(STYLE):
            return None
        is_https = request.url.scheme == "https"
        if not is_safe(request.method) and not comes_from_here(request.headers, is_https=is_https):
            return self._refuse(request, HTTPStatus.FORBIDDEN, *_FROM_ELSEWHERE)
        try:
            visitor, why = await self._visitor(request.headers, is_https=is_https)
        except PyMongoError:
            return self._refuse(request, HTTPStatus.SERVICE_UNAVAILABLE, *_NO_DATABASE)
        except TooOftenError as error:
            self._metrics.request_refused("rate_limited")
            page = self._refuse(
                request, HTTPStatus.TOO_MANY_REQUESTS, "Too many requests", f"{error}."
            )
            page.headers.update(retry_after(error))
            return page
        request.scope["state"]["visitor"] = visitor
        return self._unfit(request, path, visitor, why) or await self._form(request, visitor)

    def _unfit(
        self, request: Request, path: str, visitor: Visitor | None, why: str
    ) -> Response | None:
        """Return why a page is not for whoever asks; none where it is."""
        if visitor is None:
            return None if path == LOGIN else self._to_login(request, why)
        missing = _missing(path, visitor)
        if missing is None:
            return None
        self._metrics.request_refused("forbidden")
        return self._refuse(
            request,
            HTTPStatus.FORBIDDEN,
            "Not with this account",
            f"Its role does not include {missing}: sign in with one that does.",
        )

    async def _visitor(self, headers: Headers, *, is_https: bool) -> tuple[Visitor | None, str]:
        """Return who asks; nobody, and why, where that is not known."""
        if self._gatekeeper is None:
            return Visitor(principal=None), ""
        token = session_of(headers.get("cookie", ""), is_https=is_https)
        if token is None:
            return None, ""
        try:
            principal = await self._gatekeeper.authenticator.principal(token)
        except UnauthenticatedError:
            return None, "ended"
        wait = self._gatekeeper.buckets.take(principal.token_id, self._gatekeeper.monotonic())
        if wait:
            raise TooOftenError("this session asks too often: ask more slowly", wait)
        return Visitor(principal=principal), ""

    def _to_login(self, request: Request, why: str) -> Response:
        self._metrics.request_refused("unauthenticated")
        if not is_safe(request.method):
            return self._refuse(
                request,
                HTTPStatus.UNAUTHORIZED,
                "The session has ended",
                "Nothing was done. Sign in, and do it again.",
            )
        query = request.url.query
        asked = request.scope["path"] + (f"?{query}" if query else "")
        told = {"next": asked} | ({"why": why} if why else {})
        return RedirectResponse(f"{LOGIN}?{urlencode(told)}", HTTPStatus.SEE_OTHER)

    async def _form(self, request: Request, visitor: Visitor | None) -> Response | None:
        """Read the form that was sent, and refuse one that no page of this session made."""
        if is_safe(request.method):
            return None
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        body = (await request.body()).decode("utf-8", errors="replace")
        try:
            fields = parse_qsl(body, max_num_fields=_FIELDS) if kind == _FORM else []
        except ValueError:
            fields = []
        request.scope["state"]["form"] = fields
        sent = dict(fields).get("form_token", "")
        if self._tokens.is_of("" if visitor is None else visitor.session_id, sent):
            return None
        return self._refuse(request, HTTPStatus.FORBIDDEN, *_OF_ANOTHER_SESSION)


_FROM_ELSEWHERE: Final = (
    "This form came from elsewhere",
    "Nothing was done. Open the console and send the form from there; a proxy before it must pass"
    " the Host header on as it is.",
)
_OF_ANOTHER_SESSION: Final = (
    "This form is not of this session",
    "Nothing was done. Go back, load the page again, and send the form from there.",
)
_NO_DATABASE: Final = (
    "The database does not answer",
    "Try again in a moment; `./afterturn doctor` tells more.",
)


def _missing(path: str, visitor: Visitor) -> Permission | None:
    """Return what a visitor would need for a page, and has not."""
    needed = Permission.WORDS if path.startswith(WORDS) else Permission.OPERATE
    return None if visitor.may(needed) else needed


def _has_body(scope: Scope) -> bool:
    return not is_safe(scope["method"])


async def _nothing_more() -> Message:
    """Stand for a body that is read already."""
    return {"type": "http.request", "body": b"", "more_body": False}
