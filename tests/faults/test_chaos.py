"""Seeded random campaigns: 200 sessions, every fault at low probability, the laws at the end.

`make chaos SEED=7 MINUTES=30` goes on with further seeds until the time is over.
"""

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

from tests.faults.campaign import Campaign, next_seed, plan
from tests.faults.chaos import stage
from tests.faults.laws import broken

SEED = int(os.environ.get("AFTERTURN_CHAOS_SEED", "1"))
LASTS = timedelta(minutes=float(os.environ.get("AFTERTURN_CHAOS_MINUTES", "0")))


async def test_the_laws_hold_when_everything_has_settled_after_a_spell_of_faults(
    tmp_path: Path,
) -> None:
    """The schedule is the seed's; on failure it is told, and what of it had been done."""
    ends_at = time.monotonic() + LASTS.total_seconds()
    seed = SEED
    while True:
        began = time.monotonic()
        folder = tmp_path / str(seed)
        folder.mkdir()
        told = await carried_out(plan(seed), folder)
        sys.stderr.write(f"seed {seed}: {told}, {time.monotonic() - began:.0f} s\n")
        if time.monotonic() >= ends_at:
            return
        seed = next_seed(seed)


async def carried_out(campaign: Campaign, folder: Path) -> str:
    """Carry a campaign out, check the laws, tell what came of it."""
    async with stage(campaign, folder) as staged:
        try:
            await staged.break_things()
            remains = await staged.settle()
            assert broken(campaign, remains) == []
        except (AssertionError, ExceptionGroup) as error:
            done = "\n".join(staged.done)
            error.add_note(f"make chaos SEED={campaign.seed}\n{campaign}\n{done}\n{folder}")
            raise
    outcomes = ", ".join(f"{count} {name}" for name, count in remains.audit.outcomes.items())
    return (
        f"{campaign.turns} turns, {outcomes}, {len(remains.letters)} letters,"
        f" {remains.asked.total()} calls, {remains.ended} processes ended,"
        f" {len(campaign.events)} faults"
    )
