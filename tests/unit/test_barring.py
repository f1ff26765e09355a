"""What a forgotten slot may not hold any more."""

from datetime import timedelta

from pipeline.folding.slots import slots_of
from pipeline.forgetting.barring import evidence_of, is_barred, spared_by, turns_once
from schemas.assertion import Assertion, DirectSave, Evidence, RestsOn
from schemas.tombstone import Bar, BarredTurns
from tests.assertion_builder import assertion, day

OSLO = assertion("Oslo", on=1)
ROME = assertion("Rome", on=2)
BAR = Bar(as_of=day(5), spared=frozenset({ROME.assertion_id}))


def corrected(rests_on: Assertion) -> Assertion:
    """Return a correction of later than the bar."""
    said_at = rests_on.position.effective_at
    saved = DirectSave(
        memory_id="m",
        source="agent",
        rests_on=RestsOn(assertion_id=rests_on.assertion_id, said_at=said_at),
    )
    return assertion("Lima", on=9, extraction_id=None, evidence=None, saved=saved)


def test_what_was_said_until_then_is_barred_and_what_comes_later_is_not() -> None:
    at = OSLO.position
    on_the_dot = OSLO.model_copy(
        update={"position": at.model_copy(update={"effective_at": day(5)})}
    )
    just_after = at.model_copy(update={"effective_at": day(5) + timedelta(milliseconds=1)})

    assert is_barred(BAR, OSLO)
    assert is_barred(BAR, on_the_dot)
    assert not is_barred(BAR, OSLO.model_copy(update={"position": just_after}))
    assert not is_barred(BAR, ROME)
    assert not is_barred(None, OSLO)


def test_later_words_that_rest_on_a_barred_turn_are_barred() -> None:
    bar = BAR.model_copy(update={"evidence": (BarredTurns(session="s1", seqs=(2, 3)),)})
    later = assertion("Oslo", on=9)

    assert not is_barred(bar, later)
    assert is_barred(bar, later.model_copy(update={"evidence": evidence("s1", 3, 10)}))
    assert not is_barred(bar, later.model_copy(update={"evidence": evidence("s2", 3)}))


def test_a_correction_goes_with_what_it_corrects() -> None:
    assert is_barred(BAR, corrected(OSLO))
    assert not is_barred(BAR, corrected(ROME))
    assert not is_barred(BAR, corrected(assertion("Oslo", on=7)))


def test_what_stands_beside_it_is_spared_and_its_history_is_not() -> None:
    paris = assertion("Paris", on=0)
    moved = assertion("Oslo", on=1, relation="replaces")
    said = (paris, moved, ROME, assertion("Rome", on=3))
    (slot,) = slots_of(said)

    spared = spared_by(slot, moved.assertion_id, said)

    assert spared == {ROME.assertion_id, said[3].assertion_id}
    assert spared_by(slot, paris.assertion_id, said) == spared | {moved.assertion_id}


def test_turns_are_named_once() -> None:
    turns = evidence_of((OSLO, ROME, OSLO))

    assert turns == (BarredTurns(session="s1", seqs=(2, 3)),)
    assert turns_once((*turns, *turns)) == turns


def evidence(session: str, *seqs: int) -> Evidence:
    return Evidence(session=session, seqs=seqs, quote="so it is")
