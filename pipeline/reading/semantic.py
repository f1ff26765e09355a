"""The vector arm: exact cosines with every vector of a scope."""

from typing import Final

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]
"""Of unit length."""

_FIRST_ROWS: Final = 16
_PRIOR: Final = 1
"""So many vectors of no length are taken along into the mean: a single one is not its own mean."""


class SemanticArm:
    """Vectors in one matrix that grows by doubling, each with its slot.

    A model puts every text into one corner of its space; within a scope only the differences tell.
    So cosines are taken from the scope's mean instead of from zero.

    Source: Mu and Viswanath, "All-but-the-Top", 2018: the mean removed.
    """

    def __init__(self) -> None:
        self._matrix = np.empty((0, 0), np.float32)
        self._slots = np.empty(0, np.int64)
        self._rows: dict[int, int] = {}
        self._sum = np.empty(0)
        self._to_mean: npt.NDArray[np.float64] | None = None
        """Products of the rows with the mean, while nothing changes."""

    def check(self, vector: Vector) -> None:
        """Refuse what is no vector to compare with those here.

        Raises:
            ValueError: It is not flat, is empty, has something that is no number or no direction,
                or another dimension than those here.
        """
        if vector.ndim != 1 or not vector.size:
            raise ValueError(f"a vector must be flat and not empty; this has shape {vector.shape}")
        if not np.isfinite(vector).all() or not vector.any():
            raise ValueError("a vector must hold finite numbers, not all of them zero")
        if self._rows and self._matrix.shape[1] != vector.size:
            raise ValueError(
                f"a vector must have the dimension {self._matrix.shape[1]} of those it is"
                f" compared with; this has {vector.size}"
            )

    def put(self, slot: int, vector: Vector) -> None:
        """Add a vector that was checked."""
        row = len(self._rows)
        if not row:
            self._matrix = np.empty((_FIRST_ROWS, vector.size), np.float32)
            self._slots = np.empty(_FIRST_ROWS, np.int64)
            self._sum = np.zeros(vector.size)
        elif row == len(self._matrix):
            self._matrix = np.concatenate((self._matrix, np.empty_like(self._matrix)))
            self._slots = np.concatenate((self._slots, np.empty_like(self._slots)))
        self._matrix[row] = _unit(vector)
        self._slots[row] = slot
        self._rows[slot] = row
        self._sum += self._matrix[row]
        self._to_mean = None

    def drop(self, slot: int) -> None:
        """Take a vector out; nothing happens where the slot has none."""
        row = self._rows.pop(slot, None)
        if row is None:
            return
        self._sum -= self._matrix[row]
        self._to_mean = None
        last = len(self._rows)
        if row != last:
            self._matrix[row] = self._matrix[last]
            self._slots[row] = self._slots[last]
            self._rows[int(self._slots[last])] = row

    def renumber(self, kept: npt.NDArray[np.int64]) -> None:
        """Give the slots in `kept` the numbers 0, 1, 2…."""
        rows = len(self._rows)
        self._slots[:rows] = np.searchsorted(kept, self._slots[:rows])
        self._rows = {int(slot): row for row, slot in enumerate(self._slots[:rows])}

    def scores(self, vector: Vector, slots: int) -> npt.NDArray[np.float64]:
        """Return the cosine with each of so many slots; NaN where a slot has no vector.

        Equal vectors score exactly equally.

        Raises:
            ValueError: As `check`.
        """
        self.check(vector)
        found = np.full(slots, np.nan)
        rows = len(self._rows)
        if not rows:
            return found
        mean = self._sum / (rows + _PRIOR)
        matrix = self._matrix[:rows]
        to_mean = self._to_mean
        if to_mean is None:
            products = np.vecdot(matrix, mean.astype(np.float32))
            to_mean = self._to_mean = products.astype(np.float64)
        asked = _unit(vector)
        square = mean @ mean
        from_mean = np.sqrt(np.maximum(1 - 2 * to_mean + square, np.finfo(np.float32).eps))
        asked_from_mean = max(float(np.linalg.norm(asked - mean)), 1e-6)
        products = np.vecdot(matrix, asked) - to_mean - asked @ mean + square
        found[self._slots[:rows]] = np.clip(products / (from_mean * asked_from_mean), -1, 1)
        return found


def _unit(vector: Vector) -> Vector:
    return (vector / np.linalg.norm(vector.astype(np.float64))).astype(np.float32)
