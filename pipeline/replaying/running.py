"""Running a replay: begin runs one after the other, watch them, stop where its limits say so.

A replay is a document: who runs it holds a lease on it, and whoever comes next goes on where it
was. Its runs are in the ledger of extraction under its name, so what it came to is counted there
and nowhere else.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple

import structlog

from pipeline.crash_points import CrashPoint, reached
from pipeline.errors import BrokerUnavailableError
from pipeline.extracting.extractors import Extractors
from pipeline.extracting.fates import Fates
from pipeline.extracting.planning import new_extraction, ready_data
from pipeline.ports.clocks import Clock, ServerTime
from pipeline.ports.extractions import Extractions
from pipeline.ports.jobs import Jobs
from pipeline.ports.snapshots import Snapshots
from pipeline.ports.turns import Turns
from schemas.extraction import Extraction, NextMessage, Outcome
from schemas.job import Job, JobLease, JobState
from schemas.snapshot import Snapshot
from schemas.topics import SNAPSHOT_REPLAY

WINDOW: Final = 32
"""How many runs may be under way at once: what is live comes between them."""
LOOK_EVERY: Final = timedelta(milliseconds=500)
LEASE: Final = timedelta(seconds=60)

log = structlog.get_logger()


class JobTakenError(Exception):
    """Somebody else runs it, or has changed it; it never leaves this module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """How far a replay is."""

    job: Job
    under_way: int


class _Quiet(NamedTuple):
    span_ms: int
    until_ms: int


