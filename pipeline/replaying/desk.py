"""What operators do with replays. Every act is in the audit trail before it is done."""

from collections import Counter
from dataclasses import dataclass

from pipeline.errors import JobError
from pipeline.jobs.desk import JobDesk
from pipeline.ports.extractions import Extractions
from pipeline.ports.jobs import Jobs
from pipeline.ports.turns import Turns
from pipeline.replaying.ports import Listings
from pipeline.replaying.selecting import Selector
from schemas.extraction import Extraction, Outcome
from schemas.job import Lost, Replay, ReplayJob, Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a selection holds."""

    snapshots: int
    tokens: int
    """Of the turns as text; prompt and answer come on top."""
    lost: tuple[Lost, ...] = ()
    """What its topic does not have any more."""


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
        desk: JobDesk,
        jobs: Jobs,
        selector: Selector,
        listings: Listings,
        turns: Turns,
        extractions: Extractions,
    ) -> None:
        self._desk = desk
        self._jobs = jobs
        self._selector = selector
        self._listings = listings
        self._turns = turns
        self._extractions = extractions

    async def estimate(self, selection: Selection) -> Estimate:
        """Return what a selection holds.

        Raises:
            JobError: It can't be anything; the message says why.
            BrokerUnavailableError: It goes by messages, and Kafka did not answer in time.
        """
        listing = await self._selector.found(selection)
        snapshots = tokens = 0
        async for one in self._selector.each(selection, listing and listing.after):
            turns = await self._turns.read(one.session, one.first_seq, one.last_seq)
            tokens += sum(turn.tokens for turn in turns)
            snapshots += 1
        return Estimate(snapshots=snapshots, tokens=tokens, lost=listing.lost if listing else ())

    async def start(self, replay: Replay) -> ReplayJob:
        """Store a replay of what there is now for whoever runs jobs; return it.

        Raises:
            JobError: Its selection can't be anything; the message says why.
            BrokerUnavailableError: It goes by messages, and Kafka did not answer in time.
        """
        listing = await self._selector.found(replay.selection)
        now = await self._desk.now()
        # What is cut later is live, and would keep a forced replay running for ever.
        until = min(replay.selection.until or now, now)
        selection = replay.selection.model_copy(update={"until": until})
        replay = replay.model_copy(update={"selection": selection})
        job_id = self._desk.name("replay")
        if listing is not None:
            await self._listings.put(job_id, listing.snapshot_ids)
        job = ReplayJob(
            job_id=job_id,
            replay=replay,
            by=self._desk.by,
            created_at=now,
            lost=listing.lost if listing else (),
        )
        await self._desk.start(job, project_id=selection.project_id)
        return job

    async def read(self, job_id: str) -> ReplayJob:
        """Return a replay.

        Raises:
            JobError: There is none.
        """
        job = await self._jobs.get(job_id)
        if not isinstance(job, ReplayJob):
            raise JobError("no replay has that id: `./afterturn jobs list` shows them")
        return job

    async def all(self) -> list[ReplayJob]:
        """Return all replays, the newest first."""
        return [job for job in await self._jobs.all() if isinstance(job, ReplayJob)]

    async def report(self, job: ReplayJob) -> Report:
        """Return what it came to, so far."""
        return report_of(await self._extractions.of_job(job.job_id))

    async def pause(self, job_id: str) -> ReplayJob:
        """As `JobDesk.pause`."""
        await self._desk.pause((await self.read(job_id)).job_id)
        return await self.read(job_id)

    async def resume(self, job_id: str, *, token_budget: int | None = None) -> ReplayJob:
        """As `JobDesk.resume`."""
        await self._desk.resume((await self.read(job_id)).job_id, token_budget=token_budget)
        return await self.read(job_id)

    async def cancel(self, job_id: str) -> ReplayJob:
        """As `JobDesk.cancel`."""
        await self._desk.cancel((await self.read(job_id)).job_id)
        return await self.read(job_id)
