"""What of a turn is found by its meaning. Pure."""

from typing import Final

from pipeline.extracting.recalled import CUT, without_recalled
from schemas.turn import Turn

LONGEST: Final = 16_384
"""So many characters of a turn are embedded at most, its first: some pages. A vector of more says
nothing any more, and a pasted book must not keep an embedder busy for minutes."""


def spoken(turn: Turn) -> str:
    """Return what was said in a turn, without what memory itself put there; often nothing.

    What `build_context` made would be found for what was asked before, not for what was said.
    """
    return without_recalled(turn.content).replace(CUT, " ").strip()[:LONGEST]