class ReplayRunner:
    """Runs replays.

    Concurrency: any number of processes; each replay is run by one of them at a time.
    """

    def __init__(
        self,
        *,
        jobs: Jobs,
        snapshots: Snapshots,
        extractions: Extractions,
        extractors: Extractors,
        turns: Turns,
        fates: Fates,
        server_time: ServerTime,
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]],
        owner: str,
        lost_after: timedelta,
        tell: Callable[[Step], None] = lambda _step: None,
    ) -> None:
        self._jobs = jobs
        self._snapshots = snapshots
        self._extractions = extractions
        self._extractors = extractors
        self._turns = turns
        self._fates = fates
        self._server_time = server_time
        self._clock = clock
        self._sleep = sleep
        self._owner = owner
        self._lost_after_ms = lost_after // timedelta(milliseconds=1)
        self._quiet: dict[str, _Quiet] = {}
        """By run, until when its message is not sent again."""
        self._tell = tell

    async def run(self, job_id: str) -> Job | None:
        """Run a replay until it is done, paused or cancelled; return it as it is then.

        None: somebody else runs it, or there is none. Cut anywhere, the next call goes on.

        Raises:
            pymongo.errors.PyMongoError: How far it is could not be stored.
        """
        try:
            job = await self._taken(job_id)
            while job.state is JobState.OPEN:
                job = await self._advanced(job)
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

    async def _taken(self, job_id: str) -> Job:
        job = await self._jobs.get(job_id)
        now_ms = await self._server_time.now_ms()
        if job is None or job.state is not JobState.OPEN:
            raise JobTakenError
        held = job.lease
        if held is not None and held.owner != self._owner and held.until_ms > now_ms:
            raise JobTakenError
        return await self._stored(job, {})

    async def _advanced(self, job: Job) -> Job:
        """Look at what is under way, and begin what may be begun."""
        under_way = await self._extractions.of_job(job.job_id, is_open=True)
        self._tell(Step(job=job, under_way=len(under_way)))
        for extraction in under_way:
            await self._send(extraction)
        if (reason := await self._stop(job)) is not None:
            return await self._stored(job, {"state": JobState.PAUSED, "reason": reason})
        room = WINDOW - len(under_way)
        found = await self._following(job, room)
        if not found and not under_way:
            ended = {"state": JobState.DONE, "ended_at": self._clock.now()}
            return await self._stored(job, ended)
        for snapshot in found:
            job = await self._passed(job, snapshot)
            if _is_spent(job):
                return job
        if not found:
            await self._sleep(LOOK_EVERY.total_seconds())
            job = await self._stored(job, {})
        return job

    async def _following(self, job: Job, room: int) -> list[Snapshot]:
        """Return the snapshots that come next, as many as may be begun now."""
        if room <= 0:
            return []
        return await self._snapshots.selected(job.replay.selection, after=job.cursor, limit=room)

    async def _passed(self, job: Job, snapshot: Snapshot) -> Job:
        """Begin a run over a snapshot if it needs one, and go past it."""
        tokens = await self._begun(job, snapshot)
        counted = (
            {"skipped": job.skipped + 1}
            if tokens is None
            else {"begun": job.begun + 1, "tokens": job.tokens + tokens}
        )
        return await self._stored(job, {"cursor": snapshot.snapshot_id, **counted})

    async def _stop(self, job: Job) -> str | None:
        """Return why it may not go on by itself."""
        if _is_spent(job):
            budget = job.replay.token_budget
            return f"its budget of {budget} tokens is spent: resume it with another"
        if job.replay.stops_at_letter:
            ended = await self._extractions.of_job(job.job_id, is_open=False)
            dead = sum(one.outcome in (Outcome.DEAD, Outcome.PARTIAL) for one in ended)
            if dead:
                return f"{dead} of its runs made letters: `./afterturn letters groups` says why"
        return None

    async def _begun(self, job: Job, snapshot: Snapshot) -> int | None:
        """Begin a run over a snapshot; return the tokens of its turns, none if it needs none."""
        runs = await self._extractions.runs_of(snapshot.snapshot_id)
        turns = await self._turns.read(snapshot.session, snapshot.first_seq, snapshot.last_seq)
        tokens = sum(turn.tokens for turn in turns)
        # Begun before this process or its predecessor died: it is not begun twice.
        for extraction in runs:
            if extraction.job_id == job.job_id:
                await self._send(extraction)
                return tokens
        extractor = await self._extractors.of(snapshot.identity.project_id, began_under=None)
        counts = [one for one in runs if one.run == snapshot.active_run]
        is_same = any(one.version == extractor.version for one in counts)
        if not turns or not extractor.kinds or (is_same and not job.replay.is_forced):
            return None
        run = max((one.run for one in runs), default=0) + 1
        now_ms = await self._server_time.now_ms()
        data = ready_data(snapshot, run)
        fresh = new_extraction(data, now_ms)
        message = NextMessage(
            ticket=fresh.next.ticket,
            topic=SNAPSHOT_REPLAY.name,
            scheduled_ms=now_ms,
            due_ms=now_ms,
            sent=False,
        )
        begun = await self._extractions.ensure(
            fresh.model_copy(update={"job_id": job.job_id, "next": message})
        )
        reached(CrashPoint.RUN_BEGUN)
        if begun.job_id != job.job_id:
            # Another replay was faster: this snapshot is its.
            return None
        await self._send(begun)
        return tokens

    async def _send(self, extraction: Extraction) -> None:
        """Send what is unsent or must have been lost, once in a while."""
        now_ms = await self._server_time.now_ms()
        quiet = self._quiet.get(extraction.extraction_id)
        # What a consumer holds is in its hands, or delivered again should it die.
        if extraction.held_since_ms is not None or (quiet and quiet.until_ms > now_ms):
            return
        try:
            is_sent = await self._fates.send_again(extraction)
        except BrokerUnavailableError:
            log.warning("fate_unsent", extraction=extraction.extraction_id)
            return
        if is_sent:
            # Twice as long each time, so that a long queue gets few copies.
            span_ms = self._lost_after_ms if quiet is None else 2 * quiet.span_ms
            self._quiet[extraction.extraction_id] = _Quiet(span_ms, now_ms + span_ms)

    async def _stored(self, job: Job, change: Mapping[str, object]) -> Job:
        """Store how far it is, and hold it for a while longer.

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


def _is_spent(job: Job) -> bool:
    budget = job.replay.token_budget
    return budget is not None and job.tokens >= budget
