"""Recording while MongoDB's connections break, and while Kafka swallows everything."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from pydantic import SecretStr

from pipeline.clock import SystemClock
from pipeline.errors import RecordingUnavailableError
from pipeline.ids import OpaqueIds
from pipeline.ports.publisher import Publisher
from pipeline.settings import KafkaSettings, MongoSettings
from pipeline.stores.mongo import Database, connect, database
from pipeline.stores.sessions import MongoSessions
from pipeline.stores.turns import MongoTurns
from producers.publishing import KafkaPublisher
from producers.recording import Recorder
from schemas.identity import SessionIdentity
from schemas.message import OutgoingMessage
from schemas.turn import Turn
from tests.faults.proxy import Proxy, proxy_to

IDS = OpaqueIds(b"k" * 32)
WHOSE = SessionIdentity(user_id="ana", session_id="talk")


class Nowhere:
    """Kafka, of which nothing is needed here."""

    async def publish(self, message: OutgoingMessage) -> None:
        del message


def recorder(db: Database, publisher: Publisher) -> Recorder:
    return Recorder(
        sessions=MongoSessions(db, IDS),
        turns=MongoTurns(db),
        publisher=publisher,
        ids=IDS,
        clock=SystemClock(),
    )


@pytest.fixture
async def mongo_proxy(mongo_uri: str) -> AsyncIterator[Proxy]:
    """A proxy in front of the database."""
    async with proxy_to(urlsplit(mongo_uri).port or 27017) as proxy:
        yield proxy


async def test_connections_that_break_leave_no_gap_and_no_double(
    db: Database, mongo_proxy: Proxy
) -> None:
    settings = MongoSettings(
        # The driver's own retries would hide nearly every unknown outcome from the recorder.
        uri=SecretStr(
            f"mongodb://127.0.0.1:{mongo_proxy.port}/?directConnection=true&retryWrites=false"
        ),
        database=db.name,
        timeout=timedelta(seconds=2),
    )
    client = connect(settings)
    shaky = recorder(database(client, settings), Nowhere())
    failed = 0

    async def record(n: int) -> Turn:
        nonlocal failed
        said = {"role": "user", "content": f"turn {n}", "idempotency_key": f"k{n}"}
        while True:
            try:
                return await shaky.record(WHOSE, said)
            except RecordingUnavailableError:
                failed += 1

    async def write(writer: int) -> list[Turn]:
        return [await record(n) for n in range(writer, 120, 6)]

    async def shake() -> None:
        while True:
            await asyncio.sleep(0.03)
            mongo_proxy.cut()

    shaking = asyncio.create_task(shake())
    answered = await asyncio.gather(*(write(writer) for writer in range(6)))
    shaking.cancel()
    await client.close()
    stored = await MongoTurns(db).read(IDS.session(WHOSE, 1), 1, 1000)

    assert failed > 0
    assert [turn.seq for turn in stored] == list(range(1, 121))
    assert {turn.content for turn in stored} == {f"turn {n}" for n in range(120)}
    assert sorted((turn for own in answered for turn in own), key=lambda turn: turn.seq) == stored


async def test_answers_that_get_lost_leave_no_turn_twice(db: Database, mongo_proxy: Proxy) -> None:
    """The driver tries again, and finds its own turn in its place."""
    settings = MongoSettings(
        uri=SecretStr(f"mongodb://127.0.0.1:{mongo_proxy.port}/?directConnection=true"),
        database=db.name,
    )
    client = connect(settings)
    shaky = recorder(database(client, settings), Nowhere())
    await shaky.record(WHOSE, {"role": "user", "content": "turn 0"})
    mongo_proxy.lose_answers(every=5)
    for n in range(1, 60):
        await shaky.record(WHOSE, {"role": "user", "content": f"turn {n}"})
    await client.close()
    stored = await MongoTurns(db).read(IDS.session(WHOSE, 1), 1, 1000)

    assert mongo_proxy.lost > 0
    assert [turn.content for turn in stored] == [f"turn {n}" for n in range(60)]


async def test_a_database_that_hangs_is_said_within_its_time(
    db: Database, mongo_proxy: Proxy
) -> None:
    settings = MongoSettings(
        uri=SecretStr(f"mongodb://127.0.0.1:{mongo_proxy.port}/?directConnection=true"),
        database=db.name,
        timeout=timedelta(milliseconds=500),
    )
    client = connect(settings)
    hanging = recorder(database(client, settings), Nowhere())
    await hanging.record(WHOSE, {"role": "user", "content": "1"})
    mongo_proxy.stall()
    began = time.monotonic()
    with pytest.raises(RecordingUnavailableError):
        await hanging.record(WHOSE, {"role": "user", "content": "2"})

    assert time.monotonic() - began < 3
    mongo_proxy.resume()
    await hanging.record(WHOSE, {"role": "user", "content": "3"})
    await client.close()
    stored = await MongoTurns(db).read(IDS.session(WHOSE, 1), 1, 10)

    assert [turn.seq for turn in stored] == list(range(1, len(stored) + 1))
    assert stored[-1].content == "3"


@pytest.mark.parametrize("fault", ["absent", "black hole"])
async def test_kafka_gone_or_swallowing_everything_slows_no_answer(
    db: Database, fault: str
) -> None:
    async with proxy_to(1) as proxy:
        if fault == "black hole":
            proxy.stall()
        publisher = KafkaPublisher(
            KafkaSettings(
                bootstrap_servers=f"127.0.0.1:{proxy.port}", publish_timeout=timedelta(seconds=2)
            )
        )
        said = {"role": "user", "content": "x"}
        without, with_fault = recorder(db, Nowhere()), recorder(db, publisher)
        quick = await seconds(without, said)
        slow = await seconds(with_fault, said)
        began = time.monotonic()
        await with_fault.stop(timedelta(seconds=1))
        await publisher.stop()

        assert time.monotonic() - began < 15
        assert slow < 2 * quick + 0.5
        assert len(await MongoTurns(db).open_turns(IDS.session(WHOSE, 1))) == 80


async def seconds(recording: Recorder, said: dict[str, str]) -> float:
    """Record forty turns; return how long that took."""
    began = time.monotonic()
    for _ in range(40):
        await recording.record(WHOSE, said)
    return time.monotonic() - began
