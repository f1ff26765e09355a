"""What operators do with replays. Every act is in the audit trail before it is done."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from pipeline.errors import JobError
from pipeline.ports.clocks import ServerTime
from pipeline.ports.extractions import Extractions
from pipeline.ports.jobs import Jobs
from pipeline.ports.operator_actions import OperatorActions
from pipeline.ports.snapshots import Snapshots
from pipeline.ports.turns import Turns
from schemas.extraction import Extraction, Outcome
from schemas.job import Job, JobState, Replay, Selection
from schemas.operator_action import Act, OperatorAction

SWAPS = 20
"""How often whoever runs it may be faster before an operator is asked to try again."""
BATCH = 200
PAUSED_BY_HAND = "an operator paused it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a selection holds."""

    snapshots: int
    tokens: int
    """Of the turns as text; prompt and answer come on top."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a replay came to, so far."""

    outcomes: dict[str, int]
    """Of its runs; `pending` are under way."""
    took_over: int
    """Runs that count now in the place of earlier ones."""
    left_alone: int
    """Runs that ended and made nothing better: what was known stays."""
    added: int
    """Contents that the runs that took over know beyond the earlier ones."""
    gone: int
    """Contents that only the earlier ones knew."""
    kept: int
    would_lose: int
    """Contents that the runs that were left alone did not find again."""


def report_of(runs: list[Extraction]) -> Report:
    """Return what runs of a replay came to."""
    ended = [one for one in runs if one.outcome is not None]
    taken = [one.difference for one in ended if one.took_over and one.difference]
    left = [one for one in ended if not one.took_over]
    return Report(
        outcomes=dict(Counter("pending" if one.outcome is None else one.outcome for one in runs)),
        took_over=len(ended) - len(left),
        left_alone=sum(one.outcome is not Outcome.GONE for one in left),
        added=sum(each.added for each in taken),
        gone=sum(each.gone for each in taken),
        kept=sum(each.kept for each in taken),
        would_lose=sum(one.difference.gone for one in left if one.difference),
    )


class ReplayDesk:
    """Starts, pauses, resumes and cancels replays, and reports on them.

    Concurrency: operators and whoever runs a replay change it one after the other.
    """

    def __init__(
        self,
        *,
        jobs: Jobs,
        snapshots: Snapshots,
        turns: Turns,
        extractions: Extractions,
        actions: OperatorActions,
        server_time: ServerTime,
        new_name: Callable[[], str],
        by: str,
    ) -> None:
        self._jobs = jobs
        self._snapshots = snapshots
        self._turns = turns
        self._extractions = extractions
        self._actions = actions
        self._server_time = server_time
        self._new_name = new_name
        """Makes names that no other job or act ever has."""
        self._by = by

    async def estimate(self, selection: Selection) -> Estimate:
        """Return what a selection holds."""
        snapshots = tokens = 0
        cursor: str | None = None
        while found := await self._snapshots.selected(selection, after=cursor, limit=BATCH):
            for one in found:
                turns = await self._turns.read(one.session, one.first_seq, one.last_seq)
                tokens += sum(turn.tokens for turn in turns)
            snapshots += len(found)
            cursor = found[-1].snapshot_id
        return Estimate(snapshots=snapshots, tokens=tokens)

    async def start(self, replay: Replay) -> Job:
        """Store a replay of what there is now for whoever runs jobs; return it."""
        now = await self._now()
        # What is cut later is live, and would keep a forced replay running for ever.
        until = min(replay.selection.until or now, now)
        selection = replay.selection.model_copy(update={"until": until})
        replay = replay.model_copy(update={"selection": selection})
        job = Job(job_id=f"rpl_{self._new_name()}", replay=replay, by=self._by, created_at=now)
        await self._note(Act.REPLAY_START, job.job_id, replay.selection.project_id)
        await self._jobs.insert(job)
        return job

    async def read(self, job_id: str) -> Job:
        """Return a replay.

        Raises:
            JobError: There is none.
        """
        job = await self._jobs.get(job_id)
        if job is None:
            raise JobError("no replay has that id: `./afterturn replay list` shows them")
        return job

    async def all(self) -> list[Job]:
        """Return all replays, the newest first."""
        return await self._jobs.all()

    async def report(self, job: Job) -> Report:
        """Return what it came to, so far."""
        return report_of(await self._extractions.of_job(job.job_id))

    async def pause(self, job_id: str) -> Job:
        """Let it begin nothing more until it is resumed; what is under way ends.

        Raises:
            JobError: It is not open.
        """
        return await self._changed(
            job_id, Act.REPLAY_PAUSE, (JobState.OPEN,), JobState.PAUSED, reason=PAUSED_BY_HAND
        )

    async def resume(self, job_id: str, *, token_budget: int | None = None) -> Job:
        """Let it go on where it was, perhaps with another budget.

        Raises:
            JobError: It is not paused.
        """
        return await self._changed(
            job_id, Act.REPLAY_RESUME, (JobState.PAUSED,), JobState.OPEN, token_budget=token_budget
        )

    async def cancel(self, job_id: str) -> Job:
        """End it where it is; what it has done stays, what is under way ends.

        Raises:
            JobError: It has ended.
        """
        waiting = (JobState.OPEN, JobState.PAUSED)
        return await self._changed(job_id, Act.REPLAY_CANCEL, waiting, JobState.CANCELLED)

    async def _changed(
        self,
        job_id: str,
        act: Act,
        before: tuple[JobState, ...],
        after: JobState,
        *,
        reason: str | None = None,
        token_budget: int | None = None,
    ) -> Job:
        await self._note(act, job_id, (await self.read(job_id)).replay.selection.project_id)
        for _ in range(SWAPS):
            job = await self.read(job_id)
            if job.state not in before:
                raise JobError(f"it is {job.state}: look at it again")
            replay = job.replay
            if token_budget is not None:
                replay = replay.model_copy(update={"token_budget": token_budget})
            changed = job.model_copy(
                update={"state": after, "reason": reason, "replay": replay, "lease": None}
            )
            if after is JobState.CANCELLED:
                changed = changed.model_copy(update={"ended_at": await self._now()})
            if await self._jobs.swap(job, changed):
                return changed
        raise JobError("whoever runs it is faster than this: try again")

    async def _now(self) -> datetime:
        return datetime.fromtimestamp(await self._server_time.now_ms() / 1000, UTC)

    async def _note(self, act: Act, target: str, project_id: str | None) -> None:
        await self._actions.write(
            OperatorAction(
                action_id=self._new_name(),
                at=await self._now(),
                by=self._by,
                act=act,
                target=target,
                project_id=project_id,
            )
        )
