"""Access tokens: signed by this installation, good for an hour, for one project.

Source: RFC 7519 (JWT), with HS256 as the one algorithm there is; RFC 8725 for what to refuse.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import jwt
from pydantic import BaseModel, ValidationError

from pipeline.errors import UnauthenticatedError
from schemas.access import ServiceAccount

LIFE: Final = timedelta(hours=1)
SKEW: Final = timedelta(minutes=1)
"""How far ahead of ours the clock may have been that a token was made by."""
SIGNING_PURPOSE: Final = "signing of access tokens"
"""What the key of `Tokens` is derived for."""
_ALGORITHM: Final = "HS256"
_ISSUER: Final = "afterturn"
_AUDIENCE: Final = "afterturn memory server"
_CLAIMS: Final = ("iss", "aud", "sub", "sec", "prj", "jti", "iat", "exp")
_LENGTH: Final = 8192
"""The longest token that is looked at; ours are shorter, whatever a project is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What a token says, and this installation signed."""

    account_id: str
    secret_id: str
    project_id: str
    token_id: str


class _Claims(BaseModel):
    """The claims as they are signed."""

    sub: str
    sec: str
    prj: str
    jti: str
    iat: int
    exp: int


class Tokens:
    """Makes and reads the tokens of one installation.

    Args:
        key: Derived from the installation's for `SIGNING_PURPOSE`.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        # Ours all begin alike, so whatever begins otherwise need not be parsed at all.
        header, _, _ = jwt.encode({}, key, algorithm=_ALGORITHM).partition(".")
        self._start = f"{header}."

    def make(self, account: ServiceAccount, secret_id: str, *, token_id: str, now_ms: int) -> str:
        """Return a token for an account that signed in with a secret."""
        issued = now_ms // 1000
        claims: dict[str, str | int] = {
            "iss": _ISSUER,
            "aud": _AUDIENCE,
            "sub": account.account_id,
            "sec": secret_id,
            "prj": account.project_id,
            "jti": token_id,
            "iat": issued,
            "exp": issued + int(LIFE.total_seconds()),
        }
        return jwt.encode(claims, self._key, algorithm=_ALGORITHM)

    def read(self, token: str, *, now_ms: int) -> Claims:
        """Return what a token says.

        Raises:
            UnauthenticatedError: It is none of ours, or not of this time.
        """
        if len(token) > _LENGTH or not token.isascii() or not token.startswith(self._start):
            raise UnauthenticatedError("the token is none of this server's")
        try:
            said = jwt.decode(
                token,
                self._key,
                algorithms=[_ALGORITHM],
                issuer=_ISSUER,
                audience=_AUDIENCE,
                # Times are compared below, with a clock that all processes share.
                options={"require": list(_CLAIMS), "verify_exp": False, "verify_iat": False},
            )
            claims = _Claims.model_validate(said, strict=True)
        except (jwt.PyJWTError, ValidationError):
            # Their words quote the token's.
            raise UnauthenticatedError("the token is none of this server's") from None
        if now_ms >= claims.exp * 1000:
            raise UnauthenticatedError("the token has expired: get another with the client secret")
        if claims.iat * 1000 > now_ms + SKEW.total_seconds() * 1000:
            raise UnauthenticatedError("the token is from the future: the servers' clocks disagree")
        return Claims(
            account_id=claims.sub,
            secret_id=claims.sec,
            project_id=claims.prj,
            token_id=claims.jti,
        )
