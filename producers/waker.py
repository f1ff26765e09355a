"""The waker: what got lost on its way is found in MongoDB and sent again.

It is a list of sweeps that know nothing of each other: one that fails or hangs keeps none of the
others from their work.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog

from pipeline.crash_points import CrashPoint, reached
from pipeline.cutting import is_due, rules_of
from pipeline.messages import encode
from pipeline.metrics import NO_METRICS, Metrics
from pipeline.ports.clocks import ServerTime
from pipeline.ports.projects import Projects
from pipeline.ports.publisher import Publisher
from pipeline.ports.snapshots import Snapshots
from pipeline.ports.turns import OpenSession, Turns
from pipeline.settings import SnapshotSettings
from pipeline.sweeping import mend_each
from schemas.event import TurnRecorded, TurnRecordedData, event_id
from schemas.snapshot import Snapshot
from schemas.topics import TURN_RECORDED

REST: Final = 4.0
"""A sweep rests at least this many times as long as it worked."""
FIRST_PATIENCE: Final = timedelta(seconds=5)
"""How long a session that was woken is left alone; twice as long each time nothing came of it."""
LIMIT: Final = 200
"""What one sweep takes on at most; the next one goes on."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One kind of work that may have been lost."""

    name: str
    run: Callable[[], Awaitable[int]]
    """Looks for it, sends it again, returns how much there was."""


class Waker:
    """Runs sweeps again and again.

    Args:
        sweeps: What to look for.
        interval: How long each rests after it worked, if that was quick.
    """

    def __init__(self, sweeps: Sequence[Sweep], *, interval: timedelta) -> None:
        self._sweeps = tuple(sweeps)
        self._interval = interval

    async def sweep(self) -> dict[str, int]:
        """Run each sweep once, side by side; return how much those that worked have found."""
        found = await asyncio.gather(*map(_guarded, self._sweeps))
        return {
            sweep.name: count
            for sweep, count in zip(self._sweeps, found, strict=True)
            if count is not None
        }

    async def run(self, stopping: asyncio.Event) -> None:
        """Run each sweep at its own pace until `stopping` is set; ends in the middle of none."""
        async with asyncio.TaskGroup() as group:
            for sweep in self._sweeps:
                group.create_task(self._repeat(sweep, stopping), name=f"sweep {sweep.name}")

    async def _repeat(self, sweep: Sweep, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            began = time.monotonic()
            await _guarded(sweep)
            worked = time.monotonic() - began
            rest = max(self._interval.total_seconds(), REST * worked)
            try:
                async with asyncio.timeout(rest):
                    await stopping.wait()
            except TimeoutError:
                continue


async def _guarded(sweep: Sweep) -> int | None:
    """Run a sweep; none where it failed, which the log tells by type."""
    try:
        found = await sweep.run()
    except Exception as error:
        # Whatever it was, the next round tries again, and no other sweep is to suffer from it.
        log.warning("sweep_failed", sweep=sweep.name, exception=type(error).__qualname__)
        return None
    if found:
        log.info("swept", sweep=sweep.name, found=found)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Woken:
    """When a session was last woken, and how long it is left alone."""

    oldest_seq: int
    at_ms: int
    patience_ms: int


class OpenTurnsSweep:
    """Wakes sessions whose open turns are due, or have been open for longer than they should."""

    def __init__(
        self,
        *,
        turns: Turns,
        publisher: Publisher,
        server_time: ServerTime,
        settings: SnapshotSettings,
        lost_after: timedelta,
        projects: Projects | None = None,
        limit: int = LIMIT,
        metrics: Metrics = NO_METRICS,
    ) -> None:
        self._projects = projects
        self._turns = turns
        self._metrics = metrics
        self._publisher = publisher
        self._server_time = server_time
        self._settings = settings
        self._lost_after = lost_after
        self._limit = limit
        self._woken: dict[str, _Woken] = {}

    async def __call__(self) -> int:
        """Wake those that were not woken of late, the longest waiting first; return how many.

        Raises:
            BrokerUnavailableError: Kafka is gone; the next round tries again.
        """
        sessions = await self._turns.open_sessions()
        now_ms = await self._server_time.now_ms()
        known = {session.session for session in sessions}
        self._woken = {key: woken for key, woken in self._woken.items() if key in known}
        rules = {
            project: await rules_of(project, self._settings, self._projects)
            for project in {session.project_id for session in sessions}
        }
        due = [
            session
            for session in sessions
            if self._is_to_wake(session, rules[session.project_id], now_ms)
        ]
        due.sort(key=lambda session: session.oldest_recorded_at)
        due = due[: self._limit]

        async def wake(session: OpenSession) -> None:
            await self._publisher.publish(encode(TURN_RECORDED.name, _wake_up(session, now_ms)))
            reached(CrashPoint.SESSION_WOKEN)
            self._woken[session.session] = self._after_waking(session, now_ms)

        return await mend_each(due, wake, sweep="open_turns", metrics=self._metrics)

    def _is_to_wake(self, session: OpenSession, rules: SnapshotSettings, now_ms: int) -> bool:
        now = _moment(now_ms)
        is_late = now - session.oldest_recorded_at >= self._lost_after
        if not is_late and not is_due(session, rules, now):
            return False
        woken = self._woken.get(session.session)
        if woken is None or woken.oldest_seq != session.oldest_seq:
            return True
        return now_ms - woken.at_ms >= woken.patience_ms

    def _after_waking(self, session: OpenSession, now_ms: int) -> _Woken:
        before = self._woken.get(session.session)
        patience_ms = _milliseconds(FIRST_PATIENCE)
        if before is not None and before.oldest_seq == session.oldest_seq:
            patience_ms = before.patience_ms * 2
        return _Woken(
            oldest_seq=session.oldest_seq,
            at_ms=now_ms,
            patience_ms=min(patience_ms, _milliseconds(self._lost_after)),
        )


class UnsettledSnapshotsSweep:
    """Looks at snapshots that should have been settled by now."""

    def __init__(
        self,
        *,
        snapshots: Snapshots,
        server_time: ServerTime,
        resend: Callable[[Snapshot], Awaitable[None]],
        limit: int = LIMIT,
        metrics: Metrics = NO_METRICS,
    ) -> None:
        self._snapshots = snapshots
        self._metrics = metrics
        self._server_time = server_time
        self._resend = resend
        self._limit = limit

    async def __call__(self) -> int:
        """Hand each to `resend`, which also sets when to look again; return how many."""
        due = await self._snapshots.unsettled_due(await self._server_time.now_ms(), self._limit)
        return await mend_each(
            due, self._resend, sweep="unsettled_snapshots", metrics=self._metrics
        )


def _wake_up(session: OpenSession, now_ms: int) -> TurnRecorded:
    return TurnRecorded(
        id=event_id("turn.recorded", session.session, session.newest_seq),
        subject=session.session,
        time=_moment(now_ms),
        data=TurnRecordedData(session=session.session),
    )


def _moment(now_ms: int) -> datetime:
    return datetime.fromtimestamp(now_ms / 1000, UTC)


def _milliseconds(span: timedelta) -> int:
    return span // timedelta(milliseconds=1)
