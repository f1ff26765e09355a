"""The console as an application of its own, under `/console` of the HTTP server."""

from http import HTTPStatus
from pathlib import Path
from typing import Final

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pymongo.errors import PyMongoError
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from api.console import (
    audit,
    letter_acts,
    letters,
    overview,
    replays,
    sessions,
    signing,
    users,
)
from api.console.gate import Gate
from api.console.parts import ConsoleParts
from api.console.refusals import ChangedError, FormError, UnknownPageError
from pipeline.errors import BrokerUnavailableError, JobError, LetterError, NotHeldError

_STATIC: Final = Path(__file__).parent / "static"
_REFUSALS: Final[dict[type[Exception], tuple[int, str]]] = {
    ChangedError: (HTTPStatus.CONFLICT, "It is not as you saw it"),
    LetterError: (HTTPStatus.CONFLICT, "That can't be done with the letter"),
    JobError: (HTTPStatus.CONFLICT, "That can't be done with the replay"),
    NotHeldError: (HTTPStatus.CONFLICT, "Nothing is held back"),
    FormError: (HTTPStatus.UNPROCESSABLE_ENTITY, "A field can't be read"),
    UnknownPageError: (HTTPStatus.NOT_FOUND, "There is no such page"),
}
"""Status and title of the page that says why."""

log = structlog.get_logger(__name__)


def console(parts: ConsoleParts) -> FastAPI:
    """Return the application. Nothing is connected or started by it."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.state.console = parts
    for routes in (
        signing.router(),
        overview.router(),
        letters.router(),
        letter_acts.router(),
        letters.one_router(),
        replays.router(),
        sessions.router(),
        users.router(),
        audit.router(),
    ):
        app.include_router(routes)
    app.mount("/static", StaticFiles(directory=_STATIC), name="static")

    _register(app, parts)
    app.add_middleware(
        Gate,
        gatekeeper=parts.gatekeeper,
        tokens=parts.tokens,
        metrics=parts.installation.metrics,
        refuse=parts.pages.refusal,
    )
    return app


def _register(app: FastAPI, parts: ConsoleParts) -> None:
    """Answer every error with a page that says what to do."""

    async def refused(request: Request, error: Exception) -> Response:
        status, title = _REFUSALS[type(error)]
        text = str(error)
        return parts.pages.refusal(request, status, title, f"{text[:1].upper()}{text[1:]}.")

    async def unavailable(request: Request, error: Exception) -> Response:
        log.warning("page_unavailable", exception=type(error).__qualname__)
        is_broker = isinstance(error, BrokerUnavailableError)
        return parts.pages.refusal(
            request,
            HTTPStatus.SERVICE_UNAVAILABLE,
            f"{'Kafka' if is_broker else 'The database'} does not answer",
            "What was asked for may be done or not: look again in a moment. `./afterturn doctor`"
            " tells more.",
        )

    async def unreadable(request: Request, _error: Exception) -> Response:
        return parts.pages.refusal(
            request,
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "The address can't be read",
            "Something in it is none of what may stand there: start again from the overview.",
        )

    async def http(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        return parts.pages.refusal(
            request,
            status,
            "There is no such page" if status == HTTPStatus.NOT_FOUND else "The request is refused",
            "Start from the overview.",
        )

    for kind in _REFUSALS:
        app.add_exception_handler(kind, refused)
    app.add_exception_handler(PyMongoError, unavailable)
    app.add_exception_handler(BrokerUnavailableError, unavailable)
    app.add_exception_handler(RequestValidationError, unreadable)
    app.add_exception_handler(HTTPException, http)
