"""Running jobs: each by one process at a time, further by whoever comes next.

A job is a document. Who runs it holds a lease on it, and every step stores how far it is and holds
it for a while longer, by compare-and-set: so whoever was taken away finds out before he does more.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, Protocol, TypeVar

from pipeline.crash_points import CrashPoint, reached
from pipeline.ports.clocks import ServerTime
from pipeline.ports.jobs import Jobs
from schemas.job import Job, JobLease, JobState

LEASE: Final = timedelta(seconds=60)

J = TypeVar("J", bound=Job)


class JobTakenError(Exception):
    """Somebody else runs a job, or has changed it; it never leaves what runs jobs."""


class Hold:
    """The lease of one process on a job."""

    def __init__(self, *, jobs: Jobs, server_time: ServerTime, owner: str) -> None:
        self._jobs = jobs
        self._server_time = server_time
        self._owner = owner

    async def store(self, job: J, change: Mapping[str, object]) -> J:
        """Store how far it is, and hold it for a while longer; return it as it is then.

        Raises:
            JobTakenError: An operator or somebody who runs it has changed it.
        """
        until_ms = await self._server_time.now_ms() + LEASE // timedelta(milliseconds=1)
        after = job.model_copy(
            update={"lease": JobLease(owner=self._owner, until_ms=until_ms), **change}
        )
        if after.state is not JobState.OPEN:
            after = after.model_copy(update={"lease": None})
        is_mine = await self._jobs.swap(job, after)
        reached(CrashPoint.JOB_STORED)
        if not is_mine:
            raise JobTakenError
        return after.model_copy(update={"rev": job.rev + 1})


class Work(Protocol[J]):
    """Does what jobs of a kind are for."""

    def takes(self, job: J) -> bool:
        """Return whether this process can run it; else it is left to another one."""
        ...

    async def advance(self, job: J, hold: Hold) -> J:
        """Do a step of an open job, store how far it is, and return it as it is then.

        Cut off anywhere, the same step is done again with the job as it is stored. A step takes
        less than the lease, or stores more than once.
        """
        ...


class JobRunner:
    """Runs jobs of those kinds it has the work for.

    Concurrency: any number of processes; each job is run by one of them at a time.
    """

    def __init__(
        self, *, jobs: Jobs, server_time: ServerTime, owner: str, works: Mapping[str, Work[Any]]
    ) -> None:
        """Prepare.

        Args:
            jobs: The jobs.
            server_time: The clock of leases.
            owner: A name of this process that no other has.
            works: By kind of job.
        """
        self._jobs = jobs
        self._server_time = server_time
        self._owner = owner
        self._works = dict(works)
        self._hold = Hold(jobs=jobs, server_time=server_time, owner=owner)

    async def run(self, job_id: str) -> Job | None:
        """Run a job until it is done, paused or cancelled; return it as it is then.

        None: somebody else runs it or has to, or there is none. Cut anywhere, the next call goes
        on.

        Raises:
            pymongo.errors.PyMongoError: How far it is could not be stored.
        """
        try:
            job, work = await self._taken(job_id)
            while job.state is JobState.OPEN:
                job = await work.advance(job, self._hold)
        except JobTakenError:
            # An operator who pauses or cancels it takes it away, too.
            now = await self._jobs.get(job_id)
            return None if now is None or now.state is JobState.OPEN else now
        except asyncio.CancelledError:
            await asyncio.shield(self._released(job_id))
            raise
        return job

    async def give_up(self, job_id: str, reason: str) -> None:
        """Pause a job that can't go on. Idempotent.

        Raises:
            pymongo.errors.PyMongoError: It is open still.
        """
        job = await self._jobs.get(job_id)
        if job is not None and job.state is JobState.OPEN:
            paused = {"state": JobState.PAUSED, "reason": reason, "lease": None}
            await self._jobs.swap(job, job.model_copy(update=paused))
            reached(CrashPoint.JOB_STORED)

    async def _released(self, job_id: str) -> None:
        """Let whoever comes next begin at once."""
        job = await self._jobs.get(job_id)
        if job is not None and job.lease is not None and job.lease.owner == self._owner:
            await self._jobs.swap(job, job.model_copy(update={"lease": None}))
            reached(CrashPoint.JOB_STORED)

    async def _taken(self, job_id: str) -> tuple[Job, Work[Any]]:
        job = await self._jobs.get(job_id)
        now_ms = await self._server_time.now_ms()
        if job is None or job.state is not JobState.OPEN:
            raise JobTakenError
        work = self._works.get(job.kind)
        if work is None or not work.takes(job):
            raise JobTakenError
        held = job.lease
        if held is not None and held.owner != self._owner and held.until_ms > now_ms:
            raise JobTakenError
        return await self._hold.store(job, {}), work
