"""`POST /api/v1/oauth/token`: a token of an hour for a client id and its secret.

Source: RFC 6749, sections 2.3.1 (how a client authenticates), 4.4 (client credentials), 5 (what is
answered). Nothing that was sent is repeated.
"""

from base64 import b64decode
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl, unquote_plus

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from api.access import SIGN_IN_PATH
from api.errors import retry_after
from pipeline.access.signing_in import Logins
from pipeline.access.tokens import LIFE
from pipeline.errors import TooOftenError, UnauthenticatedError

_FORM: Final = "application/x-www-form-urlencoded"
_FIELDS: Final = 20
_GRANT: Final = "client_credentials"
_UNCACHED: Final = {"Cache-Control": "no-store", "Pragma": "no-cache"}
_CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="afterturn", charset="UTF-8"'}
_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            _FORM: {
                "schema": {
                    "type": "object",
                    "required": ["grant_type"],
                    "properties": {
                        "grant_type": {"type": "string", "const": _GRANT},
                        "client_id": {"type": "string"},
                        "client_secret": {"type": "string"},
                    },
                }
            }
        },
    }
}


class _RefusedError(Exception):
    """A request for a token that is not as RFC 6749 has it; it never leaves this module."""

    def __init__(self, code: str, description: str) -> None:
        self.code = code
        self.description = description
        super().__init__(description)


def router(logins: Logins) -> APIRouter:
    """Return the route."""
    routes = APIRouter(tags=["signing in"])

    @routes.post(SIGN_IN_PATH, openapi_extra=_BODY)
    async def token(request: Request) -> JSONResponse:
        """Return a token for a service account, by HTTP Basic or by fields of the form."""
        try:
            client_id, secret = await _credentials(request)
            access_token, account = await logins.login(client_id, secret)
        except _RefusedError as refused:
            return _error(HTTPStatus.BAD_REQUEST, refused.code, refused.description)
        except UnauthenticatedError as error:
            return _error(HTTPStatus.UNAUTHORIZED, "invalid_client", str(error), _CHALLENGE)
        except TooOftenError as error:
            return _error(
                HTTPStatus.TOO_MANY_REQUESTS,
                "temporarily_unavailable",
                str(error),
                retry_after(error),
            )
        return JSONResponse(
            {
                "access_token": access_token,
                "token_type": "Bearer",
                "expires_in": int(LIFE.total_seconds()),
                "scope": account.role.value,
            },
            headers=_UNCACHED,
        )

    return routes


async def _credentials(request: Request) -> tuple[str, str]:
    """Return client id and secret.

    Raises:
        _RefusedError: The request is not as it must be.
        UnauthenticatedError: Nothing was sent to authenticate with.
    """
    fields = await _form(request)
    basic = _basic(request.headers.getlist("authorization"))
    grant = fields.get("grant_type")
    if grant is None:
        raise _RefusedError("invalid_request", f"grant_type is required: {_GRANT}")
    if grant != _GRANT:
        raise _RefusedError("unsupported_grant_type", f"the one grant_type there is: {_GRANT}")
    if basic is None:
        if "client_id" not in fields or "client_secret" not in fields:
            raise UnauthenticatedError("send client id and secret, by HTTP Basic or in the form")
        return fields["client_id"], fields["client_secret"]
    if "client_secret" in fields or fields.get("client_id", basic[0]) != basic[0]:
        raise _RefusedError("invalid_request", "send the client's secret in one way only")
    return basic


async def _form(request: Request) -> dict[str, str]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _FORM:
        raise _RefusedError("invalid_request", f"the body must be {_FORM}")
    body = (await request.body()).decode("utf-8", errors="replace")
    try:
        pairs = parse_qsl(body, keep_blank_values=True, max_num_fields=_FIELDS)
    except ValueError:
        raise _RefusedError("invalid_request", "the form has too many fields") from None
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise _RefusedError("invalid_request", "no field may be sent twice")
    # What is sent without a value counts as not sent (section 3.2).
    return {name: value for name, value in fields.items() if value}


def _basic(sent: list[str]) -> tuple[str, str] | None:
    """Return what HTTP Basic carries, decoded as section 2.3.1 has it; none where nothing is sent.

    Raises:
        UnauthenticatedError: It is another scheme, or can't be read.
    """
    if not sent:
        return None
    scheme, _, carried = sent[0].partition(" ")
    if len(sent) > 1 or scheme.lower() != "basic":
        raise UnauthenticatedError("authenticate by HTTP Basic, or by fields of the form")
    try:
        client_id, _, secret = b64decode(carried.strip(), validate=True).decode().partition(":")
    except ValueError:
        raise UnauthenticatedError("what HTTP Basic carries can't be read") from None
    return unquote_plus(client_id), unquote_plus(secret)


def _error(
    status: HTTPStatus,
    code: str,
    description: str,
    headers: dict[str, str] | None = None,
) -> JSONResponse:
    said = {"error": code, "error_description": description}
    if status is HTTPStatus.TOO_MANY_REQUESTS:
        # RFC 6749 has no word for it; every other route says it so.
        said["code"] = "RATE_LIMITED"
    return JSONResponse(said, status_code=status, headers=_UNCACHED | (headers or {}))
