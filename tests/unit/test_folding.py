"""The fold, one rule at a time."""

from typing import Any

import pytest

from pipeline.folding.folder import fold
from pipeline.folding.slots import slots_of
from schemas.assertion import Evidence
from schemas.memory import Kind, ProceduralContent
from schemas.record import RunState
from tests.assertion_builder import assertion, day, folded, told

OSLO, ROME, LIMA = "Lives in Oslo", "Lives in Rome", "Lives in Lima"


def test_nothing_asserted_is_nothing_known() -> None:
    """A slot without assertions has no runs: it is a shell."""
    known = assertion(OSLO)

    assert fold(slots_of([known])[0], []) == ()


def test_what_is_added_stands_beside_what_is_there() -> None:
    """Nobody's other home is closed by one more."""
    runs = folded(assertion(OSLO, on=1), assertion(ROME, on=2))

    assert told(runs) == [(OSLO, "current"), (ROME, "current")]


def test_the_same_again_extends_its_run() -> None:
    """Evidence is the union, confidence the highest, the wording the first."""
    first = assertion(OSLO, on=1, confidence=0.9)
    again = assertion("lives in  OSLO.", on=4, confidence=0.4)
    elsewhere = assertion(OSLO, on=5, session="s2", confidence=0.5)

    (run,) = folded(first, again, elsewhere)

    assert run.content == first.content
    assert run.assertions == (
        first.assertion_id,
        again.assertion_id,
        elsewhere.assertion_id,
    )
    assert run.evidence == (first.evidence, again.evidence, elsewhere.evidence)
    assert run.confidence == 0.9
    assert (run.first_at, run.last_at) == (day(1), day(5))
    assert run.state is RunState.CURRENT
    assert run.closed_at is None
    assert run.closed_by is None


def test_evidence_is_listed_once() -> None:
    """Two statements that rest on the same words have one piece of evidence; some have none."""
    evidence = Evidence(session="s1", seqs=(1,), quote="I live in Oslo")

    (run,) = folded(
        assertion(OSLO, on=1, evidence=None),
        assertion(OSLO, on=2, evidence=evidence),
        assertion(OSLO, on=3, evidence=evidence),
    )

    assert run.evidence == (evidence,)
    assert len(run.assertions) == 3


@pytest.mark.parametrize(("relation", "state"), [("replaces", "replaced"), ("corrects", "wrong")])
def test_a_successor_closes_every_other_current_run(relation: str, state: str) -> None:
    """It says when they ended and on whose word."""
    closer = assertion(LIMA, on=3, relation=relation)

    runs = folded(assertion(OSLO, on=1), assertion(ROME, on=2), closer)

    assert told(runs) == [(OSLO, state), (ROME, state), (LIMA, "current")]
    assert [run.closed_by for run in runs] == [closer.assertion_id, closer.assertion_id, None]
    assert [run.closed_at for run in runs] == [day(3), day(3), None]


@pytest.mark.parametrize(("relation", "state"), [("replaces", "replaced"), ("corrects", "wrong")])
def test_a_successor_of_the_same_content_extends_it(relation: str, state: str) -> None:
    """It closes what stood beside it only."""
    runs = folded(
        assertion(OSLO, on=1), assertion(ROME, on=2), assertion(OSLO, on=3, relation=relation)
    )

    assert told(runs) == [(OSLO, "current"), (ROME, state)]
    assert len(runs[0].assertions) == 2


def test_there_and_back_again_is_three_runs() -> None:
    """Oslo, Rome, Oslo: the second stay in Oslo is not the first."""
    runs = folded(
        assertion(OSLO, on=1),
        assertion(ROME, on=2, relation="replaces"),
        assertion(OSLO, on=3, relation="replaces"),
    )

    assert told(runs) == [(OSLO, "replaced"), (ROME, "replaced"), (OSLO, "current")]


def test_what_is_closed_stays_closed_by_whoever_closed_it_first() -> None:
    """A later successor closes what is current then, nothing else."""
    first = assertion(ROME, on=2, relation="replaces")

    runs = folded(assertion(OSLO, on=1), first, assertion(LIMA, on=3, relation="corrects"))

    assert told(runs) == [(OSLO, "replaced"), (ROME, "wrong"), (LIMA, "current")]
    assert runs[0].closed_by == first.assertion_id


