"""When the answers of a replay take the place of what counted before.

The law: what was known is never lost to an answer that is empty, in part or worse. Until its run
counts nothing of a replay is asserted; then its assertions stand before those of the earlier runs
go, so that no reader ever finds nothing. Cut anywhere, the same message finishes it.
"""

from collections.abc import Sequence

from pipeline.crash_points import CrashPoint, reached
from pipeline.folding.refolding import Folder
from pipeline.ports.extractions import Extractions
from pipeline.ports.letters import Letters
from pipeline.ports.records import Assertions
from pipeline.ports.snapshots import Snapshots
from schemas.assertion import Assertion
from schemas.extraction import Difference, Extraction, Outcome, PartState
from schemas.failure import LetterState
from schemas.record import Record
from schemas.snapshot import Snapshot


def difference(before: Sequence[Assertion], after: Sequence[Assertion]) -> Difference:
    """Return what one run's assertions make otherwise than another's, by slot and content."""
    was = {(one.slot, one.content) for one in before}
    will_be = {(one.slot, one.content) for one in after}
    return Difference(added=len(will_be - was), gone=len(was - will_be), kept=len(was & will_be))


def takes_over(outcome: Outcome, before: Sequence[Assertion]) -> bool:
    """Return whether a replay's run is to count: whole and not empty, or nothing would be lost."""
    return outcome is Outcome.RECORDS or (not before and outcome is not Outcome.DEAD)


class Succession:
    """Lets runs of replays count.

    Concurrency: of several replays of one snapshot the one begun last counts in the end.
    """

    def __init__(
        self,
        *,
        extractions: Extractions,
        snapshots: Snapshots,
        assertions: Assertions,
        letters: Letters,
        folder: Folder,
    ) -> None:
        self._extractions = extractions
        self._snapshots = snapshots
        self._assertions = assertions
        self._letters = letters
        self._folder = folder

    async def is_taken_over(
        self,
        extraction: Extraction,
        snapshot: Snapshot,
        outcome: Outcome,
        after: Sequence[Assertion],
    ) -> bool:
        """Let a run count if it is to; return whether it does.

        Args:
            extraction: The run, all of whose parts are answered or dead.
            snapshot: As it was read.
            outcome: What the run comes to.
            after: What it would assert.
        """
        before = await self._assertions.of_extraction(
            f"{snapshot.snapshot_id}:{snapshot.active_run}"
        )
        await self._extractions.compare(extraction.extraction_id, difference(before, after))
        reached(CrashPoint.RUN_COMPARED)
        if not takes_over(outcome, before):
            return False
        is_active = await self._snapshots.activate(
            snapshot.snapshot_id, run=extraction.run, replacing=snapshot.active_run
        )
        reached(CrashPoint.RUN_ACTIVATED)
        return is_active

    async def end_earlier(self, extraction: Extraction) -> list[Record]:
        """Remove what earlier runs asserted and answered; return the records that changed by it.

        Their letters are resolved: what they are about has been done. Idempotent.
        """
        changed: list[Record] = []
        for earlier in await self._extractions.runs_of(extraction.snapshot_id):
            if earlier.run >= extraction.run:
                break
            changed += await self._folder.remove_run(earlier.extraction_id)
            await self._extractions.drop_answers(earlier.extraction_id)
            reached(CrashPoint.ANSWERS_DROPPED)
            for part in earlier.parts:
                if part.state is PartState.DEAD and part.letter_id is not None:
                    await self._letters.change(
                        part.letter_id,
                        deaths=part.redrives + 1,
                        states=(LetterState.DEAD,),
                        to=LetterState.RESOLVED,
                    )
                    reached(CrashPoint.LETTER_CHANGED)
        await self._extractions.take_over(extraction.extraction_id)
        reached(CrashPoint.EARLIER_RUNS_ENDED)
        return changed
