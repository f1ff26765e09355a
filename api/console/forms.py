"""What people type into forms and addresses, read strictly: what can't be meant is told."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from api.console.refusals import FormError

_T = TypeVar("_T")
_LONGEST: Final = 60


def validated(adapter: TypeAdapter[_T], given: Mapping[str, Any], names: Mapping[str, str]) -> _T:
    """Return a value made of fields.

    Args:
        adapter: Knows what they must be.
        given: Only those that were filled in.
        names: How people know a field, where that is not its name.

    Raises:
        FormError: One of them is not as it must be.
    """
    try:
        return adapter.validate_python(dict(given))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = str(first["loc"][0]) if first["loc"] else "the form"
    # Outside of the handler: pydantic's error quotes the input.
    raise FormError(f"{names.get(name, name)}: {_said(first['msg'])}")


def number_from(name: str, text: str, *, least: float, most: float, default: float) -> float:
    """Return a number that was typed, or the default where nothing was.

    Raises:
        FormError: It is none, or out of bounds.
    """
    if not text.strip():
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise FormError(f"{name}: must be a number from {least:g} to {most:g}")
    return value


def whole_from(name: str, text: str, *, least: int, most: int) -> int | None:
    """Return a whole number that was typed; none where nothing was.

    Raises:
        FormError: It is none, or out of bounds.
    """
    if not text.strip():
        return None
    if not (text.strip().isascii() and text.strip().isdigit() and least <= int(text) <= most):
        raise FormError(f"{name}: must be a whole number from {least} to {most}")
    return int(text)


def as_utc(moment: datetime | None) -> datetime | None:
    """Return a time that was typed without a zone as one of UTC."""
    return None if moment is None else moment.replace(tzinfo=moment.tzinfo or UTC)


def _said(message: str) -> str:
    """Return pydantic's words as ours begin, and no longer than a line."""
    told = message[:1].lower() + message[1:]
    return told if len(told) <= 4 * _LONGEST else f"{told[: 4 * _LONGEST]}…"
