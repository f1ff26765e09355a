"""What operators do with jobs of any kind. Every act is in the audit trail before it is done."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from pipeline.errors import JobError
from pipeline.ports.clocks import ServerTime
from pipeline.ports.jobs import Jobs
from pipeline.ports.operator_actions import OperatorActions
from schemas.job import AnyJob, JobState, PreviewJob, RedriveJob, ReplayJob
from schemas.operator_action import Act, OperatorAction

SWAPS: Final = 20
"""How often whoever runs it may be faster before an operator is asked to try again."""
PAUSED_BY_HAND: Final = "an operator paused it"


class JobDesk:
    """Starts, pauses, resumes and cancels jobs.

    Concurrency: operators and whoever runs a job change it one after the other.
    """

    def __init__(
        self,
        *,
        jobs: Jobs,
        actions: OperatorActions,
        server_time: ServerTime,
        new_name: Callable[[], str],
        by: str,
    ) -> None:
        """Prepare.

        Args:
            jobs: The jobs.
            actions: The audit trail.
            server_time: The clock of both.
            new_name: Makes names that no other job or act ever has.
            by: Who acts.
        """
        self._jobs = jobs
        self._actions = actions
        self._server_time = server_time
        self._new_name = new_name
        self.by = by
        """Who acts."""

    def name(self, kind: str) -> str:
        """Return a new job's id."""
        return f"{kind}_{self._new_name()}"

    async def start(self, job: AnyJob, *, project_id: str | None) -> None:
        """Store a job for whoever runs jobs."""
        await self._note(Act(f"{job.kind}.start"), job.job_id, project_id)
        await self._jobs.insert(job)

    async def read(self, job_id: str) -> AnyJob:
        """Return a job.

        Raises:
            JobError: There is none.
        """
        job = await self._jobs.get(job_id)
        if job is None:
            raise JobError("no job has that id: `./afterturn jobs list` shows them")
        return job

    async def all(self) -> list[AnyJob]:
        """Return all jobs, the newest first."""
        return await self._jobs.all()

    async def pause(self, job_id: str) -> AnyJob:
        """Let it begin nothing more until it is resumed; what is under way ends.

        Raises:
            JobError: It is not open.
        """
        return await self._changed(
            job_id, "pause", (JobState.OPEN,), JobState.PAUSED, reason=PAUSED_BY_HAND
        )

    async def resume(
        self, job_id: str, *, token_budget: int | None = None, stop_above: float | None = None
    ) -> AnyJob:
        """Let it go on where it was, perhaps within other limits.

        Args:
            job_id: Which.
            token_budget: Of a replay, for all of it.
            stop_above: Of a redrive: the share of letters that may die again.

        Raises:
            JobError: It is not paused, or has no such limit.
        """
        limits = {
            name: value
            for name, value in (("token_budget", token_budget), ("stop_above", stop_above))
            if value is not None
        }
        return await self._changed(
            job_id, "resume", (JobState.PAUSED,), JobState.OPEN, limits=limits
        )

    async def cancel(self, job_id: str) -> AnyJob:
        """End it where it is; what it has done stays, what is under way ends.

        Raises:
            JobError: It has ended.
        """
        waiting = (JobState.OPEN, JobState.PAUSED)
        return await self._changed(job_id, "cancel", waiting, JobState.CANCELLED)

    async def now(self) -> datetime:
        """Return the database server's time."""
        return datetime.fromtimestamp(await self._server_time.now_ms() / 1000, UTC)

    async def _changed(
        self,
        job_id: str,
        verb: str,
        before: tuple[JobState, ...],
        after: JobState,
        *,
        reason: str | None = None,
        limits: Mapping[str, float] | None = None,
    ) -> AnyJob:
        job = await self.read(job_id)
        await self._note(Act(f"{job.kind}.{verb}"), job_id, project_of(job))
        for _ in range(SWAPS):
            job = await self.read(job_id)
            if job.state not in before:
                raise JobError(f"it is {job.state}: look at it again")
            changed = _limited(job, limits or {}).model_copy(
                update={"state": after, "reason": reason, "lease": None}
            )
            if after is JobState.CANCELLED:
                changed = changed.model_copy(update={"ended_at": await self.now()})
            if await self._jobs.swap(job, changed):
                return changed
        raise JobError("whoever runs it is faster than this: try again")

    async def _note(self, act: Act, target: str, project_id: str | None) -> None:
        await self._actions.write(
            OperatorAction(
                action_id=self._new_name(),
                at=await self.now(),
                by=self.by,
                act=act,
                target=target,
                project_id=project_id,
            )
        )


def project_of(job: AnyJob) -> str | None:
    """Return the one project that a job is about; none where it is about several."""
    if isinstance(job, ReplayJob):
        return job.replay.selection.project_id
    if isinstance(job, PreviewJob):
        return job.preview.selection.project_id
    if isinstance(job, RedriveJob):
        return job.redrive.letters.project_id
    return job.reembed.project_id


def _limited(job: AnyJob, limits: Mapping[str, float]) -> AnyJob:
    """Return a job within other limits.

    Raises:
        JobError: It has no such limit.
    """
    owns: dict[str, str] = {"replay": "token_budget", "redrive": "stop_above"}
    if wrong := limits.keys() - {owns.get(job.kind)}:
        raise JobError(f"a {job.kind} has no limit of that kind ({', '.join(sorted(wrong))})")
    if isinstance(job, ReplayJob):
        return job.model_copy(update={"replay": job.replay.model_copy(update=dict(limits))})
    if isinstance(job, RedriveJob):
        return job.model_copy(update={"redrive": job.redrive.model_copy(update=dict(limits))})
    return job
