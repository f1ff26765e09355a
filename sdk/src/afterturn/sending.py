"""Sending what waits: what an answer of the memory server means, and when to try again."""

import logging
import random
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from agent_engine_sdk_memory import Memory, MemoryRequestContext
from agent_engine_sdk_memory.errors import MemoryAPIError, MemoryAuthError, MemoryBadRequestError

from afterturn.buffering import Buffer, Kept, Shelf
from afterturn.parcels import Parcel

SENDERS: Final = 2
"""How many conversations are sent at once. More would be faster only from far away, and would be
more threads for those who call the model to wait for."""
INITIAL_SECONDS: Final = 0.5
"""How long to wait after a first failure; each further one doubles it."""
MAXIMUM_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 1.0
"""How often a sender with nothing to do looks whether it is to end."""
_REFUSALS: Final = frozenset({400, 413, 422})
"""What the content of a turn is answered with; everything else may be answered otherwise later."""
_KNOWN: Final = "IDEMPOTENCY_CONFLICT"
"""The key is taken: the turn is there, with other times or another model beside it."""

_log = logging.getLogger("afterturn")


class Fate(Enum):
    """What became of a turn that was sent."""

    RECORDED = auto()
    REFUSED = auto()
    WAITS = auto()


def backoff(failures: int, dice: Callable[[], float] = random.random) -> float:
    """Return how many seconds to wait after so many failures in a row.

    Source: "equal jitter" of the AWS Architecture Blog, Exponential Backoff and Jitter.
    """
    ceiling = min(MAXIMUM_SECONDS, INITIAL_SECONDS * 2 ** min(failures - 1, 16))
    return ceiling * (1 + dice()) / 2


def judge(error: MemoryAPIError) -> Fate:
    """Return what an error of the memory client means for the turn that was sent."""
    if error.status == 409 and error.code == _KNOWN:  # noqa: PLR2004
        return Fate.RECORDED
    if isinstance(error, MemoryBadRequestError) and error.status in _REFUSALS:
        return Fate.REFUSED
    return Fate.WAITS


@dataclass(slots=True, kw_only=True)
class Sent:
    """What became of the turns so far."""

    recorded: int = 0
    refused: int = 0
    failures: int = 0
    """How often the memory server failed since it last took a turn."""


class Sender:
    """Sends what waits in a buffer, from threads that keep no process alive.

    Concurrency: turns of one conversation go out one after the other, of several at once.
    """

    def __init__(
        self, buffer: Buffer, connect: Callable[[], Memory], shelf: Shelf | None = None
    ) -> None:
        """Make the memory client, which raises where it is not configured; start nothing."""
        self._buffer = buffer
        self._connect = connect
        self._shelf = shelf
        self._memory = connect()
        self._lock = threading.Lock()
        self._stopping = False
        self._threads: list[threading.Thread] = []
        self.sent = Sent()

    def start(self) -> None:
        """Start the threads."""
        self._threads = [
            threading.Thread(target=self._run, name=f"afterturn-sender-{number}", daemon=True)
            for number in range(SENDERS)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self, timeout: float) -> None:
        """Send no more, and leave a request under way after so many seconds."""
        self._stopping = True
        self._buffer.close()
        for thread in self._threads:
            thread.join(timeout / SENDERS)
        self._memory.close()

    def _run(self) -> None:
        while not self._stopping:
            kept = self._buffer.take(_LOOK_SECONDS)
            if kept is None:
                continue
            fate = Fate.WAITS if self._stopping else self._send(kept.parcel)
            if fate is Fate.WAITS:
                self._buffer.failed(kept, delay=backoff(max(1, self.sent.failures)))
                continue
            self._settle(kept)
            self._buffer.done(kept)

    def _settle(self, kept: Kept) -> None:
        if self._shelf is not None and kept.number is not None:
            try:
                self._shelf.remove(kept.number)
            except sqlite3.Error as error:
                _log.warning("a recorded turn stays on disk: %s", type(error).__name__)

    def _send(self, parcel: Parcel) -> Fate:
        whose = parcel.conversation
        scope = MemoryRequestContext(
            session_id=whose.session_id, user_id=whose.user_id, agent_id=whose.agent_id
        )
        memory = self._memory
        try:
            memory.bind(scope).record_turn(**parcel.turn)
        except MemoryAPIError as error:
            fate = judge(error)
            self._note(fate, f"{type(error).__name__}, status {error.status}, code {error.code}")
            if isinstance(error, MemoryAuthError):
                self._sign_in_again(memory)
            return fate
        except Exception as error:  # whatever else is in its way, the turn is not lost for it
            self._note(Fate.WAITS, type(error).__name__)
            return Fate.WAITS
        self._note(Fate.RECORDED, "")
        return Fate.RECORDED

    def _sign_in_again(self, refused: Memory) -> None:
        """Make a new client, whose token may be a newer one."""
        try:
            with self._lock:
                if self._memory is refused:
                    self._memory = self._connect()
                    refused.close()
        except Exception as error:  # the caller's own function: try it again with the next turn
            _log.warning("no new client of the memory server: %s", type(error).__name__)

    def _note(self, fate: Fate, why: str) -> None:
        """Count, and say what an operator should know, without a word of anybody's."""
        with self._lock:
            sent = self.sent
            if fate is Fate.WAITS:
                sent.failures += 1
                if sent.failures == 1 and not self._stopping:
                    _log.warning("the memory server takes no turns, so they wait: %s", why)
                return
            if sent.failures:
                _log.warning("the memory server takes turns again")
            sent.failures = 0
            if fate is Fate.RECORDED:
                sent.recorded += 1
            else:
                sent.refused += 1
                _log.warning("the memory server refused a turn, which is left out: %s", why)
