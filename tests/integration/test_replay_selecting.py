"""What a replay can be asked for: by outcome, version, letters, and messages of a topic."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from consumers.operating import replay_desk
from consumers.topic_reading import KafkaTopics
from consumers.wiring import Installation
from pipeline.errors import BrokerUnavailableError, JobError
from pipeline.messages import EVENT_ID_HEADER
from pipeline.replaying.ports import Read
from pipeline.replaying.selecting import Selector, check
from pipeline.settings import KafkaSettings
from producers.topics import apply_topics
from schemas.event import event_id
from schemas.extraction import Outcome
from schemas.failure import LetterQuery, LetterState
from schemas.job import Lost, Messages, Replay, ReplayJob, Selection
from schemas.topics import RECORD_CHANGED, SNAPSHOT_REPLAY
from tests.builders import SAID_AT
from tests.integration.test_extracting import PATIENCE_SECONDS, Broker, broker, home, parts
from tests.integration.test_redriving import LETTERS, dead, delivered
from tests.integration.test_replaying import Newer, replay_runner

__all__ = ["broker", "parts"]

LATE = datetime(2100, 1, 1, tzinfo=UTC)
PARTITION = 5
TOPIC = SNAPSHOT_REPLAY.name
DEAD = LetterQuery(state=LetterState.DEAD)


@dataclass
class Told:
    """Port `Topics`: has read what it is told."""

    read_ids: Sequence[str] = ()
    lost: Sequence[Lost] = ()
    asked: list[Messages] = field(default_factory=list[Messages])

    async def read(self, messages: Messages) -> Read:
        self.asked.append(messages)
        return Read(snapshot_ids=frozenset(self.read_ids), lost=tuple(self.lost))


def selector(parts: Installation, topics: Told) -> Selector:
    return Selector(
        snapshots=parts.snapshots, runs=parts.extractions, letters=parts.letters, topics=topics
    )


async def selected(
    parts: Installation, selection: Selection, topics: Told | None = None
) -> set[str]:
    finds = selector(parts, topics or Told())
    listing = await finds.found(selection)
    return {one.snapshot_id async for one in finds.each(selection, listing and listing.after)}


@pytest.fixture
async def ids(parts: Installation, broker: Broker) -> list[str]:
    """Return the ids of snapshots whose first is known and whose others are dead."""
    letters = await dead(parts, broker)
    named = sorted(str(one.snapshot_id) for one in letters)
    await parts.database["extractions"].update_one(
        {"_id": f"{named[0]}:0"}, {"$set": {"outcome": "records", "version": "v0"}}
    )
    await parts.database["letters"].update_one(
        {"snapshot_id": named[0]}, {"$set": {"state": "resolved"}}
    )
    await parts.database["snapshots"].update_many({}, {"$set": {"settled": True}})
    return named


async def test_by_what_counts_of_them_and_by_their_letters(
    parts: Installation, ids: list[str]
) -> None:
    dead_ids = set(ids[1:])

    assert len(ids) == LETTERS
    assert await selected(parts, Selection(outcomes=(Outcome.DEAD,))) == dead_ids
    both = Selection(outcomes=(Outcome.DEAD, Outcome.RECORDS))
    assert await selected(parts, both) == set(ids)
    assert await selected(parts, Selection(version="v0")) == {ids[0]}
    known = Selection(version="v0", outcomes=(Outcome.DEAD,))
    assert await selected(parts, known) == set()
    assert await selected(parts, Selection(letters=DEAD)) == dead_ids
    elsewhere = Selection(letters=DEAD, project_id="other")
    assert await selected(parts, elsewhere) == set()


async def test_by_messages_and_what_retention_took_of_them_is_taken_from_mongodb(
    parts: Installation, ids: list[str]
) -> None:
    asked = Selection(messages=Messages(topic=TOPIC))
    lost = Lost(partition=0, offsets=7, until=SAID_AT)
    before = Lost(partition=1, offsets=None, until=None)

    assert await selected(parts, asked, Told([ids[1], "gone"])) == {ids[1]}
    # All of them were cut at one time: before it there is nothing, before the end there is all.
    assert await selected(parts, asked, Told([ids[1]], [lost])) == {ids[1]}
    assert await selected(parts, asked, Told([ids[1]], [lost, before])) == set(ids)
    narrow = Selection(messages=Messages(topic=TOPIC, until=SAID_AT))
    assert await selected(parts, narrow, Told([ids[1]], [before])) == {ids[1]}
    meeting = asked.model_copy(update={"letters": DEAD})
    assert await selected(parts, meeting, Told([ids[0], ids[2]])) == {ids[2]}


async def test_a_replay_of_letters_goes_on_with_its_list_though_the_letters_change(
    parts: Installation, broker: Broker, ids: list[str]
) -> None:
    desk = replay_desk(parts, by="an operator")
    job = await desk.start(Replay(selection=Selection(letters=DEAD)))
    await parts.database["letters"].update_many({}, {"$set": {"state": "resolved"}})
    model = Newer({"semantic": [home(1)]})
    running = asyncio.create_task(replay_runner(parts, model).run(job.job_id))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not running.done():
            await delivered(parts, broker, model)
            await asyncio.sleep(0.01)
    ended = await running

    assert isinstance(ended, ReplayJob)
    assert (ended.begun, ended.skipped) == (len(ids) - 1, 0)
    assert {one.snapshot_id for one in await parts.extractions.of_job(job.job_id)} == set(ids[1:])


@pytest.mark.parametrize(
    ("selection", "advice"),
    [
        (Selection(since=LATE, until=SAID_AT), "swap"),
        (Selection(outcomes=(Outcome.GONE,)), "no turns"),
        (Selection(messages=Messages(topic=RECORD_CHANGED.name)), TOPIC),
        (Selection(messages=Messages(topic=TOPIC, first_offset=3)), "partition"),
        (
            Selection(messages=Messages(topic=TOPIC, partition=0, first_offset=3, end_offset=3)),
            "before the end",
        ),
        (Selection(messages=Messages(topic=TOPIC, since=LATE, until=LATE)), "swap"),
        (
            Selection(messages=Messages(topic=TOPIC, partition=0, first_offset=1, since=LATE)),
            "not both",
        ),
        (
            Selection(messages=Messages(topic=TOPIC, partition=0, end_offset=1, until=LATE)),
            "not both",
        ),
    ],
)
def test_what_nothing_can_be_is_refused_with_what_to_ask_instead(
    selection: Selection, advice: str
) -> None:
    with pytest.raises(JobError, match=advice):
        check(selection)


async def test_what_is_nothing_now_is_refused(parts: Installation, ids: list[str]) -> None:
    none = Selection(letters=LetterQuery(reason="no such reason"))
    with pytest.raises(JobError, match="letters list"):
        await selected(parts, none)
    with pytest.raises(JobError, match="nothing is selected"):
        await selected(parts, Selection(messages=Messages(topic=TOPIC)), Told())
    await parts.database["letters"].update_many({}, {"$set": {"snapshot_id": None}})
    with pytest.raises(JobError, match="letters redrive"):
        await selected(parts, Selection(letters=DEAD))
    assert ids


class Ready:
    """A partition of a topic, and messages about snapshots in it."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.topics = KafkaTopics(KafkaSettings(bootstrap_servers=servers))
        self.base = 0

    async def sent(self, count: int) -> None:
        """Send messages that were appended a second after each other, and one about nothing."""
        producer: Any = AIOKafkaProducer(bootstrap_servers=self.servers)
        consumer: Any = AIOKafkaConsumer(bootstrap_servers=self.servers)
        await producer.start()
        await consumer.start()
        place = TopicPartition(TOPIC, PARTITION)
        self.base = (await consumer.end_offsets([place]))[place]
        for number in range(count):
            name = event_id("snapshot.ready", f"snp_{number}", 1).encode()
            await producer.send_and_wait(
                TOPIC,
                b"{}",
                partition=PARTITION,
                timestamp_ms=self.at_ms(number),
                headers=[(EVENT_ID_HEADER, name)],
            )
        await producer.send_and_wait(
            TOPIC, b"x", partition=PARTITION, timestamp_ms=self.at_ms(count)
        )
        await consumer.stop()
        await producer.stop()

    async def retained_from(self, number: int) -> None:
        admin: Any = AIOKafkaAdminClient(bootstrap_servers=self.servers)
        await admin.start()
        place = TopicPartition(TOPIC, PARTITION)
        await admin.delete_records({place: RecordsToDelete(before_offset=self.base + number)})
        await admin.close()

    def at_ms(self, number: int) -> int:
        return int(LATE.timestamp() * 1000) + number * 1000

    def at(self, number: int) -> datetime:
        return datetime.fromtimestamp(self.at_ms(number) / 1000, UTC)

    async def read(self, **asked: Any) -> Read:
        return await self.topics.read(Messages(topic=TOPIC, partition=PARTITION, **asked))

    async def between(self, first: int, end: int) -> Read:
        return await self.read(first_offset=self.base + first, end_offset=self.base + end)


