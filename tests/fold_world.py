"""The stores of the fold in memory, with a clock, a broker and processes that may die."""

from collections.abc import Callable, Coroutine, Hashable, Iterable
from datetime import timedelta
from typing import Any, cast

import pytest

from pipeline.errors import BrokerUnavailableError
from pipeline.folding.refolding import Folder
from pipeline.messages import decode
from pipeline.ports.publisher import Publisher
from pipeline.ports.records import Assertions, Records
from pipeline.stores.in_memory import MemoryAssertions, MemoryRecords
from pipeline.stores.records import MARK_GRACE
from schemas.assertion import Assertion
from schemas.event import RecordChanged
from schemas.failure import Coordinates
from schemas.message import IncomingMessage, OutgoingMessage
from schemas.record import ContentRun, Record
from tests.assertion_builder import START, folded
from tests.interleaving import Gated, run_alone


class DiedError(Exception):
    """The process is no more."""


class Broker:
    """Port `Publisher`: keeps what was published, while it is up."""

    def __init__(self) -> None:
        self.is_up = True
        self.calls = 0
        self.messages: list[OutgoingMessage] = []
        self.events: list[RecordChanged] = []

    async def publish(self, message: OutgoingMessage) -> None:
        self.calls += 1
        if not self.is_up:
            raise BrokerUnavailableError("down")
        self.messages.append(message)
        at = Coordinates(topic=message.topic, partition=0, offset=0, timestamp_ms=0, group="g")
        event = decode(
            IncomingMessage(at=at, key=message.key, value=message.value, headers=message.headers)
        )
        assert isinstance(event, RecordChanged)
        self.events.append(event)


class WatchedRecords(MemoryRecords):
    """The twin, remembering at which revision each record changed last."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        super().__init__(now_ms)
        self.changed_revs: dict[str, int] = {}

    async def store(self, record: Record, *, read_rev: int, changed: bool, ends_mark: bool) -> bool:
        stored = await super().store(
            record, read_rev=read_rev, changed=changed, ends_mark=ends_mark
        )
        if stored and changed:
            self.changed_revs[record.record_id] = read_rev + 1
        return stored

    def state(self) -> Hashable:
        """Return all that is stored."""
        return tuple(
            (slot, row.record, row.writers, row.dirty, row.unannounced, row.changed_rev)
            for slot, row in sorted(self._rows.items())
        )


class _Mortal:
    """A port that raises when its process has made all the calls it lives for."""

    def __init__(self, port: object, life: list[int]) -> None:
        self._port = port
        self._life = life

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        method = getattr(self._port, name)

        async def call(*args: object, **kwargs: object) -> object:
            if self._life[0] == 0:
                raise DiedError
            self._life[0] -= 1
            return await method(*args, **kwargs)

        return call


class FrozenClock:
    """Port `Clock`."""

    def now(self) -> Any:
        return START


class World:
    """What all processes share."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.assertions = MemoryAssertions()
        self.records = WatchedRecords(lambda: self.now_ms)
        self.broker = Broker()
        self._slots: set[str] = set()
        self._seen: dict[str, Record] = {}
        self._answers: list[list[Hashable]] = []

    def knows(self, said: Iterable[Assertion]) -> None:
        """Look at the slots of these, whatever is written to them."""
        self._slots |= {one.slot for one in said}

    def folder(self, *, dies_after: int | None = None) -> Folder:
        """Return a process; it dies after so many calls."""
        life = [-1 if dies_after is None else dies_after]
        return self._folder_of(lambda port: _Mortal(port, life))

    def gated_folder(self) -> Folder:
        """Return a process that waits for its turn before each call."""
        answers: list[Hashable] = []
        self._answers.append(answers)
        return self._folder_of(lambda port: Gated(port, answers))

    def state(self) -> Hashable:
        """Return what the processes share, and the answers that each gated one got."""
        return (
            frozenset(one.assertion_id for one in self.said()),
            self.records.state(),
            tuple(event.id for event in self.broker.events),
            tuple(tuple(answers) for answers in self._answers),
        )

    def _folder_of(self, wrap: Callable[[object], object]) -> Folder:
        return Folder(
            cast("Assertions", wrap(self.assertions)),
            cast("Records", wrap(self.records)),
            cast("Publisher", wrap(self.broker)),
            FrozenClock(),
        )

    def dies(self, process: Coroutine[Any, Any, object]) -> None:
        """Run a process that dies before its end."""
        with pytest.raises(DiedError):
            run_alone(process)

    def pass_grace(self) -> None:
        """Let so much time pass that every writer of a mark must be dead."""
        self.now_ms += int(MARK_GRACE / timedelta(milliseconds=1))

    def sweep(self) -> None:
        """Do what the waker does, once."""
        run_alone(self.folder().sweep_dirty(100))
        run_alone(self.folder().sweep_unannounced(100))

    def dirty(self) -> list[str]:
        """Return what is marked."""
        return run_alone(self.records.dirty(100))

    def said(self) -> list[Assertion]:
        """Return every assertion of the slots that are looked at."""
        return [one for slot in self._slots for one in run_alone(self.assertions.of_slot(slot))]

    def runs(self) -> dict[str, tuple[ContentRun, ...]]:
        """Return the runs of each record that is no shell."""
        records = {slot: run_alone(self.records.get(slot)) for slot in self._slots}
        return {slot: record.runs for slot, record in records.items() if record and record.runs}

    def check_revs(self) -> None:
        """A record that is not as it was has a higher revision."""
        for slot in self._slots:
            record, before = run_alone(self.records.get(slot)), self._seen.get(slot)
            if record is None:
                assert before is None
                continue
            assert before in (None, record) or record.rev > before.rev
            self._seen[slot] = record

    def check_folded(self) -> None:
        """Every record is the fold of the assertions there are."""
        assert self.runs() == runs_of(self.said())

    def check_announced(self) -> None:
        """Nothing waits to be announced, and an event is as new as each record's last change."""
        announced = {event.data.record: 0 for event in self.broker.events}
        for event in self.broker.events:
            announced[event.data.record] = max(announced[event.data.record], event.data.rev)

        assert run_alone(self.records.unannounced(100)) == []
        assert all(announced[slot] >= rev for slot, rev in self.records.changed_revs.items())


def runs_of(said: Iterable[Assertion]) -> dict[str, tuple[ContentRun, ...]]:
    """Return the fold of each slot that these leave no shell."""
    by_slot: dict[str, list[Assertion]] = {}
    for one in said:
        by_slot.setdefault(one.slot, []).append(one)
    runs = {slot: folded(*members) for slot, members in by_slot.items()}
    return {slot: found for slot, found in runs.items() if found}