def test_what_ended_is_over_and_nothing_takes_its_place() -> None:
    """Said with the same words it ends that one only."""
    runs = folded(
        assertion(OSLO, on=1),
        assertion(ROME, on=2),
        assertion("lives in oslo", on=3, relation="ended"),
    )

    assert told(runs) == [(OSLO, "ended"), (ROME, "current")]
    assert runs[0].closed_at == day(3)


def test_an_end_in_other_words_ends_all_that_is_current() -> None:
    """A slot is about one thing: what is over can only be that."""
    runs = folded(
        assertion(OSLO, on=1),
        assertion(ROME, on=2),
        assertion("Has no home any more", on=3, relation="ended"),
    )

    assert told(runs) == [(OSLO, "ended"), (ROME, "ended")]


def test_an_end_of_nothing_known_leaves_nothing() -> None:
    """What comes after it is not ended by it, in whatever order the two arrive."""
    runs = folded(assertion(OSLO, on=1, relation="ended"), assertion(OSLO, on=2))

    assert told(runs) == [(OSLO, "current")]


def test_an_end_with_a_date_says_until_when() -> None:
    """The run it ends takes the date; it is no second run."""
    runs = folded(
        assertion(OSLO, on=1), assertion(OSLO, on=9, relation="ended", valid_until=day(7))
    )

    assert told(runs) == [(OSLO, "ended")]
    assert runs[0].valid_until == day(7)
    assert runs[0].closed_at == day(9)


PAST: list[dict[str, Any]] = [
    {"holds_now": False},
    {"valid_until": day(2)},
    {"valid_until": day(1), "is_time_assumed": False},
]


@pytest.mark.parametrize("past", PAST)
@pytest.mark.parametrize("relation", ["adds", "replaces", "corrects"])
def test_a_statement_about_the_past_closes_nothing(relation: str, past: dict[str, Any]) -> None:
    """Where somebody lived once says nothing of where he lives."""
    runs = folded(assertion(OSLO, on=1), assertion(ROME, on=2, relation=relation, **past))

    assert told(runs) == [(OSLO, "current"), (ROME, "past")]
    assert runs[1].closed_by is None


def test_the_past_told_twice_is_one_run() -> None:
    """And it is no run of what is current, though the words be the same."""
    runs = folded(
        assertion(ROME, on=1, holds_now=False),
        assertion(ROME, on=2),
        assertion("lives in rome.", on=3, holds_now=False),
    )

    assert told(runs) == [(ROME, "past"), (ROME, "current")]
    assert len(runs[0].assertions) == 2


def test_an_end_told_of_the_past_closes_as_an_end_does() -> None:
    """Its own words stand as past, unless they are what it closed."""
    in_other_words = folded(
        assertion(OSLO, on=1), assertion("Left Oslo", on=2, relation="ended", holds_now=False)
    )
    in_the_same = folded(
        assertion(OSLO, on=1), assertion(OSLO, on=2, relation="ended", holds_now=False)
    )

    assert told(in_other_words) == [(OSLO, "ended"), ("Left Oslo", "past")]
    assert told(in_the_same) == [(OSLO, "ended")]


def test_a_correction_of_when_it_was_takes_the_present_away() -> None:
    """He lived there, but does not: the one run it must mean is wrong, the others stay."""
    runs = folded(
        assertion(OSLO, on=1),
        assertion(ROME, on=2),
        assertion(LIMA, on=3, holds_now=False),
        assertion(ROME, on=4, relation="corrects", holds_now=False),
    )

    assert told(runs) == [
        (OSLO, "current"),
        (ROME, "wrong"),
        (LIMA, "past"),
        (ROME, "past"),
    ]


def test_an_assumed_end_ends_nothing() -> None:
    """`Until who knows when` has the moment of saying it for a date, and is true now."""
    (run,) = folded(assertion(OSLO, on=2, valid_until=day(2), is_time_assumed=True))

    assert run.state is RunState.CURRENT
    assert run.valid_until is None


