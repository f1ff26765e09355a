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

    The order of the rankings is of no consequence.

    Source: Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion", 2009; k = 60.
    """
    shares = np.zeros((0, slots))
    for ranking, weight in rankings:
        share = np.zeros((1, slots))
        share[0, ranking] = weight / (K + np.arange(1, len(ranking) + 1))
        shares = np.concatenate((shares, share))
    return np.sort(shares, axis=0).sum(axis=0)


def weight_of_meaning(by_words: Ranking, by_meaning: Ranking, explained: float) -> float:
    """Return what the ranking by meaning weighs beside the one by words, which weighs 1.

    Words that are found are found for sure; a vector is as good as its model. So meaning weighs as
    much as words confirm it, fully when half of the first 20 are the same; and as much as words
    leave open, nothing when they explain half of the question. What only meaning finds is never
    lost: it weighs a tenth at least.

    Args:
        by_words: The ranking by words.
        by_meaning: The ranking by meaning.
        explained: How much of the question the best text explains by its words, 0 to 1.
    """
    common = len(np.intersect1d(by_words[:_HEAD], by_meaning[:_HEAD]))
    return min(1.0, max(2 * max(common, 1) / _HEAD, 1 - 2 * explained))
