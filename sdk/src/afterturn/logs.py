"""What this process remembers of conversations: the log of each, the least used forgotten."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

from afterturn.buffering import Session
from afterturn.recognition import Entry

REMEMBERED: Final = 200_000
"""How many turns of all conversations together are remembered, at some 200 bytes each."""


class Logs:
    """The logs of conversations.

    Concurrency: for one thread.
    """

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._entries: OrderedDict[Session, list[Entry]] = OrderedDict()
        self._count = 0

    def of(self, session: Session) -> Sequence[Entry]:
        """Return a conversation's log."""
        return self._entries.get(session, [])

    def extend(self, session: Session, entries: Iterable[Entry]) -> None:
        """Add to a log; forget the conversations that were not added to for the longest time."""
        log = self._entries.setdefault(session, [])
        before = len(log)
        log.extend(entries)
        self._count += len(log) - before
        self._entries.move_to_end(session)
        while self._count > self._remembered and len(self._entries) > 1:
            _, forgotten = self._entries.popitem(last=False)
            self._count -= len(forgotten)
