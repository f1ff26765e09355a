"""What a forgotten slot may not hold any more, and what may stay. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from pipeline.folding.folder import fold, in_source_order
from pipeline.ports.records import SlotKey
from schemas.assertion import Assertion
from schemas.record import RunState
from schemas.tombstone import Bar, BarredTurns, Tombstone

Bars = Mapping[str, Bar]
"""By slot, of those that have one."""


def is_barred(bar: Bar | None, assertion: Assertion) -> bool:
    """Return whether an assertion of a slot is forgotten.

    So it is if its source is at or before the bar's moment, if it rests on a barred turn, or if it
    corrects or ends something that is itself forgotten; never if it is spared.
    """
    if bar is None or assertion.assertion_id in bar.spared:
        return False
    if assertion.position.effective_at <= bar.as_of:
        return True
    rests_on = None if assertion.saved is None else assertion.saved.rests_on
    if rests_on is not None and rests_on.assertion_id not in bar.spared:
        return rests_on.said_at <= bar.as_of
    evidence = assertion.evidence
    return evidence is not None and any(
        turns.session == evidence.session and not set(turns.seqs).isdisjoint(evidence.seqs)
        for turns in bar.evidence
    )


def standing(bar: Bar | None, assertions: Iterable[Assertion]) -> list[Assertion]:
    """Return those that are not forgotten, in their order."""
    return [assertion for assertion in assertions if not is_barred(bar, assertion)]


def spared_by(slot: SlotKey, memory_id: str, assertions: Iterable[Assertion]) -> frozenset[str]:
    """Return the assertions of a slot that stay when one memory of it is deleted.

    They are those of the other memories that are current: what a reader still sees beside it. What
    is no longer current goes with it, since it would come back as current or never be found again.
    """
    return frozenset(
        assertion_id
        for run in fold(slot, assertions)
        if run.state is RunState.CURRENT and run.memory_id != memory_id
        for assertion_id in run.assertions
    )


def bar_after(
    tombstone: Tombstone, slot: SlotKey, bar: Bar | None, assertions: Sequence[Assertion]
) -> Bar:
    """Return a slot's bar once a tombstone counts as well.

    Args:
        tombstone: What is to be forgotten.
        slot: Its slot.
        bar: What the slot may not hold already.
        assertions: All of the slot.
    """
    held = standing(bar, in_source_order(assertions))
    before = () if bar is None else bar.evidence
    return Bar(
        as_of=tombstone.as_of if bar is None else max(bar.as_of, tombstone.as_of),
        spared=spared_by(slot, tombstone.memory_id, held),
        evidence=turns_once((*before, *tombstone.evidence)),
    )


def evidence_of(assertions: Iterable[Assertion]) -> tuple[BarredTurns, ...]:
    """Return the turns that assertions rest on."""
    return turns_once(
        BarredTurns(session=assertion.evidence.session, seqs=assertion.evidence.seqs)
        for assertion in assertions
        if assertion.evidence is not None
    )


def turns_once(turns: Iterable[BarredTurns]) -> tuple[BarredTurns, ...]:
    """Return turns by session, each once and in order."""
    by_session: dict[str, set[int]] = {}
    for each in turns:
        by_session.setdefault(each.session, set()).update(each.seqs)
    return tuple(
        BarredTurns(session=session, seqs=tuple(sorted(seqs)))
        for session, seqs in sorted(by_session.items())
    )
