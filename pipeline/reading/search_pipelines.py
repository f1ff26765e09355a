"""What is asked of a MongoDB that searches by itself: definitions of indexes, and pipelines. Pure.

Whose a text is, its kind, and where anything narrows a search the ids that may be returned, stand
in the operator's own filter: nothing else is ever scored.

Source: MongoDB's manual on `$search` (compound, equals, in, text), `$vectorSearch` and the indexes
of both. Never run against the real thing here: see docs/adr/0017.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from bson.binary import Binary, BinaryVectorDtype

from pipeline.embedding.ports import Vector
from schemas.identity import ReadScope, Visibility

Document = dict[str, Any]
MOST: Final = 10_000
"""The most results and the most candidates that `$vectorSearch` takes; as many ids stand in one
filter."""
CANDIDATES: Final = 20
"""How many candidates are looked at for each result where the search is approximate; as advised."""
TEXT_INDEX: Final = "afterturn_text"
_TOKEN: Final[Document] = {"type": "token"}
"""A whole text, to the letter."""
_ANY_TEXT: Final[Document] = {"type": "document", "dynamic": True}
_RECORDS: Final = {
    "project_id": "scope.project_id",
    "org_id": "scope.org_id",
    "user_id": "scope.owner",
    "visibility": "scope.visibility",
}
_TURNS: Final = {
    "project_id": "identity.project_id",
    "org_id": "identity.org_id",
    "user_id": "identity.user_id",
    "agent_id": "identity.agent_id",
    "session_id": "identity.session_id",
}
_WORDS: Final = ({"wildcard": "runs.content.*"}, {"wildcard": "runs.fields.*"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchIndex:
    """An index that MongoDB's own search needs."""

    collection: str
    name: str
    kind: Literal["search", "vectorSearch"]
    definition: Document


def vector_index(dimension: int) -> str:
    """Return the name of the index over vectors of a dimension: each has its own."""
    return f"afterturn_vectors_{dimension}"


def indexes_for(dimension: int | None) -> tuple[SearchIndex, ...]:
    """Return the indexes; those over vectors where an embedder is configured."""
    words = (
        SearchIndex(
            collection="records",
            name=TEXT_INDEX,
            kind="search",
            definition=_mappings(
                {
                    "_id": _TOKEN,
                    "kind": _TOKEN,
                    "scope": _tokens("project_id", "org_id", "owner", "visibility"),
                    "runs": {
                        "type": "document",
                        "dynamic": False,
                        "fields": {"content": _ANY_TEXT, "fields": _ANY_TEXT},
                    },
                }
            ),
        ),
        SearchIndex(
            collection="turns",
            name=TEXT_INDEX,
            kind="search",
            definition=_mappings(
                {
                    "_id": _TOKEN,
                    "content": {"type": "string"},
                    "identity": _tokens(*(path.partition(".")[2] for path in _TURNS.values())),
                }
            ),
        ),
    )
    if dimension is None:
        return words
    filters = ["model", "kind", "owner", "session_id", *_RECORDS.values()]
    vectors = SearchIndex(
        collection="vectors",
        name=vector_index(dimension),
        kind="vectorSearch",
        definition={
            "fields": [
                {
                    "type": "vector",
                    "path": "vector",
                    "numDimensions": dimension,
                    "similarity": "cosine",
                },
                *({"type": "filter", "path": path} for path in filters),
            ]
        },
    )
    return (*words, vectors)


def records_by_words(
    text: str, scope: ReadScope, kinds: Sequence[str], ids: Sequence[str] | None, limit: int
) -> list[Document]:
    """Return what finds records of a scope and of some kinds by words: `_id` and `score`."""
    allowed = [*_equal(scope, _RECORDS), {"in": {"path": "kind", "value": list(kinds)}}]
    return _by_words(text, list(_WORDS), [*allowed, *_among(ids)], limit)


def turns_by_words(
    text: str, scope: ReadScope, ids: Sequence[str] | None, limit: int
) -> list[Document]:
    """Return what finds turns of a scope by words: `_id` and `score`."""
    return _by_words(text, "content", [*_equal(scope, _TURNS), *_among(ids)], limit)


def by_meaning(
    vector: Vector,
    model: str,
    scope: ReadScope,
    kinds: Sequence[str],
    *,
    owners: Sequence[str] | None,
    limit: int,
) -> list[Document]:
    """Return what finds vectors of a model in a scope: `owner`, `content_hash` and `score`.

    It is exact where the scope is that of one user or of one conversation, else approximate.
    """
    limit = min(limit, MOST)
    is_exact = scope.user_id is not None or scope.session_id is not None
    allowed: list[Document] = [
        {"model": {"$eq": model}},
        {"kind": {"$in": list(kinds)}},
        *(
            {path: {"$eq": str(value)}}
            for name, value in scope
            if value is not None
            and (path := {**_RECORDS, "session_id": "session_id"}.get(name)) is not None
        ),
    ]
    if owners is not None:
        allowed.append({"owner": {"$in": list(owners)}})
    asked: Document = {
        "index": vector_index(len(vector)),
        "path": "vector",
        "queryVector": Binary.from_vector(
            vector.astype(np.float32).tolist(), BinaryVectorDtype.FLOAT32
        ),
        "filter": {"$and": allowed},
        "limit": limit,
    }
    how: Document = {"numCandidates": min(MOST, limit * CANDIDATES)}
    asked |= {"exact": True} if is_exact else how
    wanted = {"owner": 1, "content_hash": 1, "score": {"$meta": "vectorSearchScore"}}
    return [{"$vectorSearch": asked}, {"$project": wanted}]


def cosine_of(score: float) -> float:
    """Return the cosine that a score stands for: an index by cosine gives (1 + cosine) / 2."""
    return 2 * score - 1


def has_no_turns(scope: ReadScope) -> bool:
    """Return whether a scope can hold no turn: all of them are private."""
    return scope.visibility not in (None, Visibility.PRIVATE)


def _by_words(
    text: str, path: Document | str | list[Document], allowed: list[Document], limit: int
) -> list[Document]:
    found = {"must": [{"text": {"query": text, "path": path}}], "filter": allowed}
    return [
        {"$search": {"index": TEXT_INDEX, "compound": found}},
        {"$limit": min(limit, MOST)},
        {"$project": {"_id": 1, "score": {"$meta": "searchScore"}}},
    ]


def _equal(scope: ReadScope, paths: dict[str, str]) -> list[Document]:
    return [
        {"equals": {"path": path, "value": str(value)}}
        for name, value in scope
        if value is not None and (path := paths.get(name)) is not None
    ]


def _among(ids: Sequence[str] | None) -> list[Document]:
    return [] if ids is None else [{"in": {"path": "_id", "value": list(ids)}}]


def _mappings(fields: Document) -> Document:
    return {"mappings": {"dynamic": False, "fields": fields}}


def _tokens(*names: str) -> Document:
    return {"type": "document", "dynamic": False, "fields": dict.fromkeys(names, _TOKEN)}
