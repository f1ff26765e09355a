"""Reading JSON from elsewhere that nobody has checked: whatever it is, it does not raise."""

from typing import Any, cast


def field_of(value: object, name: str) -> Any:
    """Return a field of what should be an object; none if it is not there."""
    return object_of(value).get(name)


def object_of(value: object) -> dict[str, Any]:
    """Return what should be an object; an empty one if it is none."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def list_of(value: object) -> list[Any]:
    """Return what should be a list; an empty one if it is none."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def text_of(value: object) -> str:
    """Return what should be a text; an empty one if it is none."""
    return value if isinstance(value, str) else ""
