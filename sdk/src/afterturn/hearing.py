"""What a call that went by said and was answered, and what of it counts."""

import logging
from dataclasses import replace

from afterturn.tapping import Call, End
from afterturn.wires.exchange import Answer, Outcome, Said
from afterturn.wires.routes import answered_in, said_in

_log = logging.getLogger("afterturn")


def heard(call: Call) -> tuple[Said, Answer] | None:
    """Return what a call said and was answered; None where that was no success.

    Of an answer whose end was never seen counts what the caller was handed of it; not if the
    network failed him, for then he was handed an error too.
    """
    body = call.body()
    if body is None:
        _log.warning("an answer was too long to be recorded")
        return None
    answer = answered_in(call.route, body, is_stream=call.is_stream)
    is_broken = answer.outcome is Outcome.UNFINISHED and call.end is End.BROKEN
    if answer.outcome is Outcome.FAILED or is_broken:
        return None
    said = said_in(call.route, call.request)
    if said is None:
        return None
    return _joined(said, answer) if said.starts_answer else (said, answer)


def _joined(said: Said, answer: Answer) -> tuple[Said, Answer]:
    """Return the two with the beginning of the answer where it belongs."""
    begun = said.turns[-1]
    said = replace(said, turns=said.turns[:-1])
    if answer.turns:
        first = replace(answer.turns[0], content=begun.content + answer.turns[0].content)
        answer = replace(answer, turns=(first, *answer.turns[1:]))
    return said, answer
