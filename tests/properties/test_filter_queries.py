"""What the database finds by a filter's condition is what passes the filter, on both layouts."""

from collections.abc import Generator
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pymongo import MongoClient
from pymongo.collection import Collection

from pipeline.reading.filters import Clause, Composed, Filter, matches, parse, to_query

PATHS = ("metadata.a", "metadata.b", "metadata.a.c", "agent_id")
scalars = st.sampled_from(
    [
        *("", "x", "X", "1", "2026-01-02", "2026-01-02T00:00:00+01:00"),
        *(0, 1, -1, 2, 1.0, 1.5, 2**53, -(2**62), True, False),
    ]
)
inner = st.dictionaries(st.just("c"), scalars, min_size=1)
values = st.one_of(
    scalars,
    st.none(),
    st.lists(scalars, max_size=3),
    inner,
    st.lists(inner, max_size=2),
    st.lists(st.lists(scalars, max_size=1), max_size=1),
)
stored = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.none() | st.dictionaries(st.sampled_from("aab"), values, min_size=1),
        "agent_id": st.sampled_from(["x", "1", ["x", "1"], []]),
    },
)
comparisons = st.dictionaries(
    st.sampled_from(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]), scalars, min_size=1, max_size=2
) | st.one_of(
    st.fixed_dictionaries({"$in": st.lists(scalars, max_size=3)}),
    st.fixed_dictionaries({"$nin": st.lists(scalars, max_size=3)}),
    st.fixed_dictionaries({"$exists": st.booleans()}),
)
clauses = st.dictionaries(st.sampled_from(PATHS), scalars | comparisons, max_size=2)
sent = st.recursive(
    clauses,
    lambda inner: st.dictionaries(
        st.sampled_from(["$and", "$or", "$nor"]), st.lists(inner, min_size=1, max_size=2)
    ),
    max_leaves=4,
)
DATE = "2026-01-02"


@pytest.fixture(scope="module")
def documents(mongo_uri: str) -> Generator[Collection[dict[str, Any]]]:
    client: MongoClient[dict[str, Any]] = MongoClient(mongo_uri)
    database = client[f"test_{uuid4().hex[:12]}"]
    yield database["runs"]
    client.drop_database(database.name)
    client.close()


def has_range_of_dates(found: Filter) -> bool:
    if isinstance(found, Composed):
        return any(has_range_of_dates(part) for part in found.parts)
    return found.operator in {"$gt", "$gte", "$lt", "$lte"} and str(found.operand).startswith(DATE)


@settings(max_examples=40, deadline=None)
@given(st.lists(stored, min_size=8, max_size=16), st.lists(sent, min_size=6, max_size=8))
@example(
    [{"metadata": {"a": [{"c": 1}]}}, {"metadata": {"a": [0, 2]}}, {"metadata": {"a": [[1]]}}],
    [{"metadata.a.c": 1}, {"metadata.a.c": {"$exists": True}}, {"metadata.a": {"$gt": 1}}],
)
def test_the_database_finds_what_passes(
    documents: Collection[dict[str, Any]],
    contents: list[dict[str, Any]],
    filters: list[dict[str, Any]],
) -> None:
    """Of ranges of dates it may find more, never less."""
    documents.delete_many({})
    documents.insert_many(
        {"_id": number, "runs": [{"state": "other"}, {"state": "current", **content}]}
        for number, content in enumerate(contents)
    )
    for each in filters:
        found = parse(each, None)
        passing = {number for number, content in enumerate(contents) if matches(found, content)}
        condition = {"state": "current", **to_query(found, lambda path: path)}
        by_run = documents.find({"runs": {"$elemMatch": condition}}, {"_id": True})
        on_top = documents.find(to_query(found, lambda path: f"runs.1.{path}"), {"_id": True})

        for ids in ({document["_id"] for document in cursor} for cursor in (by_run, on_top)):
            assert ids >= passing
            assert ids == passing or has_range_of_dates(found)


@pytest.mark.parametrize("operator", ["$gt", "$gte", "$lt", "$lte"])
def test_a_range_of_dates_finds_texts_and_nothing_else(operator: str) -> None:
    range_of_dates = Clause(path="metadata.a", operator=operator, operand=DATE)

    assert to_query(range_of_dates, lambda path: path) == {"metadata.a": {"$type": "string"}}
    assert to_query(Composed(operator="$nor", parts=(range_of_dates,)), str) == {"$and": [{}]}
