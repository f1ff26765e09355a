"""Filters are a closed grammar: whatever is sent is understood or refused, and nothing else."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import FilterError
from pipeline.reading.filters import Clause, Composed, Filter, matches, parse
from schemas.project import MetadataType

NAMES = ("metadata.tier", "metadata.score", "metadata.a.b", "agent_id")
OPERATORS = {"$eq", "$ne", "$in", "$nin", "$exists", "$gt", "$gte", "$lt", "$lte"}
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
keys = st.sampled_from(
    [*NAMES, *OPERATORS, "$and", "$or", "$nor", "$where", "$expr", "tier", "metadata.$gt", "a\x00"]
) | st.text(max_size=8)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=12,
)


def clauses(found: Filter) -> list[Clause]:
    """Return every clause of a filter."""
    if isinstance(found, Clause):
        return [found]
    return [clause for part in found.parts for clause in clauses(part)]


@given(st.dictionaries(keys, anything, max_size=4))
def test_what_is_sent_is_understood_or_refused(sent: dict[str, Any]) -> None:
    for declared in (NAMES, None):
        try:
            found = parse(sent, declared)
        except FilterError:
            continue
        assert {clause.operator for clause in clauses(found)} <= OPERATORS
        assert all(
            clause.path == "agent_id" or clause.path.startswith("metadata.")
            for clause in clauses(found)
        )
        assert isinstance(matches(found, {"metadata": {"tier": "gold", "score": 0.9}}), bool)


@given(st.text(min_size=1, max_size=12))
def test_a_refusal_quotes_nothing(key: str) -> None:
    with pytest.raises(FilterError) as refused:
        parse({f"{key}zebra": 1}, NAMES)
    assert "zebra" not in str(refused.value)


FIELDS: dict[str, Any] = {
    "agent_id": "a1",
    "metadata": {
        "tier": "gold",
        "score": 0.9,
        "n": 2,
        "on": True,
        "tags": ["x", "y"],
        "at": "2026-01-02",
    },
}


@pytest.mark.parametrize(
    ("sent", "passes"),
    [
        ({"metadata.tier": "gold"}, True),
        ({"metadata.tier": "Gold"}, False),
        ({"metadata.tier": "gold-tier"}, False),
        ({"metadata.score": {"$gt": 0.8, "$lte": 0.9}}, True),
        ({"metadata.score": {"$gt": 0.9}}, False),
        ({"metadata.tier": {"$gt": 1}}, False),
        ({"metadata.on": 1}, False),
        ({"metadata.n": True}, False),
        ({"metadata.n": 2.0}, True),
        ({"metadata.tags": "x"}, True),
        ({"metadata.tier": {"$in": ["gold", "silver"]}}, True),
        ({"metadata.tier": {"$nin": ["gold"]}}, False),
        ({"metadata.absent": {"$ne": "x"}}, True),
        ({"metadata.absent": {"$exists": False}}, True),
        ({"metadata.tier": {"$exists": False}}, False),
        ({"metadata.at": {"$gte": "2026-01-01"}}, True),
        ({"metadata.at": {"$lt": "2026-01-02"}}, False),
        ({"agent_id": "a1"}, True),
        ({"$or": [{"metadata.tier": "x"}, {"metadata.n": 2}]}, True),
        ({"$nor": [{"metadata.tier": "gold"}]}, False),
        ({"$and": [{"metadata.tier": "gold"}, {"metadata.n": {"$lt": 2}}]}, False),
    ],
)
def test_clauses_mean_what_they_say(sent: dict[str, Any], passes: bool) -> None:
    assert matches(parse(sent, None), FIELDS) is passes


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        ({"tier": "gold"}, "declared are: agent_id, metadata.tier"),
        ({"metadata.tire": "gold"}, "declared are: agent_id, metadata.tier"),
        ({"metadata.tier": {"$regex": "."}}, "there are: "),
        ({"metadata.tier": {}}, "must not be empty"),
        ({"metadata.tier": None}, "texts, finite numbers"),
        ({"metadata.tier": {"$in": ["x"] * 1001}}, "at most 1000"),
        ({"$and": []}, "not empty"),
        ({"metadata.tier": {"$exists": 1}}, "true or false"),
    ],
)
def test_a_refusal_says_what_there_is(sent: dict[str, Any], says: str) -> None:
    with pytest.raises(FilterError, match=says):
        parse(sent, ["metadata.tier"])


TYPES = {
    "metadata.tier": MetadataType.STRING,
    "metadata.n": MetadataType.NUMBER,
    "metadata.on": MetadataType.BOOLEAN,
    "metadata.at": MetadataType.DATE,
}


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        ({"metadata.tier": {"$gt": "a"}}, "metadata.tier is declared as string: ranges want"),
        ({"metadata.on": {"$lte": True}}, "metadata.on is declared as boolean: ranges want"),
        ({"metadata.tier": 5}, "compare it with texts"),
        ({"metadata.n": {"$in": [1, "2"]}}, "compare it with numbers"),
        ({"metadata.n": True}, "compare it with numbers"),
        ({"metadata.on": 1}, "compare it with true or false"),
        ({"metadata.at": {"$gte": "tomorrow"}}, "compare it with dates"),
    ],
)
def test_a_declared_type_says_what_a_key_is_compared_with(sent: dict[str, Any], says: str) -> None:
    with pytest.raises(FilterError, match=says):
        parse(sent, TYPES)


@pytest.mark.parametrize(
    "sent",
    [
        {"metadata.tier": {"$in": ["gold"], "$exists": True}},
        {"metadata.n": {"$gt": 1.5, "$lte": 2}},
        {"metadata.on": True},
        {"metadata.at": {"$gte": "2026-01-01", "$lt": "2026-02-01T00:00:00Z"}},
    ],
)
def test_what_is_of_the_declared_type_matches_as_it_says(sent: dict[str, Any]) -> None:
    assert matches(parse(sent, TYPES), FIELDS)


def test_bounds_hold() -> None:
    deep: dict[str, Any] = {"metadata.tier": "x"}
    for _ in range(20):
        deep = {"$and": [deep]}
    many: dict[str, Any] = {"$or": [{"metadata.tier": "x"}] * 201}
    for sent in (deep, many):
        with pytest.raises(FilterError, match="at most"):
            parse(sent, ["metadata.tier"])


def test_nothing_asked_is_everything() -> None:
    assert matches(Composed(operator="$and", parts=()), {})


EDGES = ["0001-01-01", "9999-12-31", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"]


@given(*[st.sampled_from(EDGES) | st.datetimes().map(lambda at: at.isoformat())] * 2)
def test_any_two_dates_can_be_compared(stored: str, asked: str) -> None:
    fields = {"metadata": {"at": stored}}
    later, same_or_before = (
        matches(parse({"metadata.at": {operator: asked}}, None), fields)
        for operator in ("$gt", "$lte")
    )

    assert later is not same_or_before


def test_a_date_without_a_zone_is_one_of_utc_wherever_the_server_stands() -> None:
    found = parse({"metadata.at": {"$gte": "2026-01-01T00:00:00Z", "$lt": "2026-01-02"}}, None)

    assert matches(found, {"metadata": {"at": "2026-01-01"}})
    assert not matches(found, {"metadata": {"at": "2026-01-02"}})
