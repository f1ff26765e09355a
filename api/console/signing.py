"""Signing in and out."""

from http import HTTPStatus

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from api.console.pages import to
from api.console.parts import Called, ConsoleParts, Sent
from api.console.session import cookie_of, ended_cookie, local_path
from api.errors import retry_after
from pipeline.access.rights import Permission, may
from pipeline.errors import TooOftenError, UnauthenticatedError

_ENDED = "The session has ended: sign in again."


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter()

    @routes.get("/login")
    async def ask(request: Request) -> Response:
        """Show the form; where nobody need sign in, go on."""
        goes_on = local_path(request.query_params.get("next"))
        if request.state.visitor is not None:
            return RedirectResponse(goes_on, HTTPStatus.SEE_OTHER)
        why = _ENDED if request.query_params.get("why") == "ended" else None
        return _form(request, goes_on, why)

    @routes.post("/login")
    async def enter(request: Request, sent: Sent) -> Response:
        """Open a session for a service account's id and secret."""
        goes_on = local_path(sent.one("next"))
        is_https = request.url.scheme == "https"
        try:
            token, account = await _parts(request).logins.login(
                sent.one("client_id").strip(), sent.one("client_secret").strip()
            )
        except UnauthenticatedError:
            return _form(
                request,
                goes_on,
                "There is no such account with such a secret. `./afterturn accounts list` shows"
                " the ids; a secret was shown once, when it was made.",
                HTTPStatus.UNAUTHORIZED,
            )
        except TooOftenError as error:
            page = _form(
                request, goes_on, f"{str(error).capitalize()}.", HTTPStatus.TOO_MANY_REQUESTS
            )
            page.headers.update(retry_after(error))
            return page
        if not may(account.role, Permission.OPERATE):
            return _form(
                request,
                goes_on,
                f"An account of the role {account.role} may not operate: sign in with an operator's"
                " or an admin's.",
                HTTPStatus.FORBIDDEN,
            )
        entered = RedirectResponse(goes_on, HTTPStatus.SEE_OTHER)
        entered.headers.append("Set-Cookie", cookie_of(token, is_https=is_https))
        return entered

    @routes.post("/logout")
    async def leave(call: Called) -> Response:
        """End the session in this browser; its token is good until its hour is over."""
        left = RedirectResponse(to("/login"), HTTPStatus.SEE_OTHER)
        is_https = call.request.url.scheme == "https"
        left.headers.append("Set-Cookie", ended_cookie(is_https=is_https))
        return left

    return routes


def _form(request: Request, goes_on: str, why: str | None, status: int = HTTPStatus.OK) -> Response:
    pages = _parts(request).pages
    return pages.page(request, "login.html", status=status, goes_on=goes_on, why=why)


def _parts(request: Request) -> ConsoleParts:
    parts: ConsoleParts = request.app.state.console
    return parts
