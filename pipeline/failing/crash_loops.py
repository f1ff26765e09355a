"""What kills the process that begins it: when it runs alone, when it is set aside. Pure.

A start without an end is the only trace of a crash, so those are what is counted. Whoever was
beside it in the same process leaves the same trace; running alone tells the one from the other.
"""

from enum import Enum, auto
from typing import Final

from schemas.failure import Failure, FailureClass

CRASHES: Final = 5
"""So many starts in a row without a recorded end make a crash loop."""
SUSPECT_CLAIMS: Final = 2
"""So many claims without an end make an extraction one that runs alone. One is forgiven, because
every extraction under way has it after a kill from outside."""
BURIALS: Final = 3
"""Tries to set it aside: what waits for an answer, else what was answered, else nothing of it."""
SET_ASIDE: Final = CRASHES + BURIALS + 1
"""The count of what is not begun any more."""


class SuspectError(Exception):
    """It may kill the process and is not alone in it; nothing was begun that has to be undone.

    It never leaves the isolation of the consumers.
    """


class Course(Enum):
    """What is done with a message."""

    TOGETHER = auto()
    """It runs beside others."""
    ALONE = auto()
    """It runs while nothing else does."""
    BURY = auto()
    """Its step sets it aside and writes the outcome into the ledger."""
    LETTER = auto()
    """Its bytes become a letter and nothing of it is looked at: setting it aside killed, too."""
    PASS_BY = auto()
    """It is a letter already."""


def course_of(starts: int) -> Course:
    """Return what is done after so many starts in a row without an end."""
    if starts <= 0:
        return Course.TOGETHER
    if starts < CRASHES:
        return Course.ALONE
    if starts < CRASHES + BURIALS:
        return Course.BURY
    return Course.LETTER if starts < SET_ASIDE else Course.PASS_BY


def crash_loop() -> Failure:
    """Return the failure of what nobody could see fail."""
    return Failure(
        failure_class=FailureClass.CRASH_LOOP, reason="crash_loop", exception="builtins.SystemExit"
    )
