"""Sending many letters back as a job: laws over whatever dies again, and wherever it is cut off."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import LetterError
from pipeline.jobs.running import LEASE, JobRunner
from pipeline.letters.changing import AS_IT_WAS
from pipeline.letters.redrive_job import RedriveTally, RedriveWork, tally_of
from schemas.failure import Letter, LetterQuery, LetterState
from schemas.job import AnyJob, Change, Job, JobState, Redrive, RedriveJob, Sending
from tests.properties.test_letter_laws import NOW, letter

RUNS = 200
JOB = "redrive_1"


class KilledError(BaseException):
    """The process dies here."""


class World:
    """Letters, the job and what sends them back; those of `dying` die again as soon as they are."""

    def __init__(
        self, letters: Sequence[Letter], redrive: Redrive, dying: set[str], gone: set[str]
    ) -> None:
        self.letters = {one.letter_id: one for one in letters}
        for name in gone & self.letters.keys():
            self.change(name, state=LetterState.RESOLVED)
        self.dying = dying
        self.sent: list[str] = []
        self.job: Job = RedriveJob(
            job_id=JOB, redrive=redrive, of=len(letters), by="an operator", created_at=NOW
        )
        self.ms = 0
        self.kills: list[int] = []
        """After so many steps each the process dies."""

    def change(self, name: str, **changes: object) -> None:
        self.letters[name] = self.letters[name].model_copy(update=changes)

    def step(self) -> None:
        if self.kills:
            self.kills[0] -= 1
            if self.kills[0] < 0:
                del self.kills[0]
                raise KilledError

    def now(self) -> datetime:
        return NOW

    async def now_ms(self) -> int:
        return self.ms

    async def sleep(self, _seconds: float) -> None:
        await asyncio.sleep(0)

    # Port `Jobs`.

    async def insert(self, job: Job) -> None:
        self.job = job

    async def all(self) -> list[AnyJob]:
        raise NotImplementedError

    async def get_job(self) -> AnyJob | None:
        assert isinstance(self.job, RedriveJob)
        return self.job

    async def swap(self, before: Job, after: Job) -> bool:
        self.step()
        if before.rev != self.job.rev:
            return False
        self.job = after.model_copy(update={"rev": before.rev + 1})
        self.step()
        return True

    # Port `SentLetters`.

    async def get(self, letter_id: str) -> Letter | None:
        return self.letters.get(letter_id)

    async def following(
        self, wanted: LetterQuery, after: tuple[datetime, str] | None, limit: int
    ) -> list[Letter]:
        found = [
            one
            for one in self.letters.values()
            if one.state is wanted.state
            and (after is None or (one.created_at, one.letter_id) > after)
        ]
        return sorted(found, key=lambda one: (one.created_at, one.letter_id))[:limit]

    async def mark(self, letter_id: str, job_id: str | None, *, deaths: int) -> None:
        found = self.letters[letter_id]
        if (found.state, found.deaths) == (LetterState.DEAD, deaths):
            self.change(letter_id, job_id=job_id)
        self.step()

    async def states_of_job(self, job_id: str) -> Mapping[LetterState, int]:
        return Counter(one.state for one in self.letters.values() if one.job_id == job_id)

    # Port `Redriver`.

    async def read(self, letter_id: str) -> Letter:
        return self.letters[letter_id]

    async def redrive(self, letter: Letter, change: Change) -> None:
        assert change == AS_IT_WAS
        self.step()
        found = self.letters[letter.letter_id]
        if found.state is not LetterState.DEAD or found.deaths != letter.deaths:
            raise LetterError("it is resolved and not dead")
        self.sent.append(found.letter_id)
        if found.letter_id in self.dying:
            self.change(found.letter_id, deaths=found.deaths + 1)
        else:
            self.change(found.letter_id, state=LetterState.RESOLVED)
        self.step()


class JobsOf:
    """Port `Jobs` of a world."""

    def __init__(self, world: World) -> None:
        self.insert, self.all, self.swap = world.insert, world.all, world.swap
        self._world = world

    async def get(self, job_id: str) -> AnyJob | None:
        del job_id
        return await self._world.get_job()


async def run(world: World) -> tuple[RedriveJob, RedriveTally]:
    """Run the job until it ends, by a new process whenever one dies."""
    for process in range(RUNS):
        work = RedriveWork(
            letters=world, desk_for=lambda _by: world, clock=world, sleep=world.sleep
        )
        runner = JobRunner(
            jobs=JobsOf(world), server_time=world, owner=str(process), works={"redrive": work}
        )
        try:
            ended = await runner.run(JOB)
        except KilledError:
            world.ms += LEASE.seconds * 1000 + 1
            continue
        assert isinstance(ended, RedriveJob)
        return ended, await tally_of(world, JOB)
    raise AssertionError("it never ends")


NAMES = st.sets(st.integers(0, 59).map(str))


def redrive_of(letters: Sequence[Letter], canary: int, *, by_name: bool) -> Redrive:
    """Return a redrive of letters, each named or all that are dead."""
    return Redrive(
        letter_ids=tuple(one.letter_id for one in letters) if by_name else (),
        letters=LetterQuery(state=LetterState.DEAD),
        per_second=1000,
        canary=canary,
    )


@given(st.integers(0, 60), NAMES, NAMES, st.integers(0, 5))
def test_of_what_only_dies_again_no_more_than_the_canaries_are_sent(
    count: int, dying: set[str], gone: set[str], canary: int
) -> None:
    letters = [letter(str(n), minute=n) for n in range(count)]
    world = World(letters, redrive_of(letters, canary, by_name=True), dying, gone)
    job, tally = asyncio.run(run(world))

    assert len(set(world.sent)) == len(world.sent) == job.sent
    assert tally.died_again == sum(one in dying for one in world.sent)
    assert tally.resolved == job.sent - tally.died_again
    first = [str(n) for n in range(count) if str(n) not in gone][:canary]
    if len(first) == canary and set(first) & dying:
        assert (world.sent, job.state) == (first, JobState.PAUSED)
    elif job.state is JobState.DONE:
        assert job.sent + job.refused == count


@given(
    st.integers(0, 30),
    NAMES,
    NAMES,
    st.booleans(),
    st.lists(st.integers(0, 12), max_size=8),
)
def test_cut_off_anywhere_no_letter_is_sent_twice_and_none_is_left_out(
    count: int, dying: set[str], gone: set[str], by_name: bool, kills: list[int]
) -> None:
    letters = [letter(str(n), minute=n % 7) for n in range(count)]
    redrive = redrive_of(letters, 0, by_name=by_name).model_copy(update={"stop_above": 1})
    world = World(letters, redrive, dying, gone)
    world.kills = list(kills)
    job, tally = asyncio.run(run(world))

    dead = {str(n) for n in range(count)} - gone
    assert job.state is JobState.DONE
    assert Counter(world.sent) == Counter(dead)
    assert (job.sent, job.refused) == (len(dead), count - len(dead) if by_name else 0)
    assert (tally.died_again, tally.resolved) == (len(dead & dying), len(dead - dying))


@pytest.mark.parametrize(
    "about",
    [{"extraction_id": "snp_1:0", "part": 0}, {"record_id": "rec_1"}, {"turn_id": "trn_1"}],
)
def test_what_was_sent_just_before_its_sender_died_is_counted_and_not_sent_again(
    about: dict[str, object],
) -> None:
    one = letter("1", minute=0).model_copy(update=about)
    world = World([one], redrive_of([one], 0, by_name=True), set(), set())
    world.change("1", state=LetterState.WAITING, job_id=JOB)
    sending = Sending(letter_id="1", deaths=one.deaths)
    world.job = world.job.model_copy(update={"sending": sending, "passed": 1})

    job, tally = asyncio.run(run(world))

    assert (world.sent, job.sent, job.refused) == ([], 1, 0)
    assert tally.waiting == 1
