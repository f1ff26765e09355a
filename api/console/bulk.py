"""What is done to many letters from a page: it goes on while the page is closed, in this process.

It is not kept: where this process ends, what was not reached is as it was, and the same act again
goes on with it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import uuid4

import structlog
from pymongo.errors import PyMongoError

from pipeline.ending import end
from pipeline.errors import BrokerUnavailableError, LetterError
from pipeline.letters.bulk import Pace, Tally, redrive_all
from pipeline.letters.changing import Change
from pipeline.letters.desk import DiscardReason, LetterDesk
from schemas.failure import Letter

KEPT: Final = 50
"""Runs that are remembered; the oldest that has ended is forgotten for another."""
AT_ONCE: Final = 4
"""Runs that may be under way."""

log = structlog.get_logger(__name__)


class Deed(StrEnum):
    """What can be done to letters."""

    REDRIVE = "redrive"
    DISCARD = "discard"
    RESTORE = "restore"


@dataclass(slots=True, kw_only=True)
class Run:
    """One act on many letters, and how far it is."""

    run_id: str
    deed: Deed
    by: str
    project_id: str | None
    """Of whoever does it; none: of somebody who sees all."""
    began_at: datetime
    tally: Tally
    ended_at: datetime | None = None
    stopped_by: str | None = None
    """Who stopped it."""


class Bulk:
    """Does what takes longer than a page.

    Args:
        now: This process's time.

    Concurrency: any number of callers on one event loop.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._runs: OrderedDict[str, Run] = OrderedDict()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def redrive(
        self,
        desk: LetterDesk,
        letters: Sequence[Letter],
        change: Change,
        pace: Pace,
        *,
        by: str,
        project_id: str | None,
    ) -> Run:
        """Begin to send letters back, as the command line does; return how it goes.

        Raises:
            LetterError: Too much is under way.
        """
        run = self._new(Deed.REDRIVE, letters, by, project_id)

        def tell(tally: Tally) -> None:
            run.tally = tally

        async def work() -> None:
            await redrive_all(desk, letters, change, pace, sleep=asyncio.sleep, tell=tell)

        self._begin(run, work)
        return run

    def discard(
        self,
        desk: LetterDesk,
        letters: Sequence[Letter],
        reason: DiscardReason,
        *,
        by: str,
        project_id: str | None,
    ) -> Run:
        """Begin to discard letters; else as `redrive`."""
        run = self._new(Deed.DISCARD, letters, by, project_id)
        self._begin(run, lambda: _each(run, letters, lambda one: desk.discard(one, reason)))
        return run

    def restore(
        self, desk: LetterDesk, letters: Sequence[Letter], *, by: str, project_id: str | None
    ) -> Run:
        """Begin to restore letters; else as `redrive`."""
        run = self._new(Deed.RESTORE, letters, by, project_id)
        self._begin(run, lambda: _each(run, letters, desk.restore))
        return run

    def get(self, run_id: str) -> Run | None:
        """Return one; none where this process knows of none."""
        return self._runs.get(run_id)

    async def wait(self, run_id: str, seconds: float) -> None:
        """Wait until it has ended, or so long."""
        if (task := self._tasks.get(run_id)) is not None:
            await asyncio.wait((task,), timeout=seconds)

    async def stop(self, run_id: str, by: str) -> None:
        """Let it begin no further letter. Idempotent."""
        run, task = self._runs.get(run_id), self._tasks.get(run_id)
        if run is not None and task is not None and not task.done():
            run.stopped_by = by
            await end([task])

    async def close(self) -> None:
        """End all that is under way; what was not reached is as it was."""
        await end(list(self._tasks.values()))

    def _new(self, deed: Deed, letters: Sequence[Letter], by: str, project_id: str | None) -> Run:
        if sum(not task.done() for task in self._tasks.values()) >= AT_ONCE:
            raise LetterError(
                f"{AT_ONCE} such acts are under way: wait for one of them, or stop it"
            )
        run = Run(
            run_id=uuid4().hex[:16],
            deed=deed,
            by=by,
            project_id=project_id,
            began_at=self._now(),
            tally=Tally(of=len(letters)),
        )
        for old in [each for each, task in self._tasks.items() if task.done()][: -KEPT or None]:
            del self._runs[old], self._tasks[old]
        self._runs[run.run_id] = run
        return run

    def _begin(self, run: Run, work: Callable[[], Awaitable[None]]) -> None:
        async def begun() -> None:
            try:
                await work()
            except (PyMongoError, BrokerUnavailableError) as error:
                log.warning("letters_run_cut", exception=type(error).__qualname__)
                run.tally.stopped = (
                    "MongoDB or Kafka does not answer: do it again once they do, and it goes on"
                    " with what is left"
                )
            finally:
                run.ended_at = self._now()

        self._tasks[run.run_id] = asyncio.create_task(begun(), name="console.letters")


async def _each(
    run: Run, letters: Sequence[Letter], act: Callable[[Letter], Awaitable[None]]
) -> None:
    """Do something to letters one after the other; what can't be done is counted."""
    tally = run.tally
    for letter in letters:
        try:
            await act(letter)
        except LetterError as error:
            tally.refused += 1
            if str(error) not in tally.refusals:
                tally.refusals.append(str(error))
        else:
            tally.sent += 1