@pytest.fixture
async def ready(bootstrap_servers: str) -> Ready:
    await apply_topics(KafkaSettings(bootstrap_servers=bootstrap_servers))
    made = Ready(bootstrap_servers)
    await made.sent(5)
    return made


def named(*numbers: int) -> frozenset[str]:
    return frozenset(f"snp_{number}" for number in numbers)


async def test_a_topic_is_read_by_offsets_and_by_times_and_what_is_gone_is_said(
    ready: Ready,
) -> None:
    some = await ready.between(1, 3)
    rest = await ready.read(first_offset=ready.base + 3)
    times = await ready.read(since=ready.at(1), until=ready.at(4))
    await ready.retained_from(2)
    left = await ready.between(0, 4)
    gone = await ready.between(0, 1)
    later = await ready.read(since=ready.at(2))
    earlier = await ready.read(since=ready.at(1))

    assert (some.snapshot_ids, some.lost) == (named(1, 2), ())
    assert rest.snapshot_ids == named(3, 4)
    assert (times.snapshot_ids, times.lost) == (named(1, 2, 3), ())
    assert left.snapshot_ids == named(2, 3)
    assert left.lost == (Lost(partition=PARTITION, offsets=2, until=ready.at(2)),)
    assert (gone.snapshot_ids, gone.lost[0].offsets) == (named(), 1)
    assert (later.snapshot_ids, later.lost) == (named(2, 3, 4), ())
    assert earlier.snapshot_ids == named(2, 3, 4)
    assert earlier.lost == (Lost(partition=PARTITION, offsets=None, until=ready.at(2)),)


async def test_what_a_topic_can_not_have_is_refused(ready: Ready) -> None:
    with pytest.raises(JobError, match="ends at offset"):
        await ready.read(first_offset=ready.base + 1000)
    with pytest.raises(JobError, match="its last is"):
        await ready.topics.read(Messages(topic=TOPIC, partition=99))
    with pytest.raises(JobError, match="topics apply"):
        await ready.topics.read(Messages(topic="no.such.topic"))
    nowhere = KafkaTopics(KafkaSettings(bootstrap_servers="127.0.0.1:1"))
    with pytest.raises(BrokerUnavailableError, match="did not answer"):
        await nowhere.read(Messages(topic=TOPIC))
