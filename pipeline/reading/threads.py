"""Threads: in a conversation, what stands beside a turn is part of what it is about.

A question and its answer share few words; each is found by the other's.

Source: Lv and Zhai, "Positional Language Models for Information Retrieval", 2009: a term counts
for the places around it too, the less the farther.
"""

from array import array
from bisect import bisect_left, insort
from typing import Final

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
Slots = npt.NDArray[np.int64]

_NOBODY: Final = -1
_REACH: Final = 2
"""Places to either side that a word counts for."""
_NEXT_SHARE: Final = 0.5
"""How much it counts for one place on, of what it counted for before."""
_BESIDE: Final = 0.25
"""What a neighbour's meaning counts beside one's own: the two of them half as much."""


class Threads:
    """Who stands beside whom, for slots that are numbered in the order they were added."""

    def __init__(self) -> None:
        self._before = array("q")
        self._after = array("q")
        self._rows: dict[str, list[tuple[int, str, int]]] = {}
        self._stands: dict[int, tuple[str, int, str]] = {}

    def put(self, slot: int, key: str, thread: str | None, place: int) -> None:
        """Add a slot to its thread; without one it has no neighbours."""
        self._before.append(_NOBODY)
        self._after.append(_NOBODY)
        if thread is None:
            return
        row = self._rows.setdefault(thread, [])
        insort(row, (place, key, slot))
        self._stands[slot] = (thread, place, key)
        at = bisect_left(row, (place, key, slot))
        self._join(row[at - 1][2] if at else _NOBODY, slot)
        self._join(slot, row[at + 1][2] if at + 1 < len(row) else _NOBODY)

    def drop(self, slot: int) -> None:
        """Take a slot out of its thread: its neighbours stand beside each other."""
        stood = self._stands.pop(slot, None)
        if stood is None:
            return
        thread, place, key = stood
        row = self._rows[thread]
        row.pop(bisect_left(row, (place, key, slot)))
        if not row:
            del self._rows[thread]
        self._join(self._before[slot], self._after[slot])
        self._before[slot] = self._after[slot] = _NOBODY

    def renumber(self, kept: Slots) -> None:
        """Give the slots in `kept`, those not dropped, the numbers 0, 1, 2…."""
        numbers = np.full(len(self._before) + 1, _NOBODY, np.int64)
        numbers[kept] = np.arange(len(kept))
        self._before = array("q", numbers[np.array(self._before, np.int64)[kept]].tobytes())
        self._after = array("q", numbers[np.array(self._after, np.int64)[kept]].tobytes())
        self._rows = {
            thread: [(place, key, int(numbers[slot])) for place, key, slot in row]
            for thread, row in self._rows.items()
        }
        self._stands = {
            slot: (thread, place, key)
            for thread, row in self._rows.items()
            for place, key, slot in row
        }

    def spread(self, best: Values, slots: Slots, values: Values) -> None:
        """Raise what a term counts for, at its slots and for less around them, where it is more.

        Args:
            best: What it counts for in each slot; changed in place.
            slots: Where it stands, each once.
            values: What it counts for there.
        """
        best[slots] = np.maximum(best[slots], values)
        if not self._rows:
            return
        for way in (self._before, self._after):
            on = np.frombuffer(way, np.int64)
            at, share = slots, values
            for _ in range(_REACH):
                at = on[at]
                is_somebody = at != _NOBODY
                at, share = at[is_somebody], share[is_somebody] * _NEXT_SHARE
                best[at] = np.maximum(best[at], share)

    def blended(self, values: Values) -> Values:
        """Return what each slot counts for by itself and by its neighbours; NaN is nothing said."""
        if not self._rows:
            return values
        blended = values.copy()
        for way in (self._before, self._after):
            # Nobody is the last place, which holds nothing.
            beside = np.append(values, np.nan)[np.frombuffer(way, np.int64)]
            blended += _BESIDE * np.where(np.isnan(beside), values, beside)
        return blended / (1 + 2 * _BESIDE)

    def _join(self, left: int, right: int) -> None:
        if left != _NOBODY:
            self._after[left] = right
        if right != _NOBODY:
            self._before[right] = left
