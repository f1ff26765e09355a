"""From the vectors of one model to those of another, while readers go on with the first.

The vectors of the other model are built beside those that are searched; then one pointer switches,
what was embedded by others meanwhile is made up for, and the first ones are deleted. It may be cut
anywhere: how far it is, is stored, and a vector that is there is not asked for again.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

import structlog

from pipeline.embedding.cleaning import Cleaner
from pipeline.embedding.filling import Filler
from pipeline.embedding.ports import ActiveModel, Embedded, EmbeddingLedger, Refused, Vectors
from pipeline.failing.failures import classify
from schemas.embedding import EmbeddingState, Reembedding

PASSES: Final = 3
"""So often what came meanwhile is built before the switch; the rest is made up for after it."""
WAITS: Final = tuple(timedelta(seconds=seconds) for seconds in (1, 5, 30))
"""How long a service that fails is left alone before it is asked again."""

log = structlog.get_logger()


class Reembeddings(Protocol):
    """Where it is kept how far one is."""

    async def get(self) -> Reembedding | None:
        """Return the one that is under way."""
        ...

    async def put(self, reembedding: Reembedding) -> None:
        """Store how far it is."""
        ...

    async def remove(self) -> None:
        """It is done. Idempotent."""
        ...


@dataclass(slots=True, kw_only=True)
class Report:
    """What was done so far, in this run."""

    records: int = 0
    """Records and turns that were looked at; each once a pass."""
    embedded: int = 0
    """Of them, those that got vectors."""
    refused: int = 0
    """Texts that the model won't take."""
    deleted: int = 0
    """Vectors of other models that are gone."""


class Reembedder:
    """Builds the vectors of a model and switches to it.

    Concurrency: beside consumers of either model, and beside another one of itself.
    """

    def __init__(
        self,
        *,
        ledger: EmbeddingLedger,
        vectors: Vectors,
        filler: Filler,
        cleaner: Cleaner,
        active: ActiveModel,
        reembeddings: Reembeddings,
        page: int,
        late: timedelta,
        waits: Sequence[timedelta] = WAITS,
    ) -> None:
        """Bring the parts together.

        Args:
            ledger: The records, and the turns that are embedded.
            vectors: Their vectors.
            filler: What fills an owner with vectors of the model to come.
            cleaner: What makes an owner pending again.
            active: The pointer.
            reembeddings: Where it is kept how far it is.
            page: How many owners are worked on at a time.
            late: How long after the switch somebody may still embed with the model before.
            waits: How long a service that fails is left alone, each time.
        """
        self._ledger = ledger
        self._vectors = vectors
        self._filler = filler
        self._cleaner = cleaner
        self._active = active
        self._reembeddings = reembeddings
        self._page = page
        self._late = late
        self._waits = tuple(waits)

    async def build(self, project_id: str, progress: Callable[[Report], None]) -> Report:
        """Build the vectors of a project beside those there are, and switch nothing. Idempotent.

        Raises:
            Exception: The embedder failed for longer than it was waited for.
        """
        report, cursor = Report(), ""
        while page := await self._ledger.after(cursor, self._page, project_id=project_id):
            await self._worked_on(page, report, settles=False)
            cursor = page[-1].owner_id
            progress(report)
        return report

    async def run(self, progress: Callable[[Report], None]) -> Report:
        """Build, switch, make up, delete; go on where an earlier run was cut off.

        Where the model is the active one, records that are not embedded with it, or were given up,
        are embedded anew.

        Raises:
            Exception: The embedder failed for longer than it was waited for; the same goes on.
        """
        report = Report()
        model = self._filler.model
        state = await self._reembeddings.get()
        is_active = False
        if state is None or state.model != model:
            is_active = await self._active.claim(model) == model
            state = Reembedding(model=model, phase="switched" if is_active else "building")
            await self._reembeddings.put(state)
        if state.phase == "building":
            for _ in range(PASSES):
                before = report.embedded
                state = await self._pass(state, report, progress)
                if report.embedded == before:
                    break
            await self._active.switch(model)
            log.info("embedding_model_switched", model=model)
            state = state.model_copy(update={"phase": "switched"})
            await self._reembeddings.put(state)
        state = await self._pass(state, report, progress)
        if not is_active:
            await asyncio.sleep(self._late.total_seconds())
            await self._pass(state, report, progress)
        report.deleted += await self._vectors.delete_of_others(model)
        await self._reembeddings.remove()
        progress(report)
        return report

    async def _pass(
        self, state: Reembedding, report: Report, progress: Callable[[Report], None]
    ) -> Reembedding:
        """Go through all records from the cursor on; return the state with the cursor back."""
        settles = state.phase == "switched"
        while page := await self._ledger.after(state.cursor, self._page, project_id=None):
            await self._worked_on(page, report, settles=settles)
            state = state.model_copy(update={"cursor": page[-1].owner_id})
            await self._reembeddings.put(state)
            progress(report)
        return state.model_copy(update={"cursor": ""})

    async def _worked_on(self, page: Sequence[Embedded], report: Report, *, settles: bool) -> None:
        """Work on all of a page side by side, so that they share requests."""
        done = await asyncio.gather(
            *(self._record(found, report, settles=settles) for found in page),
            return_exceptions=True,
        )
        for outcome in done:
            if outcome is not None:
                raise outcome

    async def _record(self, found: Embedded, report: Report, *, settles: bool) -> None:
        report.records += 1
        for wait in (*self._waits, None):
            try:
                await self._fill(found, report, settles=settles)
            except Exception as error:
                # What may pass is waited for; anything else is the command's end.
                failure = classify(error)
                if wait is None or not failure.failure_class.is_environmental:
                    raise
                log.warning("embedder_waited_for", reason=failure.reason, seconds=wait.seconds)
                await asyncio.sleep(wait.total_seconds())
            else:
                return

    async def _fill(self, found: Embedded, report: Report, *, settles: bool) -> None:
        async def answered(refused: Sequence[Refused]) -> None:
            report.refused += len(refused)

        embedding = found.embedding
        if settles:
            is_done = embedding.state in (EmbeddingState.EMBEDDED, EmbeddingState.REFUSED)
            if is_done and embedding.model == self._filler.model:
                return
            await self._cleaner.renew(found.owner_id)
            found = await self._ledger.get(found.owner_id) or found
        outlook = await self._filler.look(found)
        if not settles and not outlook.missing:
            return
        await self._filler.fill(outlook, answered, settles=settles)
        report.embedded += bool(outlook.missing)
