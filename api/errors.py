"""What a caller is told when something fails: one shape, never a word of what was sent.

`error` says what is wrong and what to do, `code` is stable, `problems` names fields. 404 is for ids
and routes only, since clients take a 404 of the core routes for a wrong address.
"""

import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pymongo.errors import DocumentTooLarge, PyMongoError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline.errors import (
    ConflictError,
    FilterError,
    ForbiddenError,
    InvalidInputError,
    Problem,
    QuotaExceededError,
    RecordingUnavailableError,
    SettingsUnreadableError,
    TooOftenError,
    UnknownMemoryError,
    UnknownTypeError,
    UnscopedReadError,
    UnsupportedError,
)
from pipeline.failing.failures import our_frame
from pipeline.recording import rule_of

RETRY_AFTER: Final = {"Retry-After": "1"}

log = structlog.get_logger(__name__)


def register(app: FastAPI) -> None:
    """Answer every error of ours, and every one of nobody's, in one shape."""
    app.add_exception_handler(InvalidInputError, _invalid)
    app.add_exception_handler(RequestValidationError, _unreadable)
    app.add_exception_handler(FilterError, _filter)
    app.add_exception_handler(ConflictError, _conflict)
    app.add_exception_handler(UnknownMemoryError, _unknown)
    app.add_exception_handler(UnsupportedError, _unsupported)
    app.add_exception_handler(UnknownTypeError, _unknown_type)
    app.add_exception_handler(RecordingUnavailableError, _unavailable)
    app.add_exception_handler(PyMongoError, _unavailable)
    app.add_exception_handler(SettingsUnreadableError, _unreadable_settings)
    app.add_exception_handler(DocumentTooLarge, _too_large)
    app.add_exception_handler(ForbiddenError, _forbidden)
    app.add_exception_handler(UnscopedReadError, _unscoped)
    app.add_exception_handler(QuotaExceededError, _used_up)
    app.add_exception_handler(HTTPException, _http)


def answer(
    status: int, code: str, error: str, *, headers: Mapping[str, str] | None = None, **more: Any
) -> JSONResponse:
    """Return an error as it is sent."""
    return JSONResponse(
        {"error": error, "code": code, **more}, status_code=status, headers=dict(headers or {})
    )


def unavailable(error: str) -> JSONResponse:
    """Return the answer that asks to try again soon."""
    return answer(503, "UNAVAILABLE", error, headers=RETRY_AFTER)


def too_often(error: TooOftenError, code: str = "RATE_LIMITED") -> JSONResponse:
    """Return the answer that says when to try again."""
    return answer(429, code, str(error), headers=retry_after(error))


def retry_after(error: TooOftenError) -> dict[str, str]:
    """Return the header that says so, in whole seconds: never too early."""
    return {"Retry-After": str(max(1, math.ceil(error.wait_seconds)))}


def _problems(problems: tuple[Problem, ...]) -> JSONResponse:
    said = "; ".join(f"{problem.field}: {problem.rule}" for problem in problems)
    listed = [{"field": problem.field, "rule": problem.rule} for problem in problems]
    return answer(422, "INVALID_INPUT", said, problems=listed)


async def _invalid(_request: Request, error: Exception) -> JSONResponse:
    return _problems(error.problems if isinstance(error, InvalidInputError) else ())


async def _unreadable(_request: Request, error: Exception) -> JSONResponse:
    """What FastAPI would say quotes the input; we name field and rule."""
    found: Sequence[Any] = error.errors() if isinstance(error, RequestValidationError) else ()
    return _problems(tuple(_problem(each) for each in found))


def _problem(details: Any) -> Problem:
    """Name the declared field, the second of its place: what lies deeper are the caller's keys."""
    place = details["loc"][1:2]
    field = str(place[0]) if place and isinstance(place[0], str) else "body"
    return Problem(field=field, rule=rule_of(details))


async def _filter(_request: Request, error: Exception) -> JSONResponse:
    return answer(400, "INVALID_FILTER", str(error))


async def _conflict(_request: Request, error: Exception) -> JSONResponse:
    return answer(409, "IDEMPOTENCY_CONFLICT", str(error))


async def _unknown(_request: Request, _error: Exception) -> JSONResponse:
    return answer(404, "MEMORY_NOT_FOUND", "no memory of that id is in the scope of this request")


async def _forbidden(request: Request, error: Exception) -> JSONResponse:
    request.app.state.parts.metrics.request_refused("forbidden")
    return answer(403, "TENANCY_MISMATCH", str(error))


async def _unscoped(_request: Request, error: Exception) -> JSONResponse:
    return answer(400, "SCOPE_REQUIRED", str(error))


async def _used_up(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, QuotaExceededError):
        raise TypeError("this answers what a quota refused")
    request.app.state.parts.metrics.request_refused("quota_exceeded")
    return too_often(error, "QUOTA_EXCEEDED")


async def _unsupported(_request: Request, error: Exception) -> JSONResponse:
    """Clients take a 404 here for a server without such routes, which it is for them."""
    return answer(404, "NOT_SUPPORTED", str(error))


async def _unknown_type(_request: Request, error: Exception) -> JSONResponse:
    return answer(404, "UNKNOWN_TYPE", str(error))


async def _unavailable(_request: Request, error: Exception) -> JSONResponse:
    log.warning("request_unavailable", exception=type(error).__qualname__)
    return unavailable("the database does not answer: try again with the same idempotency key")


async def _unreadable_settings(_request: Request, error: Exception) -> JSONResponse:
    log.warning("settings_unreadable", detail=str(error))
    return unavailable("the settings of this project can't be read: its operator has to mend them")


async def _http(request: Request, error: Exception) -> JSONResponse:
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == HTTPStatus.NOT_FOUND:
        return answer(404, "ROUTE_NOT_FOUND", "there is no such route: see /openapi.json")
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        return answer(405, "METHOD_NOT_ALLOWED", f"the route takes no {request.method}")
    return answer(status, "REFUSED", "the request was refused")


async def _too_large(_request: Request, _error: Exception) -> JSONResponse:
    return answer(
        413, "MEMORY_TOO_LARGE", "the memory and its history are more than a document can hold"
    )


class Settling:
    """The one place that settles what nobody foresaw: the log has its type, the caller a 500.

    What it says may hold words of the request, so it goes no further: a server that met it would
    log it whole.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, whatever happens; an answer that has begun is cut off."""
        is_begun = False

        async def noted(message: Message) -> None:
            nonlocal is_begun
            is_begun = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception as error:  # whatever it is, see above
            # Its message, which a traceback would show, may hold words of the request.
            log.error(  # noqa: TRY400
                "request_failed", exception=type(error).__qualname__, frame=our_frame(error)
            )
            cut = ConnectionAbortedError("the answer was cut off by a defect")
        else:
            return
        if is_begun:
            raise cut
        bug = answer(500, "BUG", "this is a defect of the server; its log names the exception")
        await bug(scope, receive, send)
