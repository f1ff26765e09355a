"""A record is a pure function of its slot's assertions: this one.

Law: the order in which they arrived, how often each did, and what was there in between and was
taken away again make no difference.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from pydantic import JsonValue

from pipeline.folding.slots import ContentKey, content_key
from pipeline.ports.records import SlotKey
from schemas.assertion import Assertion, Evidence
from schemas.memory import Content, Relation
from schemas.record import ContentRun, RunState

_Key = tuple[ContentKey, str]
"""Equal for assertions of one slot that say the same."""
_CLOSES: Final = {Relation.REPLACES: RunState.REPLACED, Relation.CORRECTS: RunState.WRONG}


def in_source_order(assertions: Iterable[Assertion]) -> list[Assertion]:
    """Return assertions by where they were said, each once.

    Order: source position, then id.
    """
    by_id = {assertion.assertion_id: assertion for assertion in assertions}
    return sorted(
        by_id.values(), key=lambda assertion: (assertion.position.key(), assertion.assertion_id)
    )


def fold(slot: SlotKey, assertions: Iterable[Assertion]) -> tuple[ContentRun, ...]:
    """Return the runs of a slot: which contents it held, from when to when, and on what grounds.

    In source order, each assertion does one of these:

    - `adds` extends the current run of its content, or begins one beside those of other contents.
    - `replaces` and `corrects` close every current run of another content, as replaced or as
      wrong, and then do as `adds`. Content A, then B, then A again gives three runs.
    - `ended` closes the current run of its content or, where none is current, every current run:
      "no longer vegetarian" seldom repeats the words of what it ends. Nothing becomes current.
    - A statement about a time that is over (`holds_now` is false, or it was valid until its own
      effective time or before) never becomes current and closes nothing: that tea was liked once
      says nothing of today. It extends the past run of its content, or begins one.

    Where these meet: a past `ended` closes as `ended` does, and its content stands as past unless
    it was the very content it closed. A past `corrects` closes the current run of its own content
    as wrong (it was so, but not now) and no other run: which of several earlier statements about
    the past it means can't be told by rule, and an outdated one beside it does less harm than a
    true one taken away.

    All kinds follow the same rules: procedures of one name with other steps stand side by side
    after `adds`, and supersede each other after `replaces`.

    A direct save may name one memory of the slot as its target: then it closes no other. Contents
    with other fields of a caller's own are other contents.

    A run keeps the wording it began with, unless a direct save says it anew, whose wording, source
    and metadata then count; its evidence is the union, its confidence the highest. It goes by the
    memory id that its first assertion names, else by that assertion's own id.
    Of the times it was valid from and until the last one said counts. A moment that was only
    assumed is never an end, and a beginning only where none was said. A run that is said to hold
    after its end has none any more. What ended takes the end that was said of it.

    Raises:
        ValueError: An assertion belongs to another slot.
    """
    runs: list[_Run] = []
    for assertion in in_source_order(assertions):
        if assertion.slot != slot.slot:
            raise ValueError(f"assertion {assertion.assertion_id} is not of slot {slot.slot}")
        _apply(assertion, runs)
    return tuple(run.value() for run in runs)


@dataclass(slots=True, kw_only=True)
class _Run:
    """A run while it is being folded."""

    key: _Key
    memory_id: str
    content: Content
    state: RunState
    assertions: list[str]
    evidence: list[Evidence]
    confidence: float
    first_at: datetime
    last_at: datetime
    valid_from: datetime | None
    valid_until: datetime | None
    closed_at: datetime | None = None
    closed_by: str | None = None
    metadata: dict[str, JsonValue] | None = None
    fields: dict[str, JsonValue] | None = None
    source: str | None = None
    agents: dict[str, None] = field(default_factory=dict[str, None])
    sessions: dict[str, None] = field(default_factory=dict[str, None])

    def trace(self, assertion: Assertion) -> None:
        """Note where an assertion comes from, and what a direct save says of its own."""
        self.agents |= {} if assertion.agent_id is None else {assertion.agent_id: None}
        self.sessions |= {} if assertion.session_id is None else {assertion.session_id: None}
        if assertion.saved is not None:
            self.content = assertion.content
            self.metadata = assertion.saved.metadata
            self.fields = assertion.saved.fields
            self.source = assertion.saved.source

    def extend(self, assertion: Assertion) -> None:
        self.trace(assertion)
        self.assertions.append(assertion.assertion_id)
        if assertion.evidence is not None and assertion.evidence not in self.evidence:
            self.evidence.append(assertion.evidence)
        self.confidence = max(self.confidence, assertion.confidence)
        self.last_at = assertion.position.effective_at
        self.valid_from = (
            _said(assertion.valid_from, assertion) or self.valid_from or assertion.valid_from
        )
        if self.state is RunState.CURRENT and _is_over(self.valid_until, assertion):
            self.valid_until = None
        self.valid_until = _said(assertion.valid_until, assertion) or self.valid_until

    def close(self, state: RunState, assertion: Assertion) -> None:
        self.state = state
        self.closed_at = assertion.position.effective_at
        self.closed_by = assertion.assertion_id
        if state is RunState.ENDED:
            self.valid_until = _said(assertion.valid_until, assertion) or self.valid_until

    def value(self) -> ContentRun:
        return ContentRun(
            memory_id=self.memory_id,
            content=self.content,
            state=self.state,
            assertions=tuple(self.assertions),
            evidence=tuple(self.evidence),
            confidence=self.confidence,
            first_at=self.first_at,
            last_at=self.last_at,
            valid_from=self.valid_from,
            valid_until=self.valid_until,
            closed_at=self.closed_at,
            closed_by=self.closed_by,
            metadata=self.metadata,
            fields=self.fields,
            source=self.source,
            agents=tuple(self.agents),
            sessions=tuple(self.sessions),
        )


def _apply(assertion: Assertion, runs: list[_Run]) -> None:
    key = _key_of(assertion)
    current = [run for run in runs if run.state is RunState.CURRENT]
    same = [run for run in current if run.key == key]
    others = [run for run in current if run.key != key and _may_close(assertion, run)]
    is_past = not assertion.holds_now or _is_over(
        _said(assertion.valid_until, assertion), assertion
    )
    if assertion.relation is Relation.ENDED:
        same = [run for run in same if _may_close(assertion, run)]
        _close(same or others, RunState.ENDED, assertion)
        if is_past and not same:
            _stand(assertion, key, RunState.PAST, runs)
    elif is_past:
        if assertion.relation is Relation.CORRECTS:
            _close(same, RunState.WRONG, assertion)
        _stand(assertion, key, RunState.PAST, runs)
    else:
        if assertion.relation in _CLOSES:
            _close(others, _CLOSES[assertion.relation], assertion)
        _stand(assertion, key, RunState.CURRENT, runs)


def _close(runs: Iterable[_Run], state: RunState, assertion: Assertion) -> None:
    for run in runs:
        run.close(state, assertion)


def _may_close(assertion: Assertion, run: _Run) -> bool:
    target = None if assertion.saved is None else assertion.saved.target
    return target is None or run.memory_id == target


def _key_of(assertion: Assertion) -> _Key:
    fields = None if assertion.saved is None else assertion.saved.fields
    return content_key(assertion.content), json.dumps(fields, sort_keys=True)


def _stand(assertion: Assertion, key: _Key, state: RunState, runs: list[_Run]) -> None:
    """Extend the run of a content that is in a state, or begin it."""
    for run in runs:
        if run.state is state and run.key == key:
            run.extend(assertion)
            return
    saved = assertion.saved
    run = _Run(
        key=key,
        memory_id=assertion.assertion_id if saved is None else saved.memory_id,
        content=assertion.content,
        state=state,
        assertions=[assertion.assertion_id],
        evidence=[] if assertion.evidence is None else [assertion.evidence],
        confidence=assertion.confidence,
        first_at=assertion.position.effective_at,
        last_at=assertion.position.effective_at,
        valid_from=assertion.valid_from,
        valid_until=_said(assertion.valid_until, assertion),
    )
    run.trace(assertion)
    runs.append(run)


def _said(moment: datetime | None, assertion: Assertion) -> datetime | None:
    """Return a moment; none where it only stands for one that couldn't be read as a date."""
    is_assumed = assertion.is_time_assumed and moment == assertion.position.effective_at
    return None if is_assumed else moment


def _is_over(until: datetime | None, assertion: Assertion) -> bool:
    return until is not None and until <= assertion.position.effective_at
