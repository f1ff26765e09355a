"""Fusion: one ranking of two."""

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

K: Final = 60
_HEAD: Final = 20
"""The first of a ranking, by which two of them are compared."""

Ranking = npt.NDArray[np.int64]
"""Slots, best first."""


def fused(rankings: Iterable[tuple[Ranking, float]], slots: int) -> npt.NDArray[np.float64]:
    """Return the score of each of so many slots in rankings of these weights; 0 is in none.

    Which of two rankings comes first is of no consequence.

    Source: Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion", 2009; k = 60.
    """
    scores = np.zeros(slots)
    for ranking, weight in rankings:
        scores[ranking] += weight / (K + np.arange(1, len(ranking) + 1))
    return scores


def weights_of(by_words: Ranking, by_meaning: Ranking, explained: float) -> tuple[float, float]:
    """Return what the rankings by words and by meaning weigh: a tenth at least, 1 at most.

    A filler word is found as surely as a name, and a vector is as good as its model. So both weigh
    as much as they confirm each other, fully when half of their first 20 are the same; beyond that,
    words as much as they explain of the question, fully from a quarter of it, and meaning as much
    as they leave open, nothing from half of it.

    Args:
        by_words: The ranking by words.
        by_meaning: The ranking by meaning.
        explained: How much of the question the best text explains by its words, 0 to 1.
    """
    common = len(np.intersect1d(by_words[:_HEAD], by_meaning[:_HEAD]))
    agreed = 2 * max(common, 1) / _HEAD
    return min(1.0, max(agreed, 4 * explained)), min(1.0, max(agreed, 1 - 2 * explained))
