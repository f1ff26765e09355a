"""The recorder: put around clients, it records what goes by."""

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from agent_engine_sdk_memory import Memory

from afterturn.buffering import Bound, Buffer
from afterturn.intake import Intake
from afterturn.preparing import Preparer, Redact
from afterturn.scopes import Conversation, ambient, wished
from afterturn.sending import Sender
from afterturn.shelving import DiskShelf
from afterturn.tapping import Call, begin, is_http_client, tapped
from afterturn.wires.routes import Route, route_of

EXIT_SECONDS: Final = 2.0
"""How long the end of the process waits for turns on their way."""
EVERY_ROUTE: Final = frozenset(Route)

ClientT = TypeVar("ClientT")

_log = logging.getLogger("afterturn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What became of turns since the recorder was made."""

    recorded: int
    """The memory server has them."""
    waiting: int
    """They wait for it."""
    refused: int
    """It refused them for what is in them."""
    left_out: int
    """The redaction hook left them out, or failed."""
    dropped: int
    """There was no room for them, or their call could not be read; the next request of their
    conversation says them again."""
    unnamed_calls: int
    """Calls of nobody's conversation, of which nothing is recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Works:
    """What runs for one process; a forked one has its own."""

    buffer: Buffer
    preparer: Preparer
    shelf: DiskShelf | None
    sender: Sender
    intake: Intake


class Recorder:
    """Records the conversations of the clients it is put around.

    Nothing it does is seen by who calls them: it neither delays nor changes an answer, and what
    goes wrong with it is logged to `afterturn` and counted.

    Concurrency: it may be used from any thread and event loop. A forked process has a recorder of
    its own: what waited is its parent's to send.
    """

    def __init__(
        self,
        connect: Callable[[], Memory] = Memory,
        *,
        redact: Redact | None = None,
        bound: Bound | None = None,
        disk: Path | None = None,
    ) -> None:
        """Start recording.

        Args:
            connect: Makes the client of the memory server; again when a token is refused.
            redact: Runs over every text before it leaves the process or goes to disk.
            bound: How much may wait while the memory server is away.
            disk: A file in which what waits outlives the process.

        Raises:
            ValueError: The memory server is not configured.
            sqlite3.OperationalError: The file can't be used.
        """
        self._connect = connect
        self._redact = redact
        self._bound = bound or Bound()
        self._disk = disk
        self._unnamed = 0
        self._is_closed = False
        self._lock = threading.Lock()
        self._forked_from: list[_Works] = []
        self._works: _Works | None = self._started(adopt=True)
        _open.add(self)

    def recorded(
        self,
        client: ClientT,
        *,
        conversation: Conversation | None = None,
        routes: Collection[Route] = EVERY_ROUTE,
        by_default: bool = True,
    ) -> ClientT:
        """Return a client like this one, whose conversations are recorded.

        Args:
            client: One of OpenAI or Anthropic, sync or async. It stays as it is and shares its
                connections. One that is recorded already is bound anew.
            conversation: What it is bound to; it goes before what `conversation(...)` says.
            routes: The ways to talk to a model that are recorded.
            by_default: Whether calls are recorded about which `recording(...)` says nothing.

        Raises:
            TypeError: It is no such client.
        """
        http: Any = getattr(client, "_client", None)
        with_options: Any = getattr(client, "with_options", None)
        if with_options is None or not is_http_client(http):
            raise TypeError("only a client of OpenAI or Anthropic, sync or async, can be recorded")
        bound = conversation or Conversation()
        listened = frozenset(routes)

        def tap(request: Any) -> Call | None:
            return self._begun(request, bound, listened, by_default=by_default)

        twin: ClientT = with_options(http_client=tapped(http, tap))
        return twin

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until the memory server has all turns; return whether it had in so many seconds."""
        works = self._running()
        if self._is_closed:
            return works.buffer.turns == 0
        deadline = time.monotonic() + timeout
        is_read = works.intake.wait(timeout)
        return works.buffer.wait_until_empty(max(0.0, deadline - time.monotonic())) and is_read

    def close(self, timeout: float = 10.0) -> bool:
        """Send what waits, for so many seconds, and record no more; return whether all went.

        Idempotent. What is left is lost, unless there is a file for it.
        """
        works = self._running()
        if self._is_closed:
            return works.buffer.turns == 0
        deadline = time.monotonic() + timeout
        is_flushed = self.flush(timeout)
        self._is_closed = True
        for part in (works.intake, works.sender):
            part.stop(max(0.1, deadline - time.monotonic()))
        if works.shelf is not None:
            works.shelf.close()
        _open.discard(self)
        if not is_flushed:
            _log.warning("closed with %d turns that were not recorded", works.buffer.turns)
        return is_flushed

    @property
    def counts(self) -> Counts:
        """What became of turns so far."""
        works = self._running()
        return Counts(
            recorded=works.sender.sent.recorded,
            waiting=works.buffer.turns,
            refused=works.sender.sent.refused,
            left_out=works.preparer.left_out,
            dropped=works.intake.dropped,
            unnamed_calls=self._unnamed,
        )

    def __enter__(self) -> "Recorder":
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def forked(self) -> None:
        """Begin anew in a forked process, which has none of the threads, at its first call.

        What the parent left is neither used nor closed: its connections are the parent's.
        """
        self._lock = threading.Lock()
        if self._works is not None:
            self._forked_from.append(self._works)
        self._works = None

    def _running(self) -> _Works:
        works = self._works
        if works is None:
            with self._lock:
                works = self._works = self._works or self._started(adopt=False)
        return works

    def _started(self, *, adopt: bool) -> _Works:
        buffer = Buffer(self._bound)
        preparer = Preparer(self._redact)
        shelf = None if self._disk is None else DiskShelf(self._disk)
        if shelf is not None and adopt:
            buffer.add(shelf.load())
        sender = Sender(buffer, self._connect, shelf)
        intake = Intake(buffer, preparer, shelf)
        sender.start()
        intake.start()
        return _Works(buffer=buffer, preparer=preparer, shelf=shelf, sender=sender, intake=intake)

    def _begun(
        self,
        request: Any,
        bound: Conversation,
        routes: Collection[Route],
        *,
        by_default: bool,
    ) -> Call | None:
        route = route_of(request.method, request.url.path)
        wish = wished()
        is_wished = by_default if wish is None else wish
        if route is None or route not in routes or self._is_closed or not is_wished:
            return None
        conversation = bound.over(ambient())
        if not conversation.is_named:
            self._unnamed += 1
            if self._unnamed == 1:
                _log.warning(
                    "a call belongs to nobody's conversation, so it is not recorded: "
                    "name session_id and user_id by afterturn.conversation(...)"
                )
            return None
        return begin(route, conversation, request.content, self._running().intake.take)


_open: "weakref.WeakSet[Recorder]" = weakref.WeakSet()


def _close_all() -> None:
    for recorder in list(_open):
        recorder.close(EXIT_SECONDS)


def _fork_all() -> None:
    for recorder in list(_open):
        recorder.forked()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fork_all)
