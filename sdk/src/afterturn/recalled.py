"""What memory itself put into a prompt: it was not said anew, so it is not recorded.

The marks are those that the memory server puts around the memories of a context.
"""

import re
from typing import Final

_MARK: Final = re.compile(r"<afterturn-memory(?![\w-])|</afterturn-memory>", re.IGNORECASE)


def without_recalled(text: str) -> str:
    """Return a text without blocks of memories, and without white space around what is left.

    Blocks may nest; one that never ends goes to the end of the text. A text without any stays as
    it is, to the byte.
    """
    kept: list[str] = []
    depth = begins = 0
    for mark in _MARK.finditer(text):
        closes = mark.group().startswith("</")
        if depth == 0:
            kept.append(text[begins : mark.start()])
        depth = max(0, depth - 1) if closes else depth + 1
        begins = mark.end()
    if begins == 0:
        return text
    if depth == 0:
        kept.append(text[begins:])
    return "".join(kept).strip()
