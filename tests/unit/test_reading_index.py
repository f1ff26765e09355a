"""A scope's index: neighbours, vectors, and the two arms together."""

import numpy as np
import pytest

from pipeline.reading.index import Entry, Mode, ScopeIndex, Vector
from tests.builders import SAID_AT

EAST = np.array([1, 0, 0], np.float32)
NORTH = np.array([0, 1, 0], np.float32)
UP = np.array([0, 0, 1], np.float32)


def entry(key: str, text: str = "", **fields: object) -> Entry:
    return Entry(key=key, text=text, said_at=SAID_AT, **fields)  # type: ignore[arg-type]


def found(index: ScopeIndex, query: str, vector: Vector | None, mode: Mode) -> list[str]:
    return [hit.key for hit in index.search(query, vector, mode, 10)]


def talk() -> ScopeIndex:
    index = ScopeIndex()
    for place, text in enumerate(
        ("Did you ever learn an instrument?", "Yes, the cello.", "Lovely!", "And you?", "Never.")
    ):
        index.put(entry(f"turn {place}", text, thread="talk", place=place))
    index.put(entry("elsewhere", "Rain again.", thread="other", place=1))
    return index


def test_an_answer_is_found_by_the_words_of_its_question() -> None:
    index = talk()

    assert found(index, "instrument", None, Mode.TEXT) == ["turn 0", "turn 1", "turn 2"]
    assert found(index, "which instrument, a cello?", None, Mode.TEXT)[0] == "turn 1"


def test_neighbours_of_one_that_was_dropped_stand_beside_each_other() -> None:
    index = talk()

    index.drop("turn 1")

    assert found(index, "instrument", None, Mode.TEXT) == ["turn 0", "turn 2", "turn 3"]


def test_the_words_of_one_that_was_dropped_help_to_find_nothing() -> None:
    index = talk()
    index.put(entry("far", "My instrument is out of tune."))

    index.drop("turn 0")

    assert found(index, "instrument", None, Mode.TEXT) == ["far"]


def test_clearing_away_what_was_dropped_leaves_neighbours_as_they_are() -> None:
    index = talk()
    before = index.search("instrument", None, Mode.TEXT, 10)
    for _ in range(200):
        index.put(entry("passing", "A word in passing.", thread="talk", place=9))
    index.drop("passing")

    assert found(index, "instrument", None, Mode.TEXT) == [hit.key for hit in before]


def test_meaning_is_found_beside_too_but_only_where_there_is_a_vector() -> None:
    index = ScopeIndex()
    for place, vector in enumerate((NORTH, EAST, None, NORTH, UP, UP)):
        index.put(entry(str(place), thread="talk", place=place, vector=vector))

    ranked = found(index, "", EAST, Mode.SEMANTIC)

    assert ranked[:2] == ["1", "0"]
    assert "2" not in ranked


def test_what_has_no_vector_is_found_by_text_and_both_and_not_by_meaning() -> None:
    index = ScopeIndex()
    index.put(entry("refused", "The cello", vector=None))
    index.put(entry("other", "The rain", vector=EAST))

    assert found(index, "cello", EAST, Mode.TEXT) == ["refused"]
    assert set(found(index, "cello", EAST, Mode.HYBRID)) == {"refused", "other"}
    assert found(index, "cello", EAST, Mode.SEMANTIC) == ["other"]


def test_both_without_a_vector_goes_by_words_and_meaning_without_one_is_refused() -> None:
    index = talk()

    assert found(index, "cello", None, Mode.HYBRID) == found(index, "cello", None, Mode.TEXT)
    with pytest.raises(ValueError, match="vector of its query"):
        index.search("cello", None, Mode.SEMANTIC, 1)


@pytest.mark.parametrize(
    ("vector", "said"),
    [
        (np.array([1, np.nan, 0], np.float32), "finite"),
        (np.array([np.inf, 1, 0], np.float32), "finite"),
        (np.zeros(3, np.float32), "zero"),
        (np.empty(0, np.float32), "empty"),
        (np.ones((1, 3), np.float32), "flat"),
        (np.ones(4, np.float32), "dimension 3"),
    ],
)
def test_a_vector_that_compares_with_nothing_is_refused_and_changes_nothing(
    vector: Vector, said: str
) -> None:
    index = ScopeIndex()
    index.put(entry("kept", "tea", vector=EAST))

    with pytest.raises(ValueError, match=said):
        index.put(entry("kept", "coffee", vector=vector))
    with pytest.raises(ValueError, match=said):
        index.search("tea", vector, Mode.SEMANTIC, 1)

    assert found(index, "tea", EAST, Mode.SEMANTIC) == ["kept"]
    assert found(index, "coffee", None, Mode.TEXT) == []


def test_another_dimension_may_come_when_the_last_vector_has_gone() -> None:
    index = ScopeIndex()
    index.put(entry("a", vector=EAST))
    index.drop("a")

    index.put(entry("b", vector=np.ones(5, np.float32)))

    assert found(index, "", np.ones(5, np.float32), Mode.SEMANTIC) == ["b"]


def test_what_all_vectors_of_a_scope_share_tells_nothing() -> None:
    """A model that puts every text into one corner of its space finds by the differences."""
    index = ScopeIndex()
    corner = np.array([20, 0, 0, 0], np.float32)
    for number in range(50):
        index.put(entry(f"filler {number}", vector=corner + np.eye(4, dtype=np.float32)[2]))
    right = np.array([0, 3, 0, 1], np.float32)
    index.put(entry("right", vector=corner + right))
    index.put(entry("short", vector=corner))

    question = corner + np.array([0, 1, 0, 0], np.float32)
    assert found(index, "", question, Mode.SEMANTIC)[0] == "right"


def test_meaning_that_words_never_confirm_does_not_push_out_what_they_find() -> None:
    index = ScopeIndex()
    random = np.random.default_rng(5)
    for number in range(200):
        text = "the cello lesson" if number % 20 == 0 else f"rain on day {number}"
        index.put(entry(str(number), text, vector=random.normal(size=16).astype(np.float32)))
    noise = random.normal(size=16).astype(np.float32)

    first = index.search("cello lesson", noise, Mode.HYBRID, 10)

    assert {hit.key for hit in first} == {str(number) for number in range(0, 200, 20)}


def test_where_words_find_nothing_that_tells_meaning_decides() -> None:
    index = ScopeIndex()
    random = np.random.default_rng(5)
    for number in range(400):
        vector = random.normal(size=16).astype(np.float32)
        index.put(entry(str(number), f"where was it on day {number}", vector=vector))
    answer = random.normal(size=16).astype(np.float32)
    index.put(entry("answer", "cello", vector=answer))

    question = "where was that stringed contraption"
    assert "answer" in found(index, question, answer, Mode.HYBRID)[:5]
