"""Whatever a file says is settings or a refusal, and what was declared once is there for good."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import ConfigurationError
from pipeline.projects.configuring import (
    differences,
    forbidden_changes,
    settings_of,
    without_effect,
)
from schemas.project import ProjectSettings

names = st.sampled_from(["tier", "age", "since", "place.name"])
keys = st.dictionaries(names, st.sampled_from(["string", "number", "date"]), max_size=3)
types = st.dictionaries(
    st.sampled_from(["boat", "berth"]),
    st.lists(st.sampled_from(["size", "place.name", "colour"]), unique=True, max_size=3),
    max_size=2,
)
kinds = st.lists(
    st.sampled_from(["semantic", "episodic", "entity", "preferences"]), unique=True, max_size=4
)


@st.composite
def blocks(draw: st.DrawFn) -> dict[str, Any]:
    """Return a block that is right."""
    block: dict[str, Any] = {
        "metadata_partition_key": [
            {"name": name, "type": kind} for name, kind in draw(keys).items()
        ],
        "custom_memory_types": [{"name": name, "tags": tags} for name, tags in draw(types).items()],
    }
    if draw(st.booleans()):
        block["extraction"] = {"enabled": draw(kinds)}
    if draw(st.booleans()):
        block["background_extraction"] = {"snapshot": {"max_messages": draw(st.integers(1, 1000))}}
    if draw(st.booleans()):
        block["log_level"] = draw(st.sampled_from(["info", "debug"]))
    return block


def parsed(block: dict[str, Any], stored: ProjectSettings | None = None) -> ProjectSettings:
    return settings_of(json.dumps({"memory": block}), name="f", stored=stored)


@given(blocks())
def test_settings_stay_as_they_are_through_the_store_and_may_follow_themselves(
    block: dict[str, Any],
) -> None:
    settings = parsed(block)
    kept = ProjectSettings.model_validate(settings.model_dump(mode="json", exclude_unset=True))

    assert differences(settings, kept) == []
    assert without_effect(kept) == without_effect(settings)
    assert forbidden_changes(settings, kept) == []


@given(st.lists(blocks(), min_size=2, max_size=6))
def test_what_was_declared_once_is_in_all_that_is_stored_later(
    written: list[dict[str, Any]],
) -> None:
    stored = parsed(written[0])
    first = stored
    for block in written[1:]:
        try:
            stored = parsed(block, stored)
        except ConfigurationError:
            continue

    assert first.filterable.items() <= stored.filterable.items()
    for declared in first.custom_memory_types:
        follower = stored.custom_type(declared.name)
        assert follower is not None
        assert follower.tag_names == declared.tag_names


@given(blocks(), blocks())
def test_a_difference_is_seen_from_both_sides(one: dict[str, Any], other: dict[str, Any]) -> None:
    a, b = parsed(one), parsed(other)
    there = {(each.path, each.before, each.after) for each in differences(a, b)}
    back = {(each.path, each.after, each.before) for each in differences(b, a)}

    assert there == back


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["extraction", "enabled", "name", "tags", "snapshot", "voyage"])
            | st.text(max_size=4),
            inner,
            max_size=3,
        )
    ),
    max_leaves=10,
)
fields = st.sampled_from([*ProjectSettings.model_fields, "more"])


@given(st.dictionaries(fields, anything, max_size=4))
def test_any_block_is_settings_or_a_refusal(block: dict[str, Any]) -> None:
    try:
        parsed(block)
    except ConfigurationError as refused:
        assert "nothing was changed" in str(refused) or "line" in str(refused)


@given(st.text(max_size=60) | st.text(alphabet=":-[]{}&*!|>'\"# \nmemory", max_size=60))
def test_any_text_is_a_file_or_a_refusal(text: str) -> None:
    try:
        settings_of(text, name="f", stored=None)
    except ConfigurationError as refused:
        assert "f" in str(refused)
