"""E7 and E8: what a run's answers make is asserted, and nothing that was forgotten meanwhile."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pipeline.extracting.judging import NO_BARS, Judgement
from pipeline.folding.refolding import Folder
from pipeline.forgetting.barring import Bars
from schemas.assertion import Assertion
from schemas.record import Record

Judge = Callable[[Bars], Awaitable[dict[int, Judgement]]]
"""Judges the answers of a run by what their slots may not hold, by part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asserted:
    """What a run asserted."""

    judgements: dict[int, Judgement]
    records: list[Record]
    """Those that changed by it."""

    @property
    def assertions(self) -> list[Assertion]:
        """What stands of it."""
        return said_in(self.judgements)


async def assert_run(folder: Folder, extraction_id: str, judge: Judge) -> Asserted:
    """Judge the answers of a run, write and fold what is accepted.

    Idempotent. What is forgotten while it is written is removed again; no record ever held it,
    because the fold looks at the bar of its slot itself.
    """
    judgements = await judge(NO_BARS)
    slots_of = said_in(judgements)
    bars = await folder.bars(slots_of)
    records: list[Record] = []
    while True:
        if bars:
            judgements = await judge(bars)
            # An earlier attempt at this run, or this one, may have written what is forgotten now.
            records += await folder.remove_run(extraction_id, but=said_in(judgements))
        records += await folder.assert_all(said_in(judgements))
        seen, bars = bars, await folder.bars(slots_of)
        if bars == seen:
            return Asserted(judgements=judgements, records=records)


def said_in(judgements: dict[int, Judgement]) -> list[Assertion]:
    """Return the assertions of all parts."""
    return [item for judgement in judgements.values() for item in judgement.assertions]
