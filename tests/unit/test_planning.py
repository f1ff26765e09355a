"""An extraction as a value."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.extracting.planning import halves, next_waiting, outcome_of, summary_of
from schemas.extraction import Outcome, PartState, Reply
from tests.builders import SAID_AT, extraction, part, turn


def reply(summary: str) -> Reply:
    return Reply(
        answer={"summary": summary},
        model="m",
        finish_reason=None,
        request_id=None,
        calls=1,
        prompt_tokens=None,
        completion_tokens=None,
        answered_at=SAID_AT,
    )


@given(st.lists(st.integers(0, 5000), min_size=2, max_size=40), st.integers(1, 50))
def test_halves_tile_the_part_and_are_never_empty(tokens: list[int], first: int) -> None:
    last = first + len(tokens) - 1
    turns = [turn(first + place, tokens=count) for place, count in enumerate(tokens)]

    split = halves(part(first, last), turns)

    assert split is not None
    left, right = split
    assert (left.first_seq, right.last_seq) == (first, last)
    assert left.last_seq + 1 == right.first_seq
    assert first <= left.last_seq < right.last_seq


def test_a_part_with_one_turn_left_is_not_split() -> None:
    assert halves(part(3, 9), [turn(5)]) is None


def test_a_long_turn_is_left_alone_by_its_neighbours() -> None:
    turns = [turn(1, tokens=10), turn(2, tokens=10), turn(3, tokens=9000)]

    split = halves(part(1, 3), turns)

    assert split is not None
    assert (split[1].first_seq, split[1].last_seq) == (3, 3)


def test_work_goes_on_at_the_earliest_waiting_turns() -> None:
    parts = (
        part(1, 8, state=PartState.SPLIT),
        part(5, 8),
        part(1, 4),
    )

    assert next_waiting(extraction(*parts)) == 2
    assert next_waiting(extraction(part(state=PartState.ANSWERED))) is None


@pytest.mark.parametrize(
    ("states", "accepted", "set_aside", "outcome"),
    [
        ([PartState.ANSWERED], 2, 0, Outcome.RECORDS),
        ([PartState.ANSWERED], 1, 3, Outcome.RECORDS),
        ([PartState.ANSWERED], 0, 3, Outcome.SET_ASIDE),
        ([PartState.ANSWERED], 0, 0, Outcome.NOTHING_FOUND),
        ([PartState.DEAD], 0, 0, Outcome.DEAD),
        ([PartState.SPLIT, PartState.DEAD, PartState.DEAD], 0, 0, Outcome.DEAD),
        ([PartState.SPLIT, PartState.DEAD, PartState.ANSWERED], 0, 0, Outcome.PARTIAL),
        ([PartState.SPLIT, PartState.DEAD, PartState.ANSWERED], 4, 0, Outcome.PARTIAL),
    ],
)
def test_nothing_found_never_stands_for_a_failure(
    states: list[PartState], accepted: int, set_aside: int, outcome: Outcome
) -> None:
    settled = extraction(*(part(state=state) for state in states))

    assert outcome_of(settled, accepted=accepted, set_aside=set_aside) is outcome


def test_an_extraction_with_a_waiting_part_has_no_outcome() -> None:
    with pytest.raises(ValueError, match="waits"):
        outcome_of(extraction(part()), accepted=1, set_aside=0)


def test_the_summary_follows_the_turns_and_leaves_out_what_died() -> None:
    settled = extraction(
        part(1, 9, state=PartState.SPLIT),
        part(5, 9, state=PartState.ANSWERED, reply=reply("Second.")),
        part(1, 4, state=PartState.ANSWERED, reply=reply("First.")),
        part(2, 3, state=PartState.DEAD, reply=reply("Dead.")),
    )

    assert summary_of(settled) == "First. Second."
    assert summary_of(extraction(part(state=PartState.DEAD))) is None
