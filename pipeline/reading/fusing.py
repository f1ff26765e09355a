"""Fusion: one ranking of several."""

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

K: Final = 60


def fused(ranks: Iterable[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    """Return the fused score of each slot, of its rank in each arm: 1 is best, inf is not found.

    The order of the arms is of no consequence.

    Source: Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion", 2009; k = 60.
    """
    shares = np.sort([1 / (K + rank) for rank in ranks], axis=0)
    return shares.sum(axis=0)


def ranks_of(order: npt.NDArray[np.int64], slots: int) -> npt.NDArray[np.float64]:
    """Return the rank of each of so many slots, of the slots in their order; inf for the others."""
    ranks = np.full(slots, np.inf)
    ranks[order] = np.arange(1, len(order) + 1)
    return ranks
