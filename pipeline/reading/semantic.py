"""The vector arm: exact cosines with every vector of a scope."""

from typing import Final

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]

_FIRST_ROWS: Final = 16
_DECIMALS: Final = 5
"""What a product may differ by from row to row is less: equal vectors score equally."""


class SemanticArm:
    """Vectors of unit length in one matrix that grows by doubling, each with its slot."""

    def __init__(self) -> None:
        self._matrix: npt.NDArray[np.float32] | None = None
        self._slots = np.empty(0, np.int64)
        self._rows: dict[int, int] = {}

    def check(self, vector: Vector) -> None:
        """Refuse what is no vector to compare with those here.

        Raises:
            ValueError: It is not flat, is empty, has something that is no number, has no length,
                or another dimension than those here.
        """
        if vector.ndim != 1 or not vector.size:
            raise ValueError(f"a vector is flat and not empty, not of shape {vector.shape}")
        if not np.isfinite(vector).all() or not vector.any():
            raise ValueError("a vector holds finite numbers that are not all zero")
        if self._rows and self._matrix is not None and self._matrix.shape[1] != vector.size:
            raise ValueError(
                f"a vector of dimension {vector.size} among vectors of {self._matrix.shape[1]}"
            )

    def put(self, slot: int, vector: Vector) -> None:
        """Add a vector that was checked."""
        if self._matrix is None or (not self._rows and self._matrix.shape[1] != vector.size):
            self._matrix = np.empty((_FIRST_ROWS, vector.size), np.float32)
            self._slots = np.empty(_FIRST_ROWS, np.int64)
        row = len(self._rows)
        if row == len(self._matrix):
            self._matrix = np.concatenate((self._matrix, np.empty_like(self._matrix)))
            self._slots = np.concatenate((self._slots, np.empty_like(self._slots)))
        self._matrix[row] = vector / np.linalg.norm(vector)
        self._slots[row] = slot
        self._rows[slot] = row

    def drop(self, slot: int) -> None:
        """Take a vector out; nothing happens where the slot has none."""
        row = self._rows.pop(slot, None)
        if row is None or self._matrix is None:
            return
        last = len(self._rows)
        if row != last:
            self._matrix[row] = self._matrix[last]
            self._slots[row] = self._slots[last]
            self._rows[int(self._slots[last])] = row

    def renumber(self, kept: npt.NDArray[np.int64]) -> None:
        """Give the slots in `kept` the numbers 0, 1, 2…."""
        numbers = {int(slot): number for number, slot in enumerate(kept)}
        self._rows = {numbers[slot]: row for slot, row in self._rows.items()}
        for slot, row in self._rows.items():
            self._slots[row] = slot

    def scores(self, vector: Vector, slots: int) -> npt.NDArray[np.float64]:
        """Return the cosine with each of so many slots; NaN where a slot has no vector.

        Raises:
            ValueError: As `check`.
        """
        self.check(vector)
        found = np.full(slots, np.nan)
        rows = len(self._rows)
        if self._matrix is not None and rows:
            asked = np.asarray(vector / np.linalg.norm(vector), np.float32)
            found[self._slots[:rows]] = np.round(self._matrix[:rows] @ asked, _DECIMALS)
        return found
