"""Whatever is looked for, whose it is stands in every pipeline's filter, and limits are kept."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.reading.search_pipelines import (
    MOST,
    by_meaning,
    cosine_of,
    indexes_for,
    records_by_words,
    turns_by_words,
)
from schemas.identity import ReadScope, Visibility

NAMES = st.text(st.characters(categories=["L", "Nd"]), min_size=1, max_size=8)
SCOPES = st.builds(
    ReadScope,
    project_id=NAMES,
    org_id=st.none() | NAMES,
    user_id=st.none() | NAMES,
    visibility=st.none() | st.sampled_from(Visibility),
    session_id=st.none() | NAMES,
)
IDS = st.none() | st.lists(NAMES, max_size=3)
LIMITS = st.integers(1, 3 * MOST)
VECTOR = np.array([0.6, 0.8], np.float32)


def equal_of(pipeline: list[Any]) -> dict[str, Any]:
    """Return what the filter of a `$search` demands to the letter."""
    filters = pipeline[0]["$search"]["compound"]["filter"]
    assert all(set(each) <= {"equals", "in"} for each in filters)
    return {one["path"]: one["value"] for each in filters for one in each.values()}


@given(scope=SCOPES, ids=IDS, limit=LIMITS)
def test_words_are_looked_for_in_the_scope_only(
    scope: ReadScope, ids: Sequence[str] | None, limit: int
) -> None:
    records = records_by_words("tea", scope, ["semantic"], ids, limit)
    turns = turns_by_words("tea", scope, ids, limit)
    of_records, of_turns = equal_of(records), equal_of(turns)

    wanted = {
        "scope.project_id": scope.project_id,
        "scope.org_id": scope.org_id,
        "scope.owner": scope.user_id,
        "scope.visibility": scope.visibility,
        "kind": ["semantic"],
        "_id": ids,
    }
    assert of_records == {path: value for path, value in wanted.items() if value is not None}
    assert of_turns["identity.project_id"] == scope.project_id
    assert of_turns.get("identity.user_id") == scope.user_id
    assert of_turns.get("identity.session_id") == scope.session_id
    assert of_turns.get("_id") == ids
    assert records[1]["$limit"] <= MOST
    assert list(records[0]) == ["$search"], "the first stage of all"


@given(scope=SCOPES, ids=IDS, limit=LIMITS)
def test_vectors_are_compared_in_the_scope_and_of_one_model_only(
    scope: ReadScope, ids: Sequence[str] | None, limit: int
) -> None:
    (stage, _) = by_meaning(VECTOR, "m", scope, ["turn"], owners=ids, limit=limit)
    asked = stage["$vectorSearch"]
    demanded: dict[str, Any] = {}
    for each in asked["filter"]["$and"]:
        demanded |= each

    assert demanded["model"] == {"$eq": "m"}
    assert demanded["kind"] == {"$in": ["turn"]}
    assert demanded["scope.project_id"] == {"$eq": scope.project_id}
    for path, value in (
        ("scope.owner", scope.user_id),
        ("scope.org_id", scope.org_id),
        ("scope.visibility", scope.visibility),
        ("session_id", scope.session_id),
    ):
        assert demanded.get(path) == (None if value is None else {"$eq": value})
    assert demanded.get("owner") == (None if ids is None else {"$in": ids})
    assert ("exact" in asked) != ("numCandidates" in asked)
    assert asked["limit"] <= asked.get("numCandidates", MOST) <= MOST


def test_every_path_that_a_filter_names_is_indexed_for_it() -> None:
    records, turns, vectors = indexes_for(2)
    scope = ReadScope(
        project_id="p",
        org_id="o",
        user_id="u",
        visibility=Visibility.PRIVATE,
        agent_id="a",
        session_id="s",
    )

    for index, pipeline in (
        (records, records_by_words("tea", scope, ["semantic"], ["i"], 1)),
        (turns, turns_by_words("tea", scope, ["i"], 1)),
    ):
        for path in equal_of(pipeline):
            at: Any = {"fields": index.definition["mappings"]["fields"]}
            for step in path.split("."):
                at = at["fields"][step]
            assert at == {"type": "token"}
        assert pipeline[0]["$search"]["index"] == index.name
    (stage, _) = by_meaning(VECTOR, "m", scope, ["turn"], owners=["i"], limit=1)
    fields = vectors.definition["fields"]
    filters = {each["path"] for each in fields if each["type"] == "filter"}
    assert {path for each in stage["$vectorSearch"]["filter"]["$and"] for path in each} <= filters
    assert [each["numDimensions"] for each in fields if each["type"] == "vector"] == [2]
    assert stage["$vectorSearch"]["index"] == vectors.name
    assert len(indexes_for(None)) == 2


@pytest.mark.parametrize(("score", "cosine"), [(1.0, 1.0), (0.5, 0.0), (0.0, -1.0)])
def test_a_score_is_told_as_a_cosine(score: float, cosine: float) -> None:
    assert cosine_of(score) == cosine
