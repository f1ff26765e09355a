"""What the steps need of the store of operators' jobs."""

from typing import Protocol

from schemas.job import AnyJob, Job


class Jobs(Protocol):
    """Work of operators that takes long: each run by one process at a time."""

    async def insert(self, job: Job) -> None:
        """Store a new one."""
        ...

    async def get(self, job_id: str) -> AnyJob | None:
        """Return one."""
        ...

    async def all(self) -> list[AnyJob]:
        """Return all, the newest first."""
        ...

    async def swap(self, before: Job, after: Job) -> bool:
        """Store it where it is as it was read; false where it has changed."""
        ...
