"""What all processes know of the letters of one stage, extractor version and kind of work."""

from schemas.base import Frozen


class Guard(Frozen):
    """The shared state of a mass guard."""

    guard_id: str
    """stage:version:live, or job."""
    rev: int = 0
    row: int = 0
    """Letters since the last good outcome."""
    row_sessions: tuple[str, ...] = ()
    """Some of the sessions they are from, each once."""
    seen: int = 0
    """Outcomes of this window, letters included."""
    letters: int = 0
    sessions: tuple[str, ...] = ()
    tripped_at_ms: int | None = None
    """Since when no letter is written, in server time; until an operator resumes."""
    reason: str | None = None
    """Of the letter that was one too many."""
