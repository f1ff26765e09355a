"""Turns on their way to the memory server: bounded, in order for each conversation.

Whoever takes a conversation has it alone until he gives it back, so its turns go out one by one.
"""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from afterturn.parcels import Parcel
from afterturn.scopes import Conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """How much may wait for the memory server."""

    turns: int = 10_000
    size: int = 64 * 1024 * 1024
    """In bytes of JSON."""


class Shelf(Protocol):
    """Where parcels are also kept, so that they outlive the process."""

    def put(self, parcels: Sequence[Parcel]) -> list[int]:
        """Keep parcels, all or none; return a number for each."""
        ...

    def remove(self, number: int) -> None:
        """Keep one no longer."""
        ...


@dataclass(frozen=True, slots=True)
class Kept:
    """A parcel, and its number on the shelf if it is there."""

    parcel: Parcel
    number: int | None = None


Session = tuple[str | None, str | None]
"""What makes a conversation one: its user and its name."""


def session_of(conversation: Conversation) -> Session:
    """Return what the turns of a conversation are kept in order by."""
    return conversation.user_id, conversation.session_id


class Buffer:
    """What waits for the memory server.

    Concurrency: every method may be called from any thread.
    """

    def __init__(self, bound: Bound, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._bound = bound
        self._clock = clock
        self._changed = threading.Condition()
        self._queues: OrderedDict[Session, deque[Kept]] = OrderedDict()
        self._taken: set[Session] = set()
        self._turns = 0
        self._size = 0
        self._not_before = 0.0
        self._is_closed = False

    @property
    def turns(self) -> int:
        """How many turns wait."""
        return self._turns

    def has_room(self, parcels: Sequence[Parcel]) -> bool:
        """Return whether all of these may wait too; where nothing waits, whatever comes may."""
        size = sum(parcel.size for parcel in parcels)
        with self._changed:
            return self._turns == 0 or (
                self._turns + len(parcels) <= self._bound.turns
                and self._size + size <= self._bound.size
            )

    def add(self, kept: Iterable[Kept]) -> None:
        """Let turns wait, behind those of their conversation."""
        with self._changed:
            for each in kept:
                session = session_of(each.parcel.conversation)
                self._queues.setdefault(session, deque()).append(each)
                self._turns += 1
                self._size += each.parcel.size
            self._changed.notify_all()

    def take(self, timeout: float) -> Kept | None:
        """Return the first turn of a conversation that nobody has, once the server is to be asked.

        None after the timeout, in seconds, and once it is closed. What is taken is given back by
        `done` or `failed`.
        """
        deadline = self._clock() + timeout
        with self._changed:
            while not self._is_closed and (now := self._clock()) < deadline:
                wait = self._not_before - now
                session = None if wait > 0 else self._ready()
                if session is not None:
                    self._taken.add(session)
                    return self._queues[session][0]
                until = deadline - now
                self._changed.wait(min(wait, until) if wait > 0 else until)
        return None

    def done(self, kept: Kept) -> None:
        """Give a conversation back whose first turn needs no more sending."""
        session = session_of(kept.parcel.conversation)
        with self._changed:
            queue = self._queues[session]
            queue.popleft()
            self._turns -= 1
            self._size -= kept.parcel.size
            self._taken.discard(session)
            if queue:
                self._queues.move_to_end(session)
            else:
                del self._queues[session]
            self._changed.notify_all()

    def failed(self, kept: Kept, *, delay: float) -> None:
        """Give a conversation back as it was, and ask the server for nothing for so long.

        It goes behind the others, which may fare better.
        """
        session = session_of(kept.parcel.conversation)
        with self._changed:
            self._taken.discard(session)
            self._queues.move_to_end(session)
            self._not_before = max(self._not_before, self._clock() + delay)
            self._changed.notify_all()

    def wait_until_empty(self, timeout: float) -> bool:
        """Wait for the last turn to go; return whether it went in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._turns == 0, timeout)

    def close(self) -> None:
        """Let nobody take any more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _ready(self) -> Session | None:
        return next((session for session in self._queues if session not in self._taken), None)