def test_an_end_that_was_said_counts_beside_an_assumed_beginning() -> None:
    """`From some time or other until yesterday` is over."""
    (run,) = folded(
        assertion(OSLO, on=2, valid_from=day(2), valid_until=day(1), is_time_assumed=True)
    )

    assert run.state is RunState.PAST
    assert (run.valid_from, run.valid_until) == (day(2), day(1))


def test_the_last_date_said_counts() -> None:
    """An assumed beginning stands only until one is said, and replaces none."""
    said = [
        assertion(OSLO, on=3, valid_from=day(3), is_time_assumed=True),
        assertion(OSLO, on=4, valid_from=day(0), valid_until=day(20)),
        assertion(OSLO, on=5, valid_from=day(5), is_time_assumed=True),
        assertion(OSLO, on=6, valid_until=day(30)),
        assertion(OSLO, on=7, valid_from=day(1), valid_until=day(7), is_time_assumed=True),
    ]
    dates = [
        (run.valid_from, run.valid_until) for upto in range(1, 6) for run in folded(*said[:upto])
    ]

    assert dates == [
        (day(3), None),
        (day(0), day(20)),
        (day(0), day(20)),
        (day(0), day(30)),
        (day(1), day(30)),
    ]


def test_what_holds_after_its_end_has_no_end() -> None:
    """Said again after the day it was to end on, it goes on."""
    runs = folded(assertion(OSLO, on=1, valid_until=day(5)), assertion(OSLO, on=8))

    assert told(runs) == [(OSLO, "current")]
    assert runs[0].valid_until is None


def test_order_is_by_source_and_then_by_id() -> None:
    """Effective time, session, seq, item: never arrival. Ids break what ties are left."""
    at = assertion(OSLO, on=2).position
    earlier = assertion("1", on=2, position=at.model_copy(update={"effective_at": day(1)}))
    by_session = assertion("2", on=2, position=at.model_copy(update={"session": "s0", "seq": 9}))
    by_seq = assertion("3", on=2, position=at.model_copy(update={"seq": 2, "item": 9}))
    by_item = assertion("4", on=2, position=at.model_copy(update={"item": 7}))
    by_id = assertion("5", on=2, assertion_id="ast_z", position=by_item.position)
    with_ids = [
        one.model_copy(update={"assertion_id": f"ast_{index}"})
        for index, one in enumerate((earlier, by_session, by_seq, by_item))
    ]

    runs = folded(by_id, *reversed(with_ids))

    assert [label for label, _ in told(runs)] == ["1", "2", "3", "4", "5"]


def test_what_comes_twice_counts_once() -> None:
    """A redelivered assertion is the same assertion."""
    once = assertion(OSLO, on=1)

    assert folded(once, once) == folded(once)


@pytest.mark.parametrize(
    ("relation", "states"),
    [("adds", ["current", "current"]), ("replaces", ["replaced", "current"])],
)
def test_procedures_of_one_name_follow_the_same_rules(relation: str, states: list[str]) -> None:
    """Other steps stand beside after `adds` and supersede after `replaces`."""
    by_hand = ProceduralContent(name="Deploy", description="d", steps=("copy",))
    by_make = ProceduralContent(name="deploy", description="d", steps=("make deploy",))

    runs = folded(
        assertion(by_hand, on=1, kind=Kind.PROCEDURAL),
        assertion(by_make, on=2, kind=Kind.PROCEDURAL, relation=relation),
    )

    assert [run.state.value for run in runs] == states


def test_an_assertion_of_another_slot_is_refused() -> None:
    """A store that mixes slots up must not write it down as a record."""
    with pytest.raises(ValueError, match="not of slot"):
        folded(assertion(OSLO), assertion(OSLO, item=1, subject="Bo"))


def test_an_end_without_a_date_leaves_the_date_that_was_said() -> None:
    """When it was said to end and when it was closed are two things."""
    runs = folded(
        assertion(OSLO, on=1, valid_until=day(5)), assertion(OSLO, on=8, relation="ended")
    )

    assert runs[0].valid_until == day(5)
    assert runs[0].closed_at == day(8)
