"""The laws of the fold, over whatever may be asserted of one slot."""

from functools import cache
from itertools import pairwise, product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pipeline.folding.folder import in_source_order
from pipeline.folding.slots import content_key
from schemas.assertion import Assertion
from schemas.memory import Relation
from schemas.record import ContentRun, RunState
from tests.assertion_builder import assertion, day, folded

WORDINGS = ("Oslo", "oslo.", " OSLO ", "Rome", "rome!", "Lima")


TIMES: tuple[dict[str, Any], ...] = (
    {},
    {"holds_now": False},
    {"valid_from": day(2), "valid_until": day(3)},
    {"valid_until": day(8)},
    {"valid_until": day(1), "is_time_assumed": True},
    {"holds_now": False, "valid_from": day(0), "confidence": 0.4},
    {"valid_from": day(1), "confidence": 0.7},
)


@cache
def _said(wording: str, relation: Relation, time: int, place: tuple[int, int, str]) -> Assertion:
    on, item, session = place
    return assertion(wording, on=on, item=item, session=session, relation=relation, **TIMES[time])


_places = st.sampled_from(list(product(range(7), range(2), ("s1", "s2"))))
_assertions = st.builds(
    _said,
    st.sampled_from(WORDINGS),
    st.sampled_from(Relation),
    st.sampled_from(range(len(TIMES))),
    _places,
)
assertions = st.lists(_assertions, max_size=10, unique_by=lambda one: one.assertion_id)


@given(st.data(), assertions)
def test_neither_order_nor_repetition_of_arrival_matters(
    data: st.DataObject, said: list[Assertion]
) -> None:
    """Whatever comes in whatever order, and however often, is the same record."""
    arrived = data.draw(st.permutations(said + said[: len(said) // 2]))

    assert folded(*arrived) == folded(*said)


@given(assertions)
def test_what_is_said_is_in_one_run_unless_it_only_ends(said: list[Assertion]) -> None:
    """No statement is lost and none counts twice."""
    kept = [one for run in folded(*said) for one in run.assertions]
    ends = {one.assertion_id for one in said if one.relation is Relation.ENDED}
    all_ids = {one.assertion_id for one in said}

    assert len(kept) == len(set(kept))
    assert all_ids - ends <= set(kept) <= all_ids


@given(assertions)
def test_a_run_says_what_its_assertions_say(said: list[Assertion]) -> None:
    """Wording, evidence, confidence and times come from them, and from no other."""
    by_id = {one.assertion_id: one for one in said}
    for run in folded(*said):
        members = [by_id[assertion_id] for assertion_id in run.assertions]
        moments = [member.position.effective_at for member in members]

        assert members == in_source_order(members)
        assert run.content == members[0].content
        assert {content_key(member.content) for member in members} == {content_key(run.content)}
        assert all(member.evidence in run.evidence for member in members)
        assert all(run.evidence.count(evidence) == 1 for evidence in run.evidence)
        assert run.confidence == max(member.confidence for member in members)
        assert (run.first_at, run.last_at) == (moments[0], moments[-1])


@given(assertions)
def test_runs_stand_in_source_order(said: list[Assertion]) -> None:
    """By the first assertion of each."""
    rank = {one.assertion_id: place for place, one in enumerate(in_source_order(said))}
    firsts = [rank[run.assertions[0]] for run in folded(*said)]

    assert all(earlier < later for earlier, later in pairwise(firsts))


@given(assertions)
def test_what_is_closed_says_by_whom_and_what_is_open_does_not(said: list[Assertion]) -> None:
    """A closer comes after what it closes, and its relation is the state it leaves."""
    order = in_source_order(said)
    rank = {one.assertion_id: place for place, one in enumerate(order)}
    leaves = {
        Relation.REPLACES: RunState.REPLACED,
        Relation.CORRECTS: RunState.WRONG,
        Relation.ENDED: RunState.ENDED,
    }
    for run in folded(*said):
        if run.state in (RunState.CURRENT, RunState.PAST):
            assert (run.closed_at, run.closed_by) == (None, None)
            continue
        assert run.closed_by is not None
        closer = order[rank[run.closed_by]]

        assert rank[run.closed_by] > rank[run.assertions[-1]]
        assert run.closed_at == closer.position.effective_at
        assert run.state is leaves[closer.relation]


@given(assertions)
def test_one_content_is_current_once_and_past_once(said: list[Assertion]) -> None:
    """Wordings that differ in case, spacing or a full stop are one content."""
    standing = [
        (run.state, content_key(run.content))
        for run in folded(*said)
        if run.state in (RunState.CURRENT, RunState.PAST)
    ]

    assert len(standing) == len(set(standing))


def _is_past(one: Assertion) -> bool:
    said_on, until = one.position.effective_at, one.valid_until
    is_assumed = one.is_time_assumed and until == said_on
    return not one.holds_now or (until is not None and until <= said_on and not is_assumed)


@given(assertions)
def test_the_last_word_on_the_present_stands(said: list[Assertion]) -> None:
    """A successor is current, alone; an end leaves its content ended; an addition is current."""
    order = [one for one in in_source_order(said) if not _is_past(one)]
    if not order or order[-1] is not in_source_order(said)[-1]:
        return
    last = order[-1]
    current = _contents(folded(*said), RunState.CURRENT)

    if last.relation is Relation.ADDS:
        assert content_key(last.content) in current
    elif last.relation is Relation.ENDED:
        assert content_key(last.content) not in current
    else:
        assert current == {content_key(last.content)}


@given(assertions)
def test_the_past_says_nothing_of_the_present(said: list[Assertion]) -> None:
    """Without what was said of the past, unless it ends or corrects, the same is current."""
    without = [
        one
        for one in said
        if not _is_past(one) or one.relation in (Relation.ENDED, Relation.CORRECTS)
    ]

    assert [run for run in folded(*said) if run.state is not RunState.PAST] == [
        run for run in folded(*without) if run.state is not RunState.PAST
    ]


@given(assertions)
def test_only_what_is_added_closes_nothing(said: list[Assertion]) -> None:
    """Facts that merely share a slot never retire each other."""
    added = [one.model_copy(update={"relation": Relation.ADDS}) for one in said]

    assert {run.state for run in folded(*added)} <= {RunState.CURRENT, RunState.PAST}


def _contents(runs: tuple[ContentRun, ...], state: RunState) -> set[object]:
    return {content_key(run.content) for run in runs if run.state is state}
