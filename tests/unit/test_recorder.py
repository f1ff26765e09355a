"""Recording by one process: places, keys, what is told, and that Kafka costs a caller nothing."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo.errors import AutoReconnect, DuplicateKeyError

from pipeline.errors import (
    BrokerUnavailableError,
    ConflictError,
    InvalidInputError,
    RecordingUnavailableError,
)
from pipeline.ids import OpaqueIds
from pipeline.ports.turns import (
    IdempotencyKey,
    NewestTurn,
    OpenSession,
    OpenTurn,
    SessionState,
)
from producers.announcing import Announcer
from producers.lanes import Lane, Lanes
from producers.recording import PATIENCE, Recorder
from schemas.event import TurnRecorded
from schemas.identity import SessionIdentity
from schemas.message import OutgoingMessage
from schemas.turn import Turn

IDS = OpaqueIds(b"k" * 32)
WHOSE = {"user_id": "ana", "session_id": "talk"}
SAID = {"role": "user", "content": "I like tea."}
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Clock:
    """A clock that stands still."""

    def now(self) -> datetime:
        return NOW


class Sessions:
    """Sessions in memory; each call is counted."""

    def __init__(self) -> None:
        self.incarnation = 1
        self.opened = 0

    async def open(self, identity: SessionIdentity) -> SessionState:
        self.opened += 1
        return SessionState(
            identity=identity,
            session=IDS.session(identity, self.incarnation),
            incarnation=self.incarnation,
            gaps={},
        )

    async def by_key(self, session: str) -> SessionState | None:
        raise NotImplementedError

    async def note_gap(self, session: str, seqs: object, now_ms: int) -> None:
        raise NotImplementedError


class Turns:
    """Turns in memory behind the unique indexes; each insert may be told how to fail."""

    def __init__(self) -> None:
        self.stored: dict[tuple[str, int], Turn] = {}
        self.keyed: dict[tuple[str, str], tuple[Turn, str]] = {}
        self.closing: list[tuple[str, int]] = []
        self.asked_last = 0
        self.failures: list[Exception] = []
        self.is_stored_though_it_failed = False

    async def insert(
        self, turn: Turn, *, idempotency: IdempotencyKey | None, to_embed: bool = False
    ) -> None:
        del to_embed
        await asyncio.sleep(0)
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None and not self.is_stored_though_it_failed:
            raise failure
        if idempotency is not None and (turn.session, idempotency.key) in self.keyed:
            raise DuplicateKeyError("E11000", 11000, {"keyPattern": {"idempotency": 1}})
        if (turn.session, turn.seq) in self.stored:
            raise DuplicateKeyError("E11000", 11000, {"keyPattern": {"session": 1, "seq": 1}})
        self.stored[turn.session, turn.seq] = turn
        if idempotency is not None:
            self.keyed[turn.session, idempotency.key] = (turn, idempotency.body)
        if failure is not None:
            raise failure

    async def newest(self, session: str) -> NewestTurn | None:
        self.asked_last += 1
        seq = max((seq for place, seq in self.stored if place == session), default=None)
        if seq is None:
            return None
        return NewestTurn(seq=seq, effective_at=self.stored[session, seq].effective_at)

    async def by_idempotency_key(self, session: str, key: str) -> tuple[Turn, str] | None:
        return self.keyed.get((session, key))

    async def mark_closing(self, session: str, seq: int) -> None:
        self.closing.append((session, seq))

    async def read(self, session: str, first_seq: int, last_seq: int) -> list[Turn]:
        raise NotImplementedError

    async def open_turns(self, session: str) -> list[OpenTurn]:
        raise NotImplementedError

    async def clear_open(self, session: str, first_seq: int, last_seq: int) -> int:
        raise NotImplementedError

    async def open_sessions(self) -> list[OpenSession]:
        raise NotImplementedError


class Publisher:
    """Keeps what is published; may be told to fail or to hang."""

    def __init__(self, *, error: Exception | None = None, hangs: bool = False) -> None:
        self.published: list[OutgoingMessage] = []
        self.error = error
        self.hangs = hangs

    async def publish(self, message: OutgoingMessage) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        self.published.append(message)


class World:
    """A recorder with all it stands on."""

    def __init__(self, publisher: Publisher | None = None, **announcer: Any) -> None:
        self.sessions = Sessions()
        self.turns = Turns()
        self.publisher = publisher or Publisher()
        self.announcer = Announcer(self.publisher, **announcer)
        self.recorder = self.another()

    def another(self) -> Recorder:
        return Recorder(
            sessions=self.sessions,
            turns=self.turns,
            publisher=self.publisher,
            ids=IDS,
            clock=Clock(),
            announcer=self.announcer,
            idle_sessions=3,
        )

    def seqs(self) -> list[int]:
        return sorted(seq for _, seq in self.turns.stored)


async def test_turns_get_places_in_the_order_they_come() -> None:
    world = World()
    turns = await asyncio.gather(
        *(world.recorder.record(WHOSE, SAID | {"content": f"turn {n}"}) for n in range(1, 21))
    )

    assert [turn.seq for turn in turns] == list(range(1, 21))
    assert [turn.content for turn in turns] == [f"turn {n}" for n in range(1, 21)]


async def test_a_known_session_costs_one_command_a_turn() -> None:
    world = World()
    for _ in range(10):
        await world.recorder.record(WHOSE, SAID)

    assert (world.sessions.opened, world.turns.asked_last) == (1, 1)


async def test_two_processes_share_a_session_without_gap_or_loss() -> None:
    world = World()
    recorders = [world.recorder, world.another()]
    await asyncio.gather(*(recorders[n % 2].record(WHOSE, SAID) for n in range(40)))

    assert world.seqs() == list(range(1, 41))


async def test_bad_input_is_refused_before_anything_is_asked() -> None:
    world = World()
    with pytest.raises(InvalidInputError):
        await world.recorder.record(WHOSE, {"role": "user"})
    with pytest.raises(InvalidInputError):
        await world.recorder.record({"user_id": " ", "session_id": "x"}, SAID)

    assert world.sessions.opened == 0


async def test_after_an_unknown_outcome_the_place_is_read_again() -> None:
    world = World()
    await world.recorder.record(WHOSE, SAID)
    world.turns.failures = [AutoReconnect("answer lost")]
    world.turns.is_stored_though_it_failed = True
    with pytest.raises(RecordingUnavailableError):
        await world.recorder.record(WHOSE, SAID)
    turn = await world.recorder.record(WHOSE, SAID)

    assert turn.seq == 3
    assert world.seqs() == [1, 2, 3]


async def test_a_turn_that_was_not_stored_leaves_no_gap() -> None:
    world = World()
    await world.recorder.record(WHOSE, SAID)
    world.turns.failures = [AutoReconnect("never sent")]
    with pytest.raises(RecordingUnavailableError):
        await world.recorder.record(WHOSE, SAID)
    await world.recorder.record(WHOSE, SAID)

    assert world.seqs() == [1, 2]


async def test_a_cancelled_caller_leaves_no_gap() -> None:
    world = World()
    await world.recorder.record(WHOSE, SAID)
    cancelled = asyncio.create_task(world.recorder.record(WHOSE, SAID))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    await world.recorder.record(WHOSE, SAID)

    assert world.seqs() == list(range(1, len(world.seqs()) + 1))


async def test_the_same_key_and_body_are_one_turn() -> None:
    world = World()
    said = SAID | {"idempotency_key": "k1"}
    turns = await asyncio.gather(*(world.recorder.record(WHOSE, said) for _ in range(5)))
    recorded = await world.recorder.record_once(WHOSE, said)

    assert {turn.turn_id for turn in turns} == {recorded.turn.turn_id}
    assert not recorded.is_new
    assert world.seqs() == [1]


async def test_a_retry_after_a_lost_answer_finds_the_turn() -> None:
    world = World()
    world.turns.failures = [AutoReconnect("answer lost")]
    world.turns.is_stored_though_it_failed = True
    said = SAID | {"idempotency_key": "k1"}
    with pytest.raises(RecordingUnavailableError):
        await world.recorder.record(WHOSE, said)
    recorded = await world.recorder.record_once(WHOSE, said)

    assert (recorded.turn.seq, recorded.is_new) == (1, False)


async def test_the_same_key_with_another_body_is_a_conflict() -> None:
    world = World()
    await world.recorder.record(WHOSE, SAID | {"idempotency_key": "k1"})
    with pytest.raises(ConflictError):
        await world.recorder.record(WHOSE, SAID | {"idempotency_key": "k1", "content": "other"})

    assert world.seqs() == [1]


async def test_a_key_belongs_to_its_session() -> None:
    world = World()
    said = SAID | {"idempotency_key": "k1"}
    await world.recorder.record(WHOSE, said)
    other = await world.recorder.record_once({"user_id": "ben", "session_id": "talk"}, said)

    assert other.is_new


async def test_a_new_incarnation_is_seen_when_the_old_one_keeps_its_places() -> None:
    world = World()
    for _ in range(3):
        await world.recorder.record(WHOSE, SAID)
    stale = world.another()
    await stale.record(WHOSE, SAID)
    await world.recorder.record(WHOSE, SAID)
    world.sessions.incarnation = 2
    turn = await stale.record(WHOSE, SAID)

    assert (turn.incarnation, turn.seq) == (2, 1)


async def test_closing_marks_the_newest_turn_and_is_told() -> None:
    world = World()
    await world.recorder.record(WHOSE, SAID)
    last = await world.recorder.record(WHOSE, SAID)
    await world.recorder.close(WHOSE)
    await world.recorder.drain()

    assert world.turns.closing == [(last.session, 2)]
    assert b"afterturn.session.closed" in (world.publisher.published[-1].value or b"")


async def test_closing_what_nobody_spoke_in_changes_nothing() -> None:
    world = World()
    await world.recorder.close(WHOSE)
    await world.recorder.drain()

    assert world.turns.closing == []
    assert world.publisher.published == []


async def test_a_turn_is_announced_after_the_answer_without_a_word_of_it() -> None:
    world = World()
    turn = await world.recorder.record(WHOSE, SAID | {"content": "my canary sings"})

    assert world.publisher.published == []

    await world.recorder.drain()
    (message,) = world.publisher.published
    event = TurnRecorded.model_validate_json(message.value or b"")

    assert event.data.session == turn.session
    assert event.data.seq == 1
    assert b"canary" not in message.model_dump_json().encode()
    assert b"ana" not in (message.value or b"").replace(b"afterturn", b"")


@pytest.mark.parametrize(
    "publisher",
    [
        Publisher(error=BrokerUnavailableError("gone")),
        Publisher(error=RuntimeError("unforeseen")),
        Publisher(hangs=True),
    ],
    ids=["gone", "broken", "hanging"],
)
async def test_kafka_costs_a_caller_nothing(publisher: Publisher) -> None:
    patience = timedelta(minutes=20)
    world = World(publisher, timeout=patience, capacity=5)
    await world.recorder.record(WHOSE, SAID)
    began = time.monotonic()
    for _ in range(50):
        await world.recorder.record(WHOSE, SAID)

    # One that had waited for Kafka would have waited for all of its patience.
    assert time.monotonic() - began < patience.total_seconds() / 50
    assert world.seqs() == list(range(1, 52))
    await world.recorder.stop(timedelta(seconds=1))


async def test_what_does_not_fit_is_dropped_and_counted() -> None:
    world = World(Publisher(hangs=True), capacity=5)
    for _ in range(12):
        await world.recorder.record(WHOSE, SAID)

    assert world.announcer.dropped == 7
    began = time.monotonic()
    await world.recorder.stop(timedelta(milliseconds=50))

    assert time.monotonic() - began < 1.0


async def test_draining_waits_for_what_is_on_its_way_and_no_longer_than_told() -> None:
    world = World()
    await world.recorder.record(WHOSE, SAID)

    assert await world.recorder.drain()
    assert len(world.publisher.published) == 1

    hanging = World(Publisher(hangs=True))
    await hanging.recorder.record(WHOSE, SAID)

    assert not await hanging.recorder.drain(timedelta(milliseconds=20))
    await hanging.recorder.stop(timedelta(milliseconds=20))


async def test_idle_sessions_are_remembered_within_a_bound() -> None:
    lanes = Lanes(idle=3, patience=PATIENCE)
    for n in range(10):
        async with lanes.enter(SessionIdentity(user_id="u", session_id=str(n))):
            assert len(lanes) <= 4

    assert len(lanes) == 3


async def test_a_lane_in_use_is_never_forgotten() -> None:
    lanes = Lanes(idle=1, patience=PATIENCE)
    whose = SessionIdentity(user_id="u", session_id="held")
    inside: list[Lane] = []
    leave = asyncio.Event()

    async def hold() -> None:
        async with lanes.enter(whose) as lane:
            inside.append(lane)
            await leave.wait()

    async with lanes.enter(whose) as first:
        second = asyncio.create_task(hold())
        await asyncio.sleep(0)
        assert inside == []
    await asyncio.sleep(0)
    for n in range(5):
        async with lanes.enter(SessionIdentity(user_id="u", session_id=str(n))):
            pass
    third = asyncio.create_task(hold())
    await asyncio.sleep(0)

    assert inside == [first]

    leave.set()
    await asyncio.gather(second, third)

    assert inside == [first, first]


async def test_who_waits_behind_a_database_that_hangs_waits_within_a_bound() -> None:
    """Else each in a session's row would wait for all before it, one timeout after the other."""
    lanes = Lanes(idle=1, patience=timedelta(milliseconds=1))
    whose = SessionIdentity(user_id="u", session_id="held")
    async with lanes.enter(whose):
        with pytest.raises(RecordingUnavailableError):
            async with lanes.enter(whose):
                raise AssertionError("the lane has two holders")

    async with lanes.enter(whose) as lane:
        assert lane.users == 1
