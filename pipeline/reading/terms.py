"""Words: what a text and a question are compared by."""

import re
import unicodedata
from typing import Final

_WORD: Final = re.compile(r"[^\W\d_]+|\d+")
_UNSPACED: Final = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
    r"\U00020000-\U0003ffff]+"
)
"""Scripts written without spaces, indexed by pairs of characters."""


def terms_of(text: str) -> list[str]:
    """Return the terms of a text in their order, each as often as it stands there."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    terms = _WORD.findall(_UNSPACED.sub(" ", folded))
    for run in _UNSPACED.findall(folded):
        terms.extend(run[place : place + 2] for place in range(max(1, len(run) - 1)))
    return terms
