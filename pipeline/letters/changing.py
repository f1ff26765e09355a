"""What may be otherwise when a part is tried again: a larger answer, fewer turns, two halves."""

from collections.abc import Sequence
from typing import Final

from pipeline.errors import LetterError
from pipeline.extracting.planning import halves, turns_of
from schemas.extraction import Part, PartState
from schemas.job import Change
from schemas.turn import Turn

AS_IT_WAS: Final = Change()


def opened(part: Part, change: Change, turns: Sequence[Turn]) -> tuple[Part, ...]:
    """Return what takes the place of a dead part: it, open again; or it as split, and its halves.

    An answer that is stored and could not be concluded from is kept where nothing is changed: it
    was paid for.

    Raises:
        LetterError: Like this there is nothing to ask.
    """
    again = part.model_copy(update={"redrives": part.redrives + 1})
    if change.is_none:
        state = PartState.WAITING if part.reply is None else PartState.ANSWERED
        return (again.model_copy(update={"state": state, "set_aside": ()}),)
    again = again.model_copy(
        update={
            "state": PartState.WAITING,
            "reply": None,
            "version": None,
            "set_aside": (),
            "max_tokens": change.max_tokens or part.max_tokens,
            "left_out": _left_out(part, change),
        }
    )
    inside = turns_of(again, turns)
    if not inside:
        raise LetterError(
            f"no turn would be left of {part.first_seq} to {part.last_seq}: discard the letter"
            " instead, or leave out fewer"
        )
    if not change.split:
        return (again,)
    smaller = halves(again, turns)
    if smaller is None:
        raise LetterError(
            f"turn {inside[0].seq} is the only one of the part and can't be split: leave it out, or"
            " allow more tokens"
        )
    fresh = [half.model_copy(update={"max_tokens": change.max_tokens}) for half in smaller]
    return (again.model_copy(update={"state": PartState.SPLIT}), *fresh)


def _left_out(part: Part, change: Change) -> tuple[int, ...]:
    outside = [seq for seq in change.leave_out if not part.first_seq <= seq <= part.last_seq]
    if outside:
        raise LetterError(
            f"turn {outside[0]} is none of the letter's: it is about {part.first_seq} to"
            f" {part.last_seq}"
        )
    return tuple(sorted({*part.left_out, *change.leave_out}))
