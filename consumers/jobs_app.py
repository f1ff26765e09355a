"""The process that runs operators' jobs: each open one in turn, again after whatever stops it."""

import asyncio
from datetime import timedelta
from typing import Final, Protocol

import structlog

from pipeline.ending import end
from pipeline.failing.failures import is_infrastructure
from pipeline.ports.jobs import Jobs
from schemas.job import Job, JobState

LOOK_EVERY: Final = timedelta(seconds=2)

log = structlog.get_logger(__name__)


class JobRunner(Protocol):
    """Runs a job until it has ended or is stopped."""

    async def run(self, job_id: str) -> Job | None:
        """As `pipeline.jobs.running.JobRunner.run`."""
        ...

    async def give_up(self, job_id: str, reason: str) -> None:
        """As `pipeline.jobs.running.JobRunner.give_up`."""
        ...


class JobsApp:
    """Looks for open jobs and runs them, side by side.

    Concurrency: any number of processes; each job is run by one of them at a time.
    """

    def __init__(self, jobs: Jobs, runner: JobRunner) -> None:
        self._jobs = jobs
        self._runner = runner
        self._looking: asyncio.Task[None] | None = None
        self._running: dict[str, asyncio.Task[None]] = {}

    async def start(self) -> None:
        """Begin to look."""
        self._looking = asyncio.create_task(self._look(), name="jobs")

    async def stop(self) -> None:
        """Leave each job where it is, for whoever comes next."""
        await end(self.lasting())
        await end(self._running.values())

    def lasting(self) -> list[asyncio.Task[None]]:
        """Return what looks."""
        return [] if self._looking is None else [self._looking]

    async def _look(self) -> None:
        while True:
            try:
                found = await self._jobs.all()
            except Exception as error:  # what is not the environment's is raised again
                if not is_infrastructure(error):
                    raise
                log.warning("jobs_not_read", exception=type(error).__name__)
                found = []
            for job in found:
                if job.state is JobState.OPEN and job.job_id not in self._running:
                    self._begin(job.job_id)
            await asyncio.sleep(LOOK_EVERY.total_seconds())

    def _begin(self, job_id: str) -> None:
        task = asyncio.create_task(self._run(job_id), name=f"job {job_id}")
        self._running[job_id] = task
        task.add_done_callback(lambda _ended: self._running.pop(job_id))

    async def _run(self, job_id: str) -> None:
        """Run a job. The one place that settles its failure: it waits, or is paused with why."""
        try:
            await self._runner.run(job_id)
        except Exception as error:  # a job's failure ends neither the process nor other jobs
            log.warning("job_failed", job=job_id, exception=type(error).__name__)
            if not is_infrastructure(error):
                await self._paused(job_id, type(error).__name__)

    async def _paused(self, job_id: str, exception: str) -> None:
        try:
            await self._runner.give_up(job_id, f"it failed ({exception}): see the log, then resume")
        except Exception as error:  # nobody awaits this: what it says would be logged as it stands
            # It is open still, and tried again at the next look.
            log.warning("job_not_paused", job=job_id, exception=type(error).__name__)
