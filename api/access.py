"""Who gets in: with sign-in on, nobody without a token, whatever the route, unless it is open.

It stands before the routes and before any body is read, so a route that is added is closed too.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from pymongo.errors import PyMongoError
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from api.errors import answer, too_often, unavailable
from pipeline.access.rates import Buckets, Rate
from pipeline.access.rights import Permission, may
from pipeline.access.signing_in import Authenticator, Principal
from pipeline.errors import TooOftenError, UnauthenticatedError
from pipeline.metrics import Metrics, Refusal

SIGN_IN_PATH: Final = "/api/v1/oauth/token"
OPEN: Final = frozenset({"/health/live", "/health/ready", SIGN_IN_PATH})
"""What needs no token: it tells nothing of anybody."""
CONSOLE: Final = "/console"
"""What has a gate of its own (`api/console/gate.py`), for sessions of browsers."""
_NEEDS: Final = {"/metrics": Permission.METRICS, "/openapi.json": None}
"""What a path needs that is not of the memory; none: a token of any role."""
_PROJECTS: Final = "/api/v1/projects/"
_SCHEME: Final = "bearer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gatekeeper:
    """What knows who asks, and how often."""

    authenticator: Authenticator
    buckets: Buckets
    monotonic: Callable[[], float]


def rate_of(requests_per_second: float) -> Rate:
    """Return what one token may ask: two seconds' worth at once."""
    return Rate(burst=max(1, math.ceil(2 * requests_per_second)), per_second=requests_per_second)


class Access:
    """Lets in who has a token, to what its role may do in its project."""

    def __init__(self, app: ASGIApp, gatekeeper: Gatekeeper, metrics: Metrics) -> None:
        self._app = app
        self._gatekeeper = gatekeeper
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse; who asks is in the request's state as `principal`."""
        path = scope.get("path", "")
        has_own_gate = path == CONSOLE or path.startswith(f"{CONSOLE}/")
        if scope["type"] != "http" or path in OPEN or has_own_gate:
            await self._app(scope, receive, send)
            return
        refused = await self._refused(scope)
        await (refused or self._app)(scope, receive, send)

    async def _refused(self, scope: Scope) -> JSONResponse | None:
        """Return why a request goes no further; none where it does."""
        token = _bearer(scope)
        if token is None:
            return self._unauthenticated("sign in: send a token as `Authorization: Bearer`", "")
        try:
            principal = await self._gatekeeper.authenticator.principal(token)
        except UnauthenticatedError as error:
            return self._unauthenticated(str(error), ', error="invalid_token"')
        except PyMongoError:
            return unavailable("the database does not answer: try again in a moment")
        wait = self._gatekeeper.buckets.take(principal.token_id, self._gatekeeper.monotonic())
        if wait:
            self._metrics.request_refused("rate_limited")
            return too_often(TooOftenError("this token asks too often: ask more slowly", wait))
        if (why := _forbidden(scope["path"], principal)) is not None:
            return self._told("forbidden", answer(HTTPStatus.FORBIDDEN, *why))
        scope.setdefault("state", {})["principal"] = principal
        return None

    def _unauthenticated(self, error: str, more: str) -> JSONResponse:
        headers = {"WWW-Authenticate": f'Bearer realm="afterturn"{more}'}
        refused = answer(HTTPStatus.UNAUTHORIZED, "UNAUTHENTICATED", error, headers=headers)
        return self._told("unauthenticated", refused)

    def _told(self, reason: Refusal, refused: JSONResponse) -> JSONResponse:
        self._metrics.request_refused(reason)
        return refused


def _forbidden(path: str, principal: Principal) -> tuple[str, str] | None:
    """Return code and reason why a path is not for somebody; none where it is."""
    needed = _NEEDS.get(path, Permission.MEMORY)
    if needed is not None and not may(principal.role, needed):
        return "FORBIDDEN", f"the role {principal.role} does not include {needed}"
    if path.startswith(_PROJECTS):
        named = path.removeprefix(_PROJECTS).partition("/")[0]
        if named != principal.project_id:
            return "TENANCY_MISMATCH", "the project of the path is not the token's"
    return None


def _bearer(scope: Scope) -> str | None:
    """Return the token that was sent, if exactly one was."""
    sent = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(sent) != 1:
        return None
    scheme, _, token = sent[0].decode("latin-1").partition(" ")
    return token.strip() if scheme.lower() == _SCHEME and token.strip() else None
