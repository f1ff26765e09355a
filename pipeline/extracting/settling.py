"""The end of an extraction: one outcome, and what follows from it."""

from dataclasses import dataclass
from typing import Final

import structlog

from pipeline.crash_points import CrashPoint, reached
from pipeline.extracting.extractors import Extractor
from pipeline.extracting.fates import ClaimLostError, Context, Fates
from pipeline.extracting.judging import Judgement
from pipeline.extracting.planning import summary_of
from pipeline.failing.dead_letters import DeadLetters
from pipeline.failing.gating import Passage
from pipeline.folding.refolding import Folder
from pipeline.metrics import Metrics
from pipeline.ports.clocks import Clock
from pipeline.ports.extractions import Extractions
from pipeline.ports.snapshots import Snapshots
from schemas.extraction import Extraction, Outcome, PartState
from schemas.message import IncomingMessage

_MAY_COME_BACK: Final = (Outcome.PARTIAL, Outcome.DEAD)

log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class Claimed:
    """One claim on one extraction, while it is worked on."""

    message: IncomingMessage
    extraction: Extraction
    ends_at: float
    """By the event loop's clock."""
    calls: int = 0
    part: int | None = None
    """The part a model is being asked for, if one is."""
    extractor: Extractor
    project_id: str | None = None
    passage: Passage
    is_crash_loop: bool
    """What can be set aside is to be, once."""

    @property
    def context(self) -> Context:
        """What is known about where the work comes from."""
        model = self.extractor.model.name
        return Context(message=self.message, project_id=self.project_id, model=model)


class Settler:
    """Gives an extraction its outcome.

    Concurrency: an outcome is written once, by whoever holds the claim; what follows is idempotent.
    """

    def __init__(
        self,
        *,
        extractions: Extractions,
        snapshots: Snapshots,
        folder: Folder,
        fates: Fates,
        dead_letters: DeadLetters,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._dead_letters = dead_letters
        self._extractions = extractions
        self._snapshots = snapshots
        self._folder = folder
        self._fates = fates
        self._clock = clock
        self._metrics = metrics

    async def settle(
        self, claimed: Claimed, outcome: Outcome, judgements: dict[int, Judgement]
    ) -> None:
        """E9: fix the outcome, then what follows from it.

        Raises:
            ClaimLostError: Nothing was written.
        """
        extraction = claimed.extraction
        is_mine = await self._extractions.settle(
            extraction,
            outcome,
            set_aside={part: judgement.set_aside for part, judgement in judgements.items()},
            settled_at=self._clock.now(),
        )
        if not is_mine:
            await self._leave_no_trace(extraction)
            raise ClaimLostError
        reached(CrashPoint.EXTRACTION_SETTLED)
        log.info("extraction_settled", extraction=extraction.extraction_id, outcome=outcome)
        if outcome not in (Outcome.DEAD, Outcome.PARTIAL):
            await claimed.passage.ended_well()
        self._metrics.extraction_settled(outcome)
        await self.finish(extraction.model_copy(update={"outcome": outcome}))

    async def _leave_no_trace(self, extraction: Extraction) -> None:
        """Remove what was asserted meanwhile from an answer that its successor set aside."""
        current = await self._extractions.get(extraction.extraction_id)
        if current is not None and any(
            part.reply and part.state is PartState.DEAD for part in current.parts
        ):
            await self._folder.remove_run(extraction.extraction_id)

    async def _keep_no_words(self, extraction_id: str) -> None:
        """Drop the answers of a replay's run that came to nothing; a dead part may come back."""
        current = await self._extractions.get(extraction_id)
        if current is None or current.took_over or current.outcome in _MAY_COME_BACK:
            return
        await self._extractions.drop_answers(extraction_id)
        reached(CrashPoint.ANSWERS_DROPPED)

    async def finish(self, extraction: Extraction) -> None:
        """Do what follows from an outcome. Idempotent: a redelivery comes here too."""
        await self._snapshots.settle(
            extraction.snapshot_id, run=extraction.run, summary=summary_of(extraction)
        )
        reached(CrashPoint.SNAPSHOT_SETTLED)
        if extraction.job_id is not None:
            await self._keep_no_words(extraction.extraction_id)
        for part in extraction.parts:
            if part.redrives and part.letter_id and part.state is not PartState.DEAD:
                await self._dead_letters.resolve(part.letter_id, deaths=part.redrives)
        await self._fates.send_pending(extraction)
