"""How far a partition may be committed: never past an offset whose message is not completed.

Pure. One instance is one assignment of one partition: a partition that is taken away drops its
watermark, so that what completes late changes nothing for whoever has the partition next.
"""

from heapq import heappop, heappush


class Watermark:
    """The offsets of one assignment of a partition, registered as delivered, completed as done.

    Offsets may have gaps (compaction, transactions), and one that was passed may come again.
    """

    def __init__(self) -> None:
        self._open: list[int] = []
        """A heap of what is registered and not passed yet, completed ones included."""
        self._completed: set[int] = set()
        self._uncompleted: set[int] = set()
        self._end: int | None = None
        """The offset after the highest one registered."""

    def register(self, offset: int) -> bool:
        """Return whether it is to be worked on: false while it is, or is done and not passed."""
        if offset in self._uncompleted or offset in self._completed:
            return False
        self._uncompleted.add(offset)
        heappush(self._open, offset)
        self._end = max(self._end or 0, offset + 1)
        return True

    def complete(self, offset: int) -> None:
        """Note that a durable record says what became of the message. Idempotent."""
        if offset in self._uncompleted:
            self._uncompleted.remove(offset)
            self._completed.add(offset)

    def committable(self) -> int | None:
        """Return the offset to resume at: the first uncompleted one; none before any came."""
        while self._open and self._open[0] in self._completed:
            self._completed.remove(heappop(self._open))
        return self._open[0] if self._open else self._end

    def is_behind(self, offset: int) -> bool:
        """Return whether later ones were registered, and this one is not being worked on."""
        is_known = offset in self._uncompleted or offset in self._completed
        return not is_known and self._end is not None and offset < self._end

    @property
    def uncompleted(self) -> int:
        """How many are being worked on or wait for it."""
        return len(self._uncompleted)
