"""The laws of a scope's index: what it finds depends on what it holds, and on nothing else."""

import itertools
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import bm25s
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pipeline.reading.dating import terms_of_date
from pipeline.reading.fusing import fused
from pipeline.reading.index import Entry, Mode, ScopeIndex, Vector
from pipeline.reading.lexical import K1, B
from pipeline.reading.terms import asked_by, terms_of
from tests.builders import SAID_AT

KEYS: Final = "abcdef"
WORDS: Final = ("porto", "tea", "moved", "moves", "INV-2024-0042", "猫が好き")
CHURN: Final = 150
"""More than what is dropped may grow to before it is cleared away."""
CHURNED: Final = 0.5

texts = st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join)
vectors = (
    st.lists(st.integers(-2, 2), min_size=3, max_size=3)
    .filter(any)
    .map(lambda numbers: np.array(numbers, np.float32))
)
entries = st.builds(
    Entry,
    key=st.sampled_from(KEYS),
    text=texts,
    said_at=st.integers(0, 3).map(lambda days: SAID_AT + timedelta(days=days)),
    vector=st.none() | vectors,
    thread=st.sampled_from((None, "one", "two")),
    place=st.integers(0, 5),
)
changes = st.lists(entries | st.sampled_from(KEYS), min_size=8, max_size=40) | st.just([])
modes = st.sampled_from(Mode)
unhurried = settings(deadline=None)  # A busy machine breaks no law.


def held_after(changes: Sequence[Entry | str], index: ScopeIndex) -> dict[str, Entry]:
    """Put entries, drop keys; return what is left."""
    held: dict[str, Entry] = {}
    for change in changes:
        if isinstance(change, Entry):
            index.put(change)
            held[change.key] = change
        else:
            index.drop(change)
            held.pop(change, None)
    return held


def churn(index: ScopeIndex) -> None:
    for number in range(CHURN):
        index.put(Entry(key="churn", text=f"tea {number}", said_at=SAID_AT, thread="one"))
    index.drop("churn")


def index_of(entries: Sequence[Entry]) -> ScopeIndex:
    index = ScopeIndex()
    for entry in entries:
        index.put(entry)
    return index


def by_bm25s(query: str, held: Sequence[Entry]) -> dict[str, float]:
    """Return the scores of a library that knows BM25, each term by its rarity once more."""
    cut = [[*terms_of(entry.text).terms, *terms_of_date(entry.said_at)] for entry in held]
    scores = np.zeros(len(held))
    library: Any = bm25s.BM25(method="lucene", k1=K1, b=B)
    library.index(cut, show_progress=False)
    for (term,) in asked_by(query):
        having = sum(term in terms for terms in cut)
        rarity = np.log(1 + (len(held) - having + 0.5) / (having + 0.5))
        scores += rarity * library.get_scores([term])
    return {entry.key: float(score) for entry, score in zip(held, scores, strict=True) if score > 0}


@unhurried
@given(changes, texts, st.booleans())
def test_words_score_as_bm25_has_it_over_what_is_left(
    changes: list[Entry | str], query: str, is_churned: bool
) -> None:
    index = ScopeIndex()
    alone = [
        Entry(key=one.key, text=one.text, said_at=one.said_at) if isinstance(one, Entry) else one
        for one in changes
    ]
    held = held_after(alone, index)
    assume(held)
    if is_churned:
        churn(index)

    found = index.search(query, None, Mode.TEXT, len(KEYS))

    assert {hit.key: hit.score for hit in found} == pytest.approx(
        by_bm25s(query, list(held.values())), rel=1e-4
    )


@unhurried
@given(changes, texts, vectors, modes, st.randoms())
def test_what_came_before_and_in_which_order_makes_no_difference(
    changes: list[Entry | str],
    query: str,
    vector: Vector,
    mode: Mode,
    random: Any,
) -> None:
    index = ScopeIndex()
    held = list(held_after(changes, index).values())
    if random.random() < CHURNED:
        churn(index)
    random.shuffle(held)

    found = index.search(query, vector, mode, len(KEYS))
    found_anew = index_of(held).search(query, vector, mode, len(KEYS))

    assert len(index) == len(held)
    assert sorted((hit.key, hit.score) for hit in found) == [
        (key, pytest.approx(score, abs=1e-5))
        for key, score in sorted((hit.key, hit.score) for hit in found_anew)
    ]


@unhurried
@given(changes, texts, vectors, modes, st.sampled_from(KEYS))
def test_what_was_dropped_is_found_in_no_way(
    changes: list[Entry | str], query: str, vector: Vector, mode: Mode, dropped: str
) -> None:
    index = ScopeIndex()
    held_after(changes, index)

    index.drop(dropped)

    assert dropped not in {hit.key for hit in index.search(query, vector, mode, len(KEYS))}


@unhurried
@given(changes, texts, vectors, modes, st.sets(st.sampled_from([*KEYS, "unknown"])))
def test_a_filter_only_narrows(
    changes: list[Entry | str], query: str, vector: Vector, mode: Mode, among: set[str]
) -> None:
    index = ScopeIndex()
    held_after(changes, index)

    everything = [hit.key for hit in index.search(query, vector, mode, len(KEYS))]
    narrowed = [hit.key for hit in index.search(query, vector, mode, len(KEYS), among)]

    assert set(narrowed) == set(everything) & among


@unhurried
@given(changes, texts, vectors, modes)
def test_best_comes_first_and_of_equals_the_newest(
    changes: list[Entry | str], query: str, vector: Vector, mode: Mode
) -> None:
    index = ScopeIndex()
    held = held_after(changes, index)

    found = index.search(query, vector, mode, len(KEYS))

    assert len({hit.key for hit in found}) == len(found)
    for better, worse in itertools.pairwise(found):
        assert better.score >= worse.score
        if better.score == worse.score:
            assert held[better.key].said_at >= held[worse.key].said_at


@unhurried
@given(changes, texts, vectors)
def test_both_finds_what_either_finds(
    changes: list[Entry | str], query: str, vector: Vector
) -> None:
    index = ScopeIndex()
    held_after(changes, index)

    def found(mode: Mode) -> set[str]:
        return {hit.key for hit in index.search(query, vector, mode, len(KEYS))}

    assert found(Mode.HYBRID) == found(Mode.TEXT) | found(Mode.SEMANTIC)


@unhurried
@given(st.permutations(range(6)), st.permutations(range(6)), st.floats(0.1, 1), st.floats(0.1, 1))
def test_the_order_of_the_arms_makes_no_difference(
    one: list[int], other: list[int], weight: float, other_weight: float
) -> None:
    arms = [(np.array(one[:4]), weight), (np.array(other[:5]), other_weight)]

    assert fused(arms, 6).tolist() == fused(arms[::-1], 6).tolist()
