"""Running a replay: begin runs one after the other, watch them, stop where its limits say so.

Its runs are in the ledger of extraction under its name, so what it came to is counted there
and nowhere else.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final, NamedTuple

import structlog

from pipeline.crash_points import CrashPoint, reached
from pipeline.errors import BrokerUnavailableError
from pipeline.extracting.extractors import Extractors
from pipeline.extracting.fates import Fates
from pipeline.extracting.planning import new_extraction, ready_data
from pipeline.jobs.running import Hold
from pipeline.ports.clocks import Clock, ServerTime
from pipeline.ports.extractions import Extractions
from pipeline.ports.turns import Turns
from pipeline.replaying.ports import Listings
from pipeline.replaying.selecting import Page, Selector
from schemas.extraction import Extraction, NextMessage, Outcome
from schemas.job import JobState, ReplayJob
from schemas.snapshot import Snapshot
from schemas.topics import SNAPSHOT_REPLAY

WINDOW: Final = 32
"""How many runs may be under way at once: what is live comes between them."""
LOOK_EVERY: Final = timedelta(milliseconds=500)
NOTHING: Final = Page(snapshots=(), cursor=None)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """How far a replay is."""

    job: ReplayJob
    under_way: int


class _Quiet(NamedTuple):
    span_ms: int
    until_ms: int


class ReplayWork:
    """The work of replays."""

    def __init__(
        self,
        *,
        selector: Selector,
        listings: Listings,
        extractions: Extractions,
        extractors: Extractors,
        turns: Turns,
        fates: Fates,
        server_time: ServerTime,
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]],
        lost_after: timedelta,
        tell: Callable[[Step], None] = lambda _step: None,
    ) -> None:
        self._selector = selector
        self._listings = listings
        self._extractions = extractions
        self._extractors = extractors
        self._turns = turns
        self._fates = fates
        self._server_time = server_time
        self._clock = clock
        self._sleep = sleep
        self._lost_after_ms = lost_after // timedelta(milliseconds=1)
        self._quiet: dict[str, _Quiet] = {}
        """By run, until when its message is not sent again."""
        self._tell = tell

    def takes(self, job: ReplayJob) -> bool:
        """Return whether this process can run it: each can."""
        del job
        return True

    async def advance(self, job: ReplayJob, hold: Hold) -> ReplayJob:
        """Look at what is under way, and begin what may be begun."""
        under_way = await self._extractions.of_job(job.job_id, is_open=True)
        self._tell(Step(job=job, under_way=len(under_way)))
        for extraction in under_way:
            await self._send(extraction)
        if (reason := await self._stop(job)) is not None:
            return await hold.store(job, {"state": JobState.PAUSED, "reason": reason})
        room = WINDOW - len(under_way)
        page = await self._following(job, room) if room > 0 else NOTHING
        if room > 0 and page.cursor is None and not under_way:
            ended = {"state": JobState.DONE, "ended_at": self._clock.now()}
            return await hold.store(job, ended)
        for snapshot in page.snapshots:
            job = await self._passed(job, snapshot, hold)
            if _is_spent(job):
                return job
        if page.cursor is None:
            await self._sleep(LOOK_EVERY.total_seconds())
            return await hold.store(job, {})
        return await hold.store(job, {"cursor": page.cursor})

    async def _following(self, job: ReplayJob, room: int) -> Page:
        """Return the snapshots that come next, as many as may be begun now."""
        selection = job.replay.selection
        listed = partial(self._listings.after, job.job_id) if selection.is_listed else None
        return await self._selector.page(selection, listed, after=job.cursor, limit=room)

    async def _passed(self, job: ReplayJob, snapshot: Snapshot, hold: Hold) -> ReplayJob:
        """Begin a run over a snapshot if it needs one, and go past it."""
        tokens = await self._begun(job, snapshot)
        counted = (
            {"skipped": job.skipped + 1}
            if tokens is None
            else {"begun": job.begun + 1, "tokens": job.tokens + tokens}
        )
        return await hold.store(job, {"cursor": snapshot.snapshot_id, **counted})

    async def _stop(self, job: ReplayJob) -> str | None:
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

    async def _begun(self, job: ReplayJob, snapshot: Snapshot) -> int | None:
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


def _is_spent(job: ReplayJob) -> bool:
    budget = job.replay.token_budget
    return budget is not None and job.tokens >= budget
