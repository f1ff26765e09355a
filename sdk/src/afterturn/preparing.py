"""From what was said to what may leave the process: recalled memories cut, the caller's hook run.

A hook that fails leaves the turn out. Turns are recognised by what is left, so not even a digest
of what was redacted leaves the process.
"""

import json
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from afterturn.recalled import without_recalled
from afterturn.turns import ToolCall, Turn

Redact = Callable[[str], str | None]
"""Returns a text as it may leave the process, or None to leave its turn out. It should give the
same for the same, and runs in a thread of its own."""

REMEMBERED: Final = 20_000
"""Of how many turns it is remembered what the hook left of them, so that a history does not pass
it again with each request."""
REMEMBERED_CHARACTERS: Final = 2_000
"""Longer texts are forgotten, but for what they are recognised by, and pass it again if needed."""

_log = logging.getLogger("afterturn")


class LeftOutError(Exception):
    """The turn must not be recorded."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is left of a turn."""

    digest: bytes
    """What it is recognised by."""
    turn: Turn | None
    """The turn itself; None where it was forgotten."""


class Preparer:
    """Prepares turns.

    Concurrency: for one thread.
    """

    def __init__(self, redact: Redact | None) -> None:
        self._redact = redact
        self._known: OrderedDict[bytes, Prepared | None] = OrderedDict()
        self.left_out = 0

    def prepare(self, turn: Turn, *, again: bool = False) -> Prepared | None:
        """Return what may leave the process of a turn; None if there is nothing to record.

        Args:
            turn: What was said.
            again: Whether the turn itself is needed, and not only what it is recognised by.
        """
        if self._redact is None:
            return _prepared(_said_anew(turn))
        raw = turn.digest()
        if raw in self._known:
            self._known.move_to_end(raw)
            known = self._known[raw]
            if known is None or known.turn is not None or not again:
                return known
        prepared = _prepared(self._redacted(turn, self._redact))
        self._known[raw] = _light(prepared)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return prepared

    def _redacted(self, turn: Turn, redact: Redact) -> Turn | None:
        said = _said_anew(turn)
        if said is None:
            return None
        try:
            return replace(
                said,
                content=_text(said.content, redact),
                tool_calls=tuple(_call(call, redact) for call in said.tool_calls),
            )
        except LeftOutError:
            pass
        except Exception as error:  # whatever the caller's hook raises: then nothing is sent
            _log.warning(
                "the redaction hook failed, so a turn is left out: %s", type(error).__name__
            )
        self.left_out += 1
        return None


def _prepared(turn: Turn | None) -> Prepared | None:
    return Prepared(turn.digest(), turn) if turn is not None and turn.says_something else None


def _light(prepared: Prepared | None) -> Prepared | None:
    if prepared is None or prepared.turn is None:
        return prepared
    is_long = len(prepared.turn.content) > REMEMBERED_CHARACTERS or prepared.turn.tool_calls
    return Prepared(prepared.digest, None) if is_long else prepared


def _said_anew(turn: Turn) -> Turn | None:
    turn = replace(turn, content=without_recalled(turn.content))
    return turn if turn.says_something else None


def _text(text: str, redact: Redact) -> str:
    if not text:
        return text
    redacted: Any = redact(text)
    if redacted is None:
        raise LeftOutError
    if not isinstance(redacted, str):
        raise TypeError("a redaction hook returns text or None")
    return redacted


def _call(call: ToolCall, redact: Redact) -> ToolCall:
    if isinstance(call.arguments, str):
        return replace(call, arguments=_text(call.arguments, redact))
    written = _text(json.dumps(call.arguments, ensure_ascii=False), redact)
    try:
        return replace(call, arguments=json.loads(written))
    except ValueError:
        return replace(call, arguments=written)
