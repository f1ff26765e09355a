"""Sending many letters back: a few first, at a pace, and no further where they only die again.

What became of them is counted from the letters, which say which job sent them back last.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from pipeline.errors import LetterError
from pipeline.jobs.running import Hold
from pipeline.ports.clocks import Clock
from schemas.failure import Letter, LetterQuery, LetterState
from schemas.job import Change, JobState, Redrive, RedriveJob, Sending

LOOK_EVERY: Final = 0.5
"""Seconds between two looks at what the canaries came to."""
CHECK_EVERY: Final = 20
"""After so many letters it is looked whether they die again,"""
CHECK_SHARE: Final = 0.05
"""or after this share of those that were sent, where that is more."""


class Redriver(Protocol):
    """Sends one letter back, and reads one."""

    async def redrive(self, letter: Letter, change: Change) -> None:
        """As `LetterDesk.redrive`."""
        ...

    async def read(self, letter_id: str) -> Letter:
        """As `LetterDesk.read`."""
        ...


class SentLetters(Protocol):
    """What a redrive needs of `Letters`."""

    async def get(self, letter_id: str) -> Letter | None:
        """As `Letters.get`."""
        ...

    async def following(
        self, wanted: LetterQuery, after: tuple[datetime, str] | None, limit: int
    ) -> list[Letter]:
        """As `Letters.following`."""
        ...

    async def mark(self, letter_id: str, job_id: str | None, *, deaths: int) -> None:
        """As `Letters.mark`."""
        ...

    async def states_of_job(self, job_id: str) -> Mapping[LetterState, int]:
        """As `Letters.states_of_job`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveTally:
    """What became of the letters that a job sent back, so far."""

    resolved: int
    died_again: int
    waiting: int


async def tally_of(letters: SentLetters, job_id: str) -> RedriveTally:
    """Return what became of the letters that a job sent back."""
    states = await letters.states_of_job(job_id)
    return RedriveTally(
        resolved=states.get(LetterState.RESOLVED, 0),
        died_again=states.get(LetterState.DEAD, 0) + states.get(LetterState.DISCARDED, 0),
        waiting=states.get(LetterState.WAITING, 0),
    )


def why_to_stop(redrive: Redrive, tally: RedriveTally, *, are_canaries: bool) -> str | None:
    """Return why no more are to be sent back; none where they may be. Pure."""
    ended = tally.died_again + tally.resolved
    most = 0 if are_canaries else redrive.stop_above * ended
    return (
        f"{tally.died_again} of {ended} that ended died again" if tally.died_again > most else None
    )


class RedriveWork:
    """The work of redrives."""

    def __init__(
        self,
        *,
        letters: SentLetters,
        desk_for: Callable[[str], Redriver],
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]],
        tell: Callable[[RedriveJob], None] = lambda _job: None,
    ) -> None:
        """Prepare.

        Args:
            letters: The letters.
            desk_for: Returns what sends them back in the name of whoever asked for it.
            clock: Says when it ended.
            sleep: Waits so many seconds.
            tell: Is told of each step.
        """
        self._letters = letters
        self._desk_for = desk_for
        self._clock = clock
        self._sleep = sleep
        self._tell = tell
        self._checked: dict[str, int] = {}
        """By job, after how many letters it was last looked whether they die again."""

    def takes(self, job: RedriveJob) -> bool:
        """Return whether this process can run it: each can."""
        del job
        return True

    async def advance(self, job: RedriveJob, hold: Hold) -> RedriveJob:
        """Send the next letter back, or wait for the canaries, or stop."""
        self._tell(job)
        if job.sending is not None:
            return await self._finished(job, job.sending, hold)
        is_canary = not job.is_past_canaries and job.sent == job.redrive.canary > 0
        if is_canary or self._is_to_be_checked(job):
            self._checked[job.job_id] = job.sent
            tally = await tally_of(self._letters, job.job_id)
            if is_canary and tally.waiting:
                await self._sleep(LOOK_EVERY)
                return await hold.store(job, {})
            job = job.model_copy(update={"is_past_canaries": job.is_past_canaries or is_canary})
            if reason := why_to_stop(job.redrive, tally, are_canaries=is_canary):
                return await hold.store(job, {"state": JobState.PAUSED, "reason": reason})
        letter = await self._next(job)
        if letter is None:
            ended = {"state": JobState.DONE, "ended_at": self._clock.now()}
            return await hold.store(job, ended)
        passed = {"cursor": (letter.created_at, letter.letter_id), "passed": job.passed + 1}
        job = job.model_copy(update=passed)
        if letter.state is LetterState.DEAD:
            sending = Sending(letter_id=letter.letter_id, deaths=letter.deaths)
            job = await hold.store(job, {"sending": sending})
        return await self._sent(job, letter, hold)

    async def _next(self, job: RedriveJob) -> Letter | None:
        named = job.redrive.letter_ids
        if named:
            return await self._letters.get(named[job.passed]) if job.passed < len(named) else None
        found = await self._letters.following(job.redrive.letters, job.cursor, 1)
        return found[0] if found else None

    async def _finished(self, job: RedriveJob, sending: Sending, hold: Hold) -> RedriveJob:
        """Go on with what was being sent when whoever did it died."""
        letter = await self._desk_for(job.by).read(sending.letter_id)
        is_message = letter.extraction_id is None and letter.owner_id is None
        is_under_way = is_message and letter.state is LetterState.WAITING
        is_dead = letter.state is LetterState.DEAD and letter.deaths == sending.deaths
        if is_dead or is_under_way:
            return await self._sent(job, letter, hold)
        return await hold.store(job, {"sending": None, "sent": job.sent + 1})

    async def _sent(self, job: RedriveJob, letter: Letter, hold: Hold) -> RedriveJob:
        """Send a letter back; what is refused is counted, too."""
        await self._letters.mark(letter.letter_id, job.job_id, deaths=letter.deaths)
        try:
            await self._desk_for(job.by).redrive(letter, job.redrive.change)
        except LetterError as error:
            await self._letters.mark(letter.letter_id, None, deaths=letter.deaths)
            refusals = tuple(dict.fromkeys((*job.refusals, str(error))))
            refused = {"refused": job.refused + 1, "refusals": refusals}
            return await hold.store(job, {"sending": None, **refused})
        job = await hold.store(job, {"sending": None, "sent": job.sent + 1})
        await self._sleep(1 / job.redrive.per_second)
        return job

    def _is_to_be_checked(self, job: RedriveJob) -> bool:
        since = job.sent - self._checked.get(job.job_id, 0)
        return since >= max(CHECK_EVERY, CHECK_SHARE * job.sent)
