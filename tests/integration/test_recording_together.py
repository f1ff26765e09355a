"""Many writers, two processes' worth of recorders, one session, on a real database."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from pipeline.clock import SystemClock
from pipeline.cutting import Cutter
from pipeline.errors import ConflictError
from pipeline.ids import OpaqueIds
from pipeline.settings import SnapshotSettings
from pipeline.stores.mongo import Database, MongoServerTime
from pipeline.stores.sessions import MongoSessions
from pipeline.stores.snapshots import MongoSnapshots
from pipeline.stores.turns import MongoTurns
from producers.recording import Recorder
from schemas.identity import SessionIdentity
from schemas.message import OutgoingMessage

IDS = OpaqueIds(b"k" * 32)
WHOSE = {"user_id": "ana", "session_id": "talk"}
WRITERS = 20


class Kept:
    """Keeps what is published."""

    def __init__(self) -> None:
        self.messages: list[OutgoingMessage] = []

    async def publish(self, message: OutgoingMessage) -> None:
        self.messages.append(message)


def recorder(db: Database) -> Recorder:
    return Recorder(
        sessions=MongoSessions(db, IDS),
        turns=MongoTurns(db),
        publisher=Kept(),
        ids=IDS,
        clock=SystemClock(),
    )


@pytest.fixture
async def recorders(db: Database) -> AsyncIterator[tuple[Recorder, Recorder]]:
    """Two recorders that know nothing of each other, as in two processes."""
    both = (recorder(db), recorder(db))
    yield both
    for each in both:
        await each.stop()


async def test_twenty_writers_in_two_processes_leave_no_gap(
    db: Database, recorders: tuple[Recorder, Recorder]
) -> None:
    async def write(writer: int) -> None:
        for n in range(10):
            said = {"role": "user", "content": f"writer {writer} says {n}"}
            await recorders[writer % 2].record(WHOSE, said)

    await asyncio.gather(*(write(writer) for writer in range(WRITERS)))
    turns = await MongoTurns(db).read(IDS.session(_identity(), 1), 1, 10_000)

    assert [turn.seq for turn in turns] == list(range(1, WRITERS * 10 + 1))
    for writer in range(WRITERS):
        own = [turn.content for turn in turns if turn.content.startswith(f"writer {writer} ")]
        assert own == [f"writer {writer} says {n}" for n in range(10)]


async def test_one_key_in_two_processes_at_once_is_one_turn(
    db: Database, recorders: tuple[Recorder, Recorder]
) -> None:
    said = {"role": "user", "content": "once", "idempotency_key": "k"}
    turns = await asyncio.gather(*(recorders[n % 2].record(WHOSE, said) for n in range(10)))

    assert len({turn.turn_id for turn in turns}) == 1
    assert await db["turns"].count_documents({}) == 1
    with pytest.raises(ConflictError):
        await recorders[0].record(WHOSE, said | {"content": "twice"})


async def test_a_restarted_process_goes_on_after_the_last_turn(
    db: Database, recorders: tuple[Recorder, Recorder]
) -> None:
    said = {"role": "user", "content": "x"}
    before = [await recorders[0].record(WHOSE, said) for _ in range(3)]
    after = [await recorder(db).record(WHOSE, said) for _ in range(2)]

    assert [turn.seq for turn in [*before, *after]] == [1, 2, 3, 4, 5]
    assert await MongoTurns(db).read(before[0].session, 1, 3) == before


async def test_what_is_recorded_while_others_cut_is_tiled_and_told(
    db: Database, recorders: tuple[Recorder, Recorder]
) -> None:
    kept = Kept()
    session = IDS.session(_identity(), 1)
    cutters = [
        Cutter(
            sessions=MongoSessions(db, IDS),
            turns=MongoTurns(db),
            snapshots=MongoSnapshots(db),
            publisher=kept,
            server_time=MongoServerTime(db),
            ids=IDS,
            settings=SnapshotSettings(max_messages=most, stale=timedelta(hours=1)),
            wake_after=timedelta(minutes=2),
        )
        for most in (3, 7)
    ]
    done = asyncio.Event()

    async def write(which: int) -> None:
        for n in range(25):
            await recorders[which].record(WHOSE, {"role": "user", "content": f"{which} {n}"})

    async def cut(cutter: Cutter) -> None:
        while not done.is_set():
            await cutter.cut(session)

    cutting = [asyncio.create_task(cut(cutter)) for cutter in cutters]
    await asyncio.gather(write(0), write(1))
    await recorders[0].close(WHOSE)
    done.set()
    await asyncio.gather(*cutting)
    await cutters[0].cut(session)
    snapshots = await MongoSnapshots(db).covering(session, 1)
    tiles = [(snapshot.first_seq, snapshot.last_seq) for snapshot in snapshots]

    assert [first for first, _ in tiles] == [1, *(last + 1 for _, last in tiles[:-1])]
    assert tiles[-1][1] == 50
    assert await MongoTurns(db).open_sessions() == []
    assert {message.key for message in kept.messages} == {session.encode()}
    assert len({message.value for message in kept.messages}) == len(tiles)


def _identity() -> SessionIdentity:
    return SessionIdentity.model_validate(WHOSE)
