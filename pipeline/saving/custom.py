"""Records of the types that a project declares itself: which tags they may have, and what matches.

Tags come flat, a nested one as `group.tag`, or nested by one level; both are the same.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Final

from pydantic import JsonValue

from pipeline.errors import InvalidInputError, Problem
from schemas.memory import CustomContent, Tag, TagValue
from schemas.project import CustomType

TAG_CHARACTERS: Final = 1000
"""The longest text a tag may have."""


def tags_of(declared: CustomType, given: Mapping[str, JsonValue]) -> tuple[Tag, ...]:
    """Return tags as they are stored, by name.

    Args:
        declared: The type they are tags of.
        given: As they were sent.

    Raises:
        InvalidInputError: One is not declared, stands twice, or is no text, number or boolean; the
            message names what may be declared and nothing of what was sent.
    """
    tags: dict[str, Tag] = {}
    for name, value in _flat(given):
        if name not in declared.tag_names:
            known = ", ".join(sorted(declared.tag_names)) or "none"
            raise _refused(f"must be declared for the type, which has: {known}")
        if name in tags:
            raise _refused("must name each tag once: `a.b` and `b` within `a` are the same")
        tags[name] = Tag(name=name, value=_value(value))
    return tuple(tags[name] for name in sorted(tags))


def matches(content: CustomContent, wanted: tuple[Tag, ...]) -> bool:
    """Return whether a content has all of these tags, value by value."""
    has = {tag.name: tag.value for tag in content.tags}
    return all(tag.name in has and _is_same(has[tag.name], tag.value) for tag in wanted)


def _flat(given: Mapping[str, JsonValue]) -> Iterator[tuple[str, JsonValue]]:
    for name, value in given.items():
        if not isinstance(value, dict):
            yield name, value
            continue
        if "." in name or not value:
            raise _refused("must nest by one level at most, and hold something there")
        for inner, within in value.items():
            yield f"{name}.{inner}", within


def _value(value: JsonValue) -> TagValue:
    if isinstance(value, str):
        if not value.strip() or len(value) > TAG_CHARACTERS:
            raise _refused(f"must hold texts of 1 to {TAG_CHARACTERS} characters")
        return value
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise _refused("must hold texts, finite numbers and booleans only")


def _is_same(one: TagValue, other: TagValue) -> bool:
    """Return whether two values are equal; true is no number."""
    return isinstance(one, bool) is isinstance(other, bool) and one == other


def _refused(rule: str) -> InvalidInputError:
    return InvalidInputError((Problem(field="tags", rule=rule),))
