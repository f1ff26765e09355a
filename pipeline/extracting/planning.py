"""An extraction as a value: how it begins, what it does next, how it is split, how it ends."""

import re
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import Final

from schemas.event import SnapshotReady, SnapshotReadyData, event_id
from schemas.extraction import Extraction, NextMessage, Outcome, Part, PartState
from schemas.memory import Kind
from schemas.snapshot import Snapshot
from schemas.topics import SNAPSHOT_READY
from schemas.turn import Turn

FIRST_TICKET: Final = "0"
"""The ticket of the message that announces a snapshot."""
_READY: Final = "snapshot.ready"
_READY_ID: Final = re.compile(r"snapshot\.ready:([^:]+):([0-9]{1,9})")


def extraction_id(snapshot_id: str, run: int) -> str:
    """Return the id of a run over a snapshot."""
    return f"{snapshot_id}:{run}"


def ready_data(snapshot: Snapshot, run: int = 0) -> SnapshotReadyData:
    """Return what `snapshot.ready` says of a snapshot."""
    return SnapshotReadyData(
        session=snapshot.session,
        snapshot=snapshot.snapshot_id,
        first_seq=snapshot.first_seq,
        last_seq=snapshot.last_seq,
        run=run,
    )


def ready_event(data: SnapshotReadyData, now: datetime) -> SnapshotReady:
    """Return the event that hands a snapshot to extraction; its id is the same every time."""
    return SnapshotReady(
        id=event_id(_READY, data.snapshot, data.run),
        subject=data.session,
        time=now,
        data=data,
    )


def run_of(ready_id: str) -> tuple[str, int] | None:
    """Return the snapshot and run that the id of a `snapshot.ready` names; none if it is no such.

    So what a message is about is known without looking into it.
    """
    match = _READY_ID.fullmatch(ready_id)
    return None if match is None else (match[1], int(match[2]))


def new_extraction(data: SnapshotReadyData, now_ms: int) -> Extraction:
    """Return the extraction of a run nobody has begun: one part with all kinds."""
    return Extraction(
        extraction_id=extraction_id(data.snapshot, data.run),
        snapshot_id=data.snapshot,
        session=data.session,
        run=data.run,
        parts=(Part(first_seq=data.first_seq, last_seq=data.last_seq, kinds=tuple(Kind)),),
        first_seen_ms=now_ms,
        next=NextMessage(
            ticket=FIRST_TICKET,
            topic=SNAPSHOT_READY.name,
            scheduled_ms=now_ms,
            due_ms=now_ms,
            sent=True,
        ),
    )


def next_waiting(extraction: Extraction) -> int | None:
    """Return the first part, by its turns, that has no answer yet."""
    waiting = [
        (part.first_seq, index)
        for index, part in enumerate(extraction.parts)
        if part.state is PartState.WAITING
    ]
    return min(waiting)[1] if waiting else None


def live_parts(extraction: Extraction) -> list[int]:
    """Return the parts that are neither split nor dead."""
    return [
        index
        for index, part in enumerate(extraction.parts)
        if part.state in (PartState.WAITING, PartState.ANSWERED)
    ]


def parts_to_bury(extraction: Extraction) -> list[int]:
    """Return what an extraction that is given up on loses: what waits, else all that is live.

    With nothing waiting, it is the answers themselves that can't be concluded from.
    """
    live = live_parts(extraction)
    waiting = [part for part in live if extraction.parts[part].state is PartState.WAITING]
    return waiting or live


def turns_of(part: Part, turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """Return those of the turns that a part covers and does not leave out."""
    return tuple(
        turn
        for turn in turns
        if part.first_seq <= turn.seq <= part.last_seq and turn.seq not in part.left_out
    )


def tail_before(
    first_seq: int, turns: Sequence[Turn], *, most: int, most_tokens: int
) -> tuple[Turn, ...]:
    """Return the tail of the turns before a part, within its bounds in number and tokens."""
    before = [turn for turn in turns if turn.seq < first_seq]
    tail: list[Turn] = []
    tokens = 0
    for turn in reversed(before[max(0, len(before) - most) :]):
        tokens += turn.tokens
        if tokens > most_tokens:
            break
        tail.append(turn)
    return tuple(reversed(tail))


def halves(part: Part, turns: Sequence[Turn]) -> tuple[Part, Part] | None:
    """Return two parts that tile this one, cut between turns where their tokens balance best.

    None for a single turn: it can't be split.
    """
    inside = turns_of(part, turns)
    if len(inside) <= 1:
        return None
    total = sum(turn.tokens for turn in inside)
    before = 0
    imbalance: list[tuple[int, int]] = []
    for left, right in pairwise(inside):
        before += left.tokens
        imbalance.append((abs(total - 2 * before), right.seq))
    cut = min(imbalance)[1]
    return (
        _piece(part, part.first_seq, cut - 1),
        _piece(part, cut, part.last_seq),
    )


def _piece(part: Part, first_seq: int, last_seq: int) -> Part:
    return Part(first_seq=first_seq, last_seq=last_seq, kinds=part.kinds, left_out=part.left_out)


def outcome_of(extraction: Extraction, *, accepted: int, set_aside: int) -> Outcome:
    """Return the outcome of an extraction none of whose parts waits any more.

    "Nothing worth keeping" never stands for a failure: a dead part shows as `partial` beside
    answered ones, and as `dead` alone.
    """
    states = {part.state for part in extraction.parts}
    if PartState.WAITING in states:
        raise ValueError("a part still waits for its answer")
    if PartState.DEAD in states:
        return Outcome.PARTIAL if PartState.ANSWERED in states else Outcome.DEAD
    if accepted:
        return Outcome.RECORDS
    return Outcome.SET_ASIDE if set_aside else Outcome.NOTHING_FOUND


def outcome_unasked(extraction: Extraction) -> Outcome:
    """Return the outcome of an extraction whose waiting parts nobody is to be asked for."""
    is_set_aside = any(part.state is PartState.DEAD for part in extraction.parts)
    return Outcome.DEAD if is_set_aside else Outcome.NOT_ASKED


def summary_of(extraction: Extraction) -> str | None:
    """Return the summaries of the answered parts, in the order of their turns."""
    texts = [
        str(part.reply.answer.get("summary") or "").strip()
        for part in sorted(extraction.parts, key=lambda part: part.first_seq)
        if part.reply is not None and part.state is PartState.ANSWERED
    ]
    return " ".join(text for text in texts if text) or None
