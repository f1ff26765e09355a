"""The process of jobs ends when it is told to, whatever the database's driver makes of it."""

import asyncio

from pymongo.errors import AutoReconnect

from consumers.jobs_app import JobsApp
from schemas.job import AnyJob, Job

PATIENCE_SECONDS = 10


class SwallowingJobs:
    """A store whose driver takes a cancellation for a connection that broke."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def insert(self, job: Job) -> None:
        raise NotImplementedError

    async def get(self, job_id: str) -> AnyJob | None:
        raise NotImplementedError

    async def all(self) -> list[AnyJob]:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise AutoReconnect("operation cancelled") from None
        return []

    async def swap(self, before: Job, after: Job) -> bool:
        raise NotImplementedError


class NoRunner:
    """Runs nothing: there is no job."""

    async def run(self, job_id: str) -> Job | None:
        raise NotImplementedError

    async def give_up(self, job_id: str, reason: str) -> None:
        raise NotImplementedError


async def test_it_stops_though_its_cancellation_is_swallowed() -> None:
    jobs = SwallowingJobs()
    app = JobsApp(jobs, NoRunner())
    await app.start()
    await jobs.asked.wait()

    async with asyncio.timeout(PATIENCE_SECONDS):
        await app.stop()

    assert all(task.done() for task in app.lasting())
