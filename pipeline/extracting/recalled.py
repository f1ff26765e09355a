"""How a context that we built looks inside a turn, and how it is cut out again.

What memory gave to an agent must not come back as something newly said.
"""

import re
from typing import Final

OPENING: Final = "<afterturn-memory"
"""Begins the block; attributes and `>` follow."""
CLOSING: Final = "</afterturn-memory>"

CUT: Final = "[recalled memory left out]"
"""What stands in its place."""

_DELIMITER: Final = re.compile(
    re.escape(OPENING) + r"(?![\w-])|" + re.escape(CLOSING), re.IGNORECASE
)


def without_recalled(text: str) -> str:
    """Return a text without the blocks that `build_context` made.

    Blocks may nest. One that never ends goes to the end of the text: rather too much is left out
    than that a memory is learned from itself. Linear in the length of the text.
    """
    kept: list[str] = []
    depth = 0
    begins = 0
    for delimiter in _DELIMITER.finditer(text):
        closes = delimiter.group().startswith("</")
        if depth == 0:
            kept.append(text[begins : delimiter.start()])
            kept.append("" if closes else CUT)
        depth = max(0, depth - 1) if closes else depth + 1
        begins = delimiter.end()
    if depth == 0:
        kept.append(text[begins:])
    return "".join(kept)
