"""What `/openapi.json` says of refusals: any route may answer with any of them."""

from typing import Any, Final

from pydantic import BaseModel, Field


class Mending(BaseModel):
    """A field of a request and the rule it broke."""

    field: str
    rule: str


class Refusal(BaseModel):
    """Why a request was refused. Nothing of what was sent is quoted."""

    error: str = Field(examples=["user_id: is required"])
    """What is wrong, and what to do."""
    code: str = Field(examples=["INVALID_INPUT"])
    """Which kind of refusal; it stays the same over versions."""
    problems: list[Mending] | None = None
    """The fields to mend, where there are such."""


_MEANINGS: Final = {
    400: "A filter that can't be had, or nobody named whom the read is about.",
    401: "No token, or one that is not valid.",
    403: "The token is another project's, or its role may not do this.",
    404: "No memory of that id is in the scope of the request; or there is no such route.",
    408: "The body did not arrive in time.",
    409: "The idempotency key is another turn's.",
    413: "More than a body or a memory may hold.",
    422: "Fields that break rules; `problems` names them.",
    429: "Too often, or more than the project's quota: try again after `Retry-After`.",
    503: "The database does not answer, or too many wait for it: try again after `Retry-After`.",
}
REFUSALS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"model": Refusal, "description": meaning} for status, meaning in _MEANINGS.items()
}
"""By status."""
