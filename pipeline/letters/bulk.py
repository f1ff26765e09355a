"""Sending many letters back: a few first, at a pace, and no further where they only die again."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from pipeline.errors import LetterError
from pipeline.letters.changing import Change
from schemas.failure import Letter, LetterState

LOOK_EVERY: Final = 0.5
"""Seconds between two looks at what the canaries came to."""
CHECK_EVERY: Final = 20
"""After so many letters it is looked whether they die again."""


class Redriver(Protocol):
    """Sends one letter back, and reads one."""

    async def redrive(self, letter: Letter, change: Change) -> None:
        """As `LetterDesk.redrive`."""
        ...

    async def read(self, letter_id: str) -> Letter:
        """As `LetterDesk.read`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How carefully it is done."""

    per_second: float
    canary: int
    """So many first, and no more before all of these have ended; any that dies again ends it."""
    stop_above: float
    """The share of those that ended which may have died again."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """How far it is."""

    of: int
    sent: int = 0
    refused: int = 0
    """They were not dead any more, or can't be tried like this."""
    resolved: int = 0
    died_again: int = 0
    """As far as it was looked."""
    stopped: str | None = None
    """Why the rest was left as it was."""
    refusals: list[str] = field(default_factory=list[str])
    """Why, each once."""


async def redrive_all(
    desk: Redriver,
    letters: Sequence[Letter],
    change: Change,
    pace: Pace,
    *,
    sleep: Callable[[float], Awaitable[None]],
    tell: Callable[[Tally], None],
) -> Tally:
    """Send letters back one after the other; return what came of it.

    Cut off anywhere, the same call goes on with what is dead still.

    Args:
        desk: Sends them.
        letters: Dead ones.
        change: What is to be otherwise, for each.
        pace: How carefully.
        sleep: Waits so many seconds.
        tell: Is told of each step.
    """
    tally = Tally(of=len(letters))
    sent: list[Letter] = []
    for letter in letters:
        try:
            await desk.redrive(letter, change)
        except LetterError as error:
            tally.refused += 1
            if str(error) not in tally.refusals:
                tally.refusals.append(str(error))
            tell(tally)
            continue
        sent.append(letter)
        tally.sent = len(sent)
        tell(tally)
        if tally.sent == pace.canary:
            await _ended(desk, sent, tally, sleep=sleep, tell=tell)
        elif tally.sent % CHECK_EVERY == 0:
            await _look(desk, sent, tally)
        if tally.stopped is None and _dies_again(tally, pace):
            tally.stopped = (
                f"{tally.died_again} of {tally.died_again + tally.resolved} that ended died again"
            )
        if tally.stopped is not None:
            return tally
        await sleep(1 / pace.per_second)
    await _look(desk, sent, tally)
    return tally


def _dies_again(tally: Tally, pace: Pace) -> bool:
    if tally.sent == pace.canary:
        return tally.died_again > 0
    return tally.died_again > pace.stop_above * (tally.died_again + tally.resolved)


async def _ended(
    desk: Redriver,
    sent: Sequence[Letter],
    tally: Tally,
    *,
    sleep: Callable[[float], Awaitable[None]],
    tell: Callable[[Tally], None],
) -> None:
    while True:
        await _look(desk, sent, tally)
        tell(tally)
        if tally.resolved + tally.died_again == len(sent):
            return
        await sleep(LOOK_EVERY)


async def _look(desk: Redriver, sent: Sequence[Letter], tally: Tally) -> None:
    """Count what became of those that were sent."""
    now = [(before, await desk.read(before.letter_id)) for before in sent]
    tally.died_again = sum(after.deaths > before.deaths for before, after in now)
    tally.resolved = sum(
        after.state is LetterState.RESOLVED and after.deaths == before.deaths
        for before, after in now
    )
