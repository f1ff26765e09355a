"""What operators do with redrives of many letters."""

from dataclasses import dataclass
from datetime import timedelta

from pipeline.jobs.desk import JobDesk
from pipeline.letters.desk import LetterDesk
from pipeline.letters.redrive_job import RedriveTally, tally_of
from pipeline.ports.letters import Letters
from schemas.failure import Letter, LetterQuery, LetterState
from schemas.job import Redrive, RedriveJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a redrive would send back."""

    letters: int
    tokens: int
    """Of the turns as text; prompt and answer come on top."""


class RedriveDesk:
    """Starts redrives, and says what became of them; `JobDesk` does the rest."""

    def __init__(self, *, desk: JobDesk, letter_desk: LetterDesk, letters: Letters) -> None:
        self._desk = desk
        self._letter_desk = letter_desk
        self._letters = letters

    async def estimate(self, redrive: Redrive) -> Estimate:
        """Return what would be sent back.

        Raises:
            LetterError: There is no letter of one of the ids.
        """
        letters = await self._selected(redrive)
        tokens = [(await self._letter_desk.estimate(letter)).tokens for letter in letters]
        return Estimate(letters=len(letters), tokens=sum(tokens))

    async def start(self, redrive: Redrive) -> RedriveJob:
        """Store a redrive of the letters there are now, for whoever runs jobs; return it.

        Raises:
            LetterError: There is no letter of one of the ids.
        """
        letters = await self._selected(redrive)
        now = await self._desk.now()
        if not redrive.letter_ids:
            # What dies first from now on is another fault, and might never end.
            newest = max((letter.created_at for letter in letters), default=now)
            bounds = {"state": LetterState.DEAD, "until": newest + timedelta(milliseconds=1)}
            bounded = redrive.letters.model_copy(update=bounds)
            redrive = redrive.model_copy(update={"letters": bounded})
        if len(letters) <= 1:
            redrive = redrive.model_copy(update={"canary": 0})
        job = RedriveJob(
            job_id=self._desk.name("redrive"),
            redrive=redrive,
            of=len(letters),
            by=self._desk.by,
            created_at=now,
        )
        await self._desk.start(job, project_id=redrive.letters.project_id)
        return job

    async def tally(self, job: RedriveJob) -> RedriveTally:
        """Return what became of what it sent back, so far."""
        return await tally_of(self._letters, job.job_id)

    async def _selected(self, redrive: Redrive) -> list[Letter]:
        if redrive.letter_ids:
            return [await self._letter_desk.read(each) for each in redrive.letter_ids]
        wanted: LetterQuery = redrive.letters.model_copy(update={"state": LetterState.DEAD})
        return await self._letters.matching(wanted)
