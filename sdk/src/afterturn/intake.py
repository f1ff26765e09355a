"""The intake: calls that went by, read one after the other, become turns that wait to be sent."""

import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Sequence
from typing import Final

from afterturn.buffering import Buffer, Kept, Shelf, session_of
from afterturn.hearing import heard
from afterturn.logs import Logs
from afterturn.parcels import Parcel, answered_at, arguments, asked_at, parcel
from afterturn.preparing import Preparer
from afterturn.recognition import Fresh, Heard, fresh
from afterturn.tapping import Call
from afterturn.turns import Turn
from afterturn.wires.exchange import Answer, Outcome, Said

CALLS: Final = 1_000
"""How many calls may wait to be read; reading one takes a few milliseconds."""
CALLS_BYTES: Final = 64 * 1024 * 1024
"""The same in bytes."""
REST_SECONDS: Final = 0.02
"""How long a call is left alone after its end: who waited for the answer goes first."""

_log = logging.getLogger("afterturn")


class Intake:
    """Reads calls in a thread of its own, which keeps no process alive.

    Concurrency: `take` may be called from anywhere, a finalizer too: it waits for nobody. Turns
    are put into the buffer in the order in which their calls ended.
    """

    def __init__(self, buffer: Buffer, preparer: Preparer, shelf: Shelf | None) -> None:
        self._buffer = buffer
        self._preparer = preparer
        self._shelf = shelf
        self._logs = Logs()
        self._calls: queue.SimpleQueue[Call | threading.Event | None] = queue.SimpleQueue()
        self._waiting_bytes = 0
        self._hurry = threading.Event()
        self._thread = threading.Thread(target=self._run, name="afterturn-intake", daemon=True)
        self.dropped = 0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def take(self, call: Call) -> None:
        """Take a call that ended."""
        size = len(call.request) + call.size
        if self._calls.qsize() >= CALLS or self._waiting_bytes + size > CALLS_BYTES:
            self.dropped += 1
            return
        self._waiting_bytes += size
        self._calls.put(call)

    def wait(self, timeout: float) -> bool:
        """Wait until all calls are read that were taken; return whether they were in time."""
        read = threading.Event()
        self._calls.put(read)
        self._hurry.set()
        return read.wait(timeout)

    def stop(self, timeout: float) -> None:
        """Read no more than what was taken."""
        self._calls.put(None)
        self._hurry.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        while (given := self._calls.get()) is not None:
            if isinstance(given, threading.Event):
                self._hurry.clear()
                given.set()
                continue
            self._hurry.wait(max(0.0, given.ended + REST_SECONDS - time.monotonic()))
            self._waiting_bytes -= len(given.request) + given.size
            try:
                self._read(given)
            except Exception as error:  # one call that can't be read must not end all recording
                self.dropped += 1
                _log.warning("a call could not be recorded: %s", type(error).__name__)

    def _read(self, call: Call) -> None:
        both = heard(call)
        if both is None:
            return
        said, answer = both
        session = session_of(call.conversation)
        turns = [*said.turns, *answer.turns]
        prepared = [self._preparer.prepare(turn) for turn in turns]
        kept = [
            (index, Heard(digest=each.digest, is_answer=turns[index].role == "assistant"))
            for index, each in enumerate(prepared)
            if each is not None
        ]
        root = answer.answer_id if said.is_kept else said.root
        news = fresh(
            self._logs.of(session),
            [turn for _, turn in kept],
            answers=sum(index >= len(said.turns) for index, _ in kept),
            root=root,
        )
        parcels = self._parcels(call, [(kept[new.index][0], new) for new in news], said, answer)
        if not self._buffer.has_room(parcels):
            self.dropped += len(parcels)
            _log.warning("no room for turns of a conversation: its next request says them again")
            return
        self._buffer.add(self._shelved(parcels))
        if not root:
            self._logs.extend(session, (new.entry for new in news))

    def _parcels(
        self, call: Call, news: Sequence[tuple[int, Fresh]], said: Said, answer: Answer
    ) -> list[Parcel]:
        turns = [*said.turns, *answer.turns]
        asked = said.asked
        parcels: list[Parcel] = []
        for index, new in news:
            turn = self._prepared(turns[index])
            if turn is None:
                continue
            given = arguments(turn, new.key)
            if index >= len(said.turns):
                times = answered_at(call, is_whole=answer.outcome is Outcome.WHOLE)
                given |= {"model_name": answer.model, "metadata": times}
            elif index >= asked:
                given |= {"metadata": asked_at(call)}
            parcels.append(parcel(call.conversation, given))
        return parcels

    def _prepared(self, turn: Turn) -> Turn | None:
        prepared = self._preparer.prepare(turn, again=True)
        return None if prepared is None else prepared.turn

    def _shelved(self, parcels: Sequence[Parcel]) -> list[Kept]:
        if self._shelf is not None and parcels:
            try:
                numbers = self._shelf.put(parcels)
            except sqlite3.Error as error:
                _log.warning("turns wait in memory only: %s", type(error).__name__)
            else:
                return [Kept(*both) for both in zip(parcels, numbers, strict=True)]
        return [Kept(each) for each in parcels]
