"""Tags of the types that a project declares itself."""

from typing import Any

import pytest

from pipeline.errors import InvalidInputError
from pipeline.saving.custom import TAG_CHARACTERS, matches, tags_of
from schemas.memory import CustomContent
from schemas.project import CustomType

TICKET = CustomType.model_validate(
    {"name": "ticket", "tags": ["status", "points", "open", "where.city"]}
)


def content(**tags: Any) -> CustomContent:
    return CustomContent(type="ticket", body="b", tags=tags_of(TICKET, tags))


def test_both_ways_to_nest_are_the_same() -> None:
    nested = tags_of(TICKET, {"where": {"city": "Oslo"}, "points": 3})

    assert nested == tags_of(TICKET, {"points": 3, "where.city": "Oslo"})
    assert [tag.name for tag in nested] == ["points", "where.city"]


@pytest.mark.parametrize(
    "given",
    [
        {"color": "red"},
        {"where": {"city": "Oslo"}, "where.city": "Oslo"},
        {"where": {"city": {"name": "Oslo"}}},
        {"where": {}},
        {"a.b": {"c": 1}},
        {"status": ""},
        {"status": "x" * (TAG_CHARACTERS + 1)},
        {"status": None},
        {"status": ["open"]},
        {"points": float("inf")},
    ],
)
def test_what_is_not_declared_or_no_plain_value_is_refused_and_not_quoted(given: Any) -> None:
    with pytest.raises(InvalidInputError) as refused:
        tags_of(TICKET, given)

    assert [problem.field for problem in refused.value.problems] == ["tags"]
    assert "color" not in str(refused.value)


def test_what_may_be_declared_is_told() -> None:
    with pytest.raises(InvalidInputError, match=r"open, points, status, where\.city"):
        tags_of(TICKET, {"color": "red"})


def test_all_that_is_wanted_must_be_there_value_by_value() -> None:
    held = content(status="new", points=1, open=True)

    assert matches(held, ())
    assert matches(held, tags_of(TICKET, {"status": "new", "points": 1.0}))
    assert not matches(held, tags_of(TICKET, {"status": "New"}))
    assert not matches(held, tags_of(TICKET, {"points": True}))
    assert not matches(held, tags_of(TICKET, {"open": 1}))
    assert not matches(held, tags_of(TICKET, {"where.city": "Oslo"}))
