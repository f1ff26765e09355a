"""Going over to another model's vectors as a job: it says how far it is, and can be paused."""

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from typing import Final

from pipeline.embedding.reembedding import Reembedder, Report
from pipeline.ending import end
from pipeline.jobs.running import Hold
from pipeline.ports.clocks import Clock
from schemas.job import JobState, ReembedJob

STORE_EVERY: Final = 0.5
"""Seconds between two times that it is stored how far it is, and seen whether it may go on."""


class ReembedWork:
    """The work of going over to the vectors of one model.

    How far it is in the records is kept by `Reembedder`, so that cut off anywhere it goes on there.
    """

    def __init__(
        self,
        *,
        reembedder: Reembedder,
        model: str,
        clock: Clock,
        tell: Callable[[ReembedJob], None] = lambda _job: None,
    ) -> None:
        """Prepare.

        Args:
            reembedder: Does it.
            model: The one it goes over to.
            clock: Says when it ended.
            tell: Is told how far it is.
        """
        self._reembedder = reembedder
        self._model = model
        self._clock = clock
        self._tell = tell

    def takes(self, job: ReembedJob) -> bool:
        """Return whether this process can run it: it has an embedder of that model."""
        return job.reembed.model == self._model

    async def advance(self, job: ReembedJob, hold: Hold) -> ReembedJob:
        """Go on to the end, and store now and then how far it is.

        Raises:
            Exception: The embedder failed for longer than it was waited for.
        """
        seen, before = Report(), job

        def so_far(report: Report) -> None:
            nonlocal seen
            seen = report

        def counted() -> dict[str, object]:
            return {name: getattr(before, name) + done for name, done in asdict(seen).items()}

        project = job.reembed.project_id
        working = asyncio.ensure_future(
            self._reembedder.run(so_far)
            if project is None
            else self._reembedder.build(project, so_far)
        )
        try:
            while not working.done():
                await asyncio.wait({working}, timeout=STORE_EVERY)
                job = await hold.store(job, counted())
                self._tell(job)
            seen = working.result()
        finally:
            await end([working])
        ended = {"state": JobState.DONE, "ended_at": self._clock.now()}
        return await hold.store(job, counted() | ended)
