"""When so many letters are no single message's fault that a bad deploy must be assumed. Pure."""

from typing import Final

from schemas.guard import Guard

ROW: Final = 20
"""So many letters in a row are written; one more is not."""
WINDOW: Final = 100
"""Of so many outcomes ..."""
WINDOW_LETTERS: Final = 30
"""... so many may be letters."""
SESSIONS: Final = 5
"""From fewer sessions it may be the sessions."""


def with_letter(state: Guard, *, session: str, reason: str, now_ms: int) -> Guard:
    """Return the state with one more letter to be; tripped if it must not be written."""
    row_sessions = _with(state.row_sessions, session)
    sessions = _with(state.sessions, session)
    row, letters, seen = state.row + 1, state.letters + 1, state.seen + 1
    is_row = row > ROW and len(row_sessions) >= SESSIONS
    is_share = letters > WINDOW_LETTERS and len(sessions) >= SESSIONS
    changes: dict[str, object] = {
        "row": row,
        "row_sessions": row_sessions,
        "seen": seen,
        "letters": letters,
        "sessions": sessions,
    }
    if is_row or is_share:
        changes |= {"tripped_at_ms": now_ms, "reason": reason}
    return _windowed(_next(state, **changes))


def with_good(state: Guard, count: int) -> Guard:
    """Return the state with so many more outcomes that are no letter."""
    return _windowed(_next(state, row=0, row_sessions=(), seen=state.seen + count))


def resumed(state: Guard) -> Guard:
    """Return the state in which letters are written again, and counted from none."""
    return Guard(guard_id=state.guard_id, rev=state.rev + 1)


def _windowed(state: Guard) -> Guard:
    """Begin a new window where one has ended well."""
    if state.seen < WINDOW or state.tripped_at_ms is not None:
        return state
    return state.model_copy(update={"seen": 0, "letters": 0, "sessions": ()})


def _with(sessions: tuple[str, ...], session: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*sessions, session)))[:SESSIONS]


def _next(state: Guard, **changes: object) -> Guard:
    return state.model_copy(update={**changes, "rev": state.rev + 1})
