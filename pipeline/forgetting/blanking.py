"""Takes what was forgotten out of the stored answers it was made from."""

from collections.abc import Sequence
from typing import cast

from pipeline.crash_points import CrashPoint, reached
from pipeline.extracting.judging import Judgement, SetAsideReason, judge_answers
from pipeline.extracting.planning import summary_of
from pipeline.folding.refolding import Folder
from pipeline.ids import OpaqueIds
from pipeline.offloading import apart
from pipeline.ports.extractions import Extractions
from pipeline.ports.snapshots import Snapshots
from pipeline.ports.turns import Turns
from schemas.extraction import Extraction, PartState, SetAside
from schemas.memory import Kind


class Blanker:
    """Port `Blanks`.

    An answer is judged as the step does it, so that just those items go which may never
    become an assertion; a summary that may retell them goes with them.
    """

    def __init__(
        self,
        *,
        extractions: Extractions,
        snapshots: Snapshots,
        turns: Turns,
        folder: Folder,
        ids: OpaqueIds,
    ) -> None:
        self._extractions = extractions
        self._snapshots = snapshots
        self._turns = turns
        self._folder = folder
        self._ids = ids

    async def blank(self, extraction_ids: Sequence[str]) -> None:
        """Take out of the answers of extractions what their slots may not hold. Idempotent.

        Those of other runs over the same snapshots say the same, whether they count or not.
        """
        snapshots = {each.rpartition(":")[0] for each in extraction_ids}
        for snapshot_id in sorted(snapshots):
            for extraction in await self._extractions.runs_of(snapshot_id):
                await self._blank(extraction.extraction_id)

    async def _blank(self, extraction_id: str) -> None:
        extraction = await self._extractions.get(extraction_id)
        snapshot = extraction and await self._snapshots.get(extraction.snapshot_id)
        if extraction is None or snapshot is None:
            return
        turns = await self._turns.read(snapshot.session, snapshot.first_seq, snapshot.last_seq)
        judged = await apart(turns, lambda: judge_answers(extraction, snapshot, turns, self._ids))
        bars = await self._folder.bars(
            [one for judgement in judged.values() for one in judgement.assertions]
        )
        judged = await apart(
            turns, lambda: judge_answers(extraction, snapshot, turns, self._ids, bars)
        )
        gone = forgotten_in(judged)
        if gone:
            gone |= given_up(extraction)
        if not gone:
            return
        blanked = await self._extractions.blank(extraction_id, gone)
        reached(CrashPoint.ANSWER_BLANKED)
        if blanked is not None and blanked.outcome is not None:
            await self._snapshots.settle(
                snapshot.snapshot_id, run=extraction.run, summary=summary_of(blanked)
            )
            reached(CrashPoint.SUMMARY_BLANKED)


def given_up(extraction: Extraction) -> dict[int, tuple[SetAside, ...]]:
    """Return all items of answers that nothing is made of any more: they may say the same."""
    return {
        number: tuple(
            SetAside(kind=kind, index=index, reason=SetAsideReason.FORGOTTEN)
            for kind in Kind
            for index in range(len(_listed(part.reply.answer.get(kind))))
        )
        for number, part in enumerate(extraction.parts)
        if part.state is PartState.DEAD and part.reply is not None
    }


def _listed(items: object) -> list[object]:
    return cast("list[object]", items) if isinstance(items, list) else []


def forgotten_in(judgements: dict[int, Judgement]) -> dict[int, tuple[SetAside, ...]]:
    """Return the items to be blanked, by part, of parts in which any is forgotten.

    Beside those that are forgotten they are all that became nothing: a model often says a thing
    twice, and what was refused for its quote may hold the same words. What only repeats an item
    that stands says nothing that is forgotten.
    """
    return {
        part: tuple(item for item in judgement.set_aside if item.reason != SetAsideReason.REPEATED)
        for part, judgement in judgements.items()
        if any(item.reason == SetAsideReason.FORGOTTEN for item in judgement.set_aside)
    }
