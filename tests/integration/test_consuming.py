"""Whatever lies on a topic reaches the step, and no offset passes a message without its fate."""

import asyncio
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from aiokafka import TopicPartition
from structlog.testing import capture_logs

from compose.embedded import embedded_kafka
from consumers.apps import ConsumerApp, Subscription
from consumers.lag import group_lag
from consumers.pool import key_of
from pipeline.errors import ConfigurationError
from schemas.message import Headers, IncomingMessage
from schemas.topics import Topic
from tests.integration.consuming import (
    Told,
    abandon,
    consuming,
    declared,
    kafka_settings,
    new_group,
    until_committed,
)
from tests.integration.kafka import append, committed, end_offset, new_topic

POISON: dict[str, tuple[bytes | None, Headers]] = {
    "unreadable header": (b"v", (("x", b"\xff\xfe"),)),
    "null header": (b"v", (("x", None),)),
    "thousand headers": (b"v", tuple((f"h{index}", b"x") for index in range(1000))),
    "tombstone": (None, ()),
    "no text": (b"\xff\x00", ()),
    "empty": (b"", ()),
    "unknown version": (b'{"type":"afterturn.turn.recorded","dataschema":"v99"}', ()),
    "reply to": (b"v", (("reply_to", b"evil"), ("correlation_id", b"\xff"))),
}


async def test_whatever_comes_reaches_the_step_with_its_neighbours(bootstrap_servers: str) -> None:
    """Byte for byte, in order, all committed, and nothing is published to a `reply_to`."""
    topic, group = await new_topic(bootstrap_servers), new_group()
    evil = await new_topic(bootstrap_servers, name="evil")
    sent: list[tuple[bytes | None, Headers]] = [(b"first", ())]
    for value, headers in POISON.values():
        changed = tuple((k, evil.encode() if v == b"evil" else v) for k, v in headers)
        sent += [(value, changed), (b"neighbour", ())]
    for value, headers in sent:
        await append(bootstrap_servers, topic, [value], headers=headers)
    told = Told()
    async with consuming(kafka_settings(bootstrap_servers), told, declared(topic), group):
        await told.until_done(len(sent))
        await until_committed(bootstrap_servers, group, topic, len(sent))

    assert [(each.value, each.headers) for each in told.messages] == sent
    assert {(each.key, each.at.group, each.at.topic) for each in told.messages} == {
        (b"key", group, topic)
    }
    assert [each.at.offset for each in told.messages] == list(range(len(sent)))
    assert await end_offset(bootstrap_servers, evil) == 0


async def test_a_step_that_raises_holds_its_message_and_no_other(bootstrap_servers: str) -> None:
    """It comes again until its fate is written; the other partition flows; no hot loop."""
    topic, group = await new_topic(bootstrap_servers, partitions=2), new_group()
    failures = 2

    def act(message: IncomingMessage) -> None:
        nonlocal failures
        if message.value == b"held" and failures:
            failures -= 1
            raise OSError("the words of a person")

    told = Told(act)
    settings = kafka_settings(bootstrap_servers)
    with capture_logs() as logs:
        async with consuming(settings, told, declared(topic, partitions=2), group) as app:
            await append(bootstrap_servers, topic, [b"held", b"after"], partition=0)
            await told.until(lambda told: b"held" in told.values)
            await append(bootstrap_servers, topic, [b"other"] * 5, partition=1)
            await told.until_done(5)
            held = app.pools["main"].held
            at = (
                await committed(bootstrap_servers, group, topic, 0),
                {each.value for each in told.done} - {b"after"},
            )
            await told.until(lambda told: told.values.count(b"held") == 3)
            await until_committed(bootstrap_servers, group, topic, 2)

    assert held == 1
    assert at[0] in (None, 0)
    assert at[1] == {b"other"}
    assert told.values.count(b"held") == 3
    assert told.values.count(b"after") == 1
    assert [each["holds"] for each in logs if each["event"] == "message_held"] == [1, 2]
    assert "words of a person" not in str(logs)


async def test_completion_out_of_order_commits_the_watermark(bootstrap_servers: str) -> None:
    """What is done behind what is not waits; a stop commits as far as it may."""
    topic, group = await new_topic(bootstrap_servers), new_group()
    told = Told()
    gate = told.block(b"slow")
    await append(bootstrap_servers, topic, [b"0", b"slow", b"2", b"3"])
    async with consuming(kafka_settings(bootstrap_servers), told, declared(topic), group):
        await told.until_done(3)
        await until_committed(bootstrap_servers, group, topic, 1)
        await asyncio.sleep(0.5)
        before = await committed(bootstrap_servers, group, topic)
        gate.set()
        await until_committed(bootstrap_servers, group, topic, 4)

    assert before == 1


async def test_a_killed_process_leaves_its_work_to_the_next(bootstrap_servers: str) -> None:
    """An unfinished offset is not committed, and comes again; so does what was done after it."""
    topic, group = await new_topic(bootstrap_servers), new_group()
    settings = kafka_settings(bootstrap_servers)
    first, second = Told(), Told()
    first.block(b"1")
    await append(bootstrap_servers, topic, [b"0", b"1", b"2"])
    async with consuming(settings, first, declared(topic), group) as app:
        await first.until_done(2)
        await until_committed(bootstrap_servers, group, topic, 1)
        await abandon(app)
    at_death = await committed(bootstrap_servers, group, topic)
    async with consuming(settings, second, declared(topic), group):
        await second.until_done(2)
        await until_committed(bootstrap_servers, group, topic, 3)

    assert at_death == 1
    assert second.values == [b"1", b"2"]


async def test_a_full_pool_pauses_and_goes_on(bootstrap_servers: str) -> None:
    """Never more steps at once than allowed; all come, once, and all are committed."""
    topic, group = await new_topic(bootstrap_servers, partitions=3), new_group()
    running = most = 0

    async def step(message: IncomingMessage) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        await told(message)

    told = Told()
    for partition in range(3):
        await append(bootstrap_servers, topic, [b"%d" % i for i in range(40)], partition=partition)
    settings, topics = kafka_settings(bootstrap_servers), declared(topic, partitions=3)
    async with consuming(settings, step, topics, group, concurrency=5):
        await told.until_done(120)
        for partition in range(3):
            await until_committed(bootstrap_servers, group, topic, 40, partition)

    assert most == 5
    assert len({(each.at.partition, each.at.offset) for each in told.messages}) == 120
    assert len(told.messages) == 120


async def test_a_step_longer_than_the_poll_interval_is_not_repeated(bootstrap_servers: str) -> None:
    """The loop that reads goes on reading: nobody is thrown out of the group."""
    topic, group = await new_topic(bootstrap_servers), new_group()
    settings = kafka_settings(bootstrap_servers).model_copy(
        update={"max_poll_interval": timedelta(seconds=1)}
    )
    told = Told()
    gate = told.block(b"long")
    await append(bootstrap_servers, topic, [b"long", b"long", b"next"])
    async with consuming(settings, told, declared(topic), group, concurrency=1):
        await told.until(lambda told: b"long" in told.values)
        await asyncio.sleep(3)
        gate.set()
        await told.until_done(3)
        await until_committed(bootstrap_servers, group, topic, 3)

    assert told.values == [b"long", b"long", b"next"]


async def test_stopping_lets_work_in_flight_finish(bootstrap_servers: str) -> None:
    """What runs is finished and committed; what waits is left to the next, uncommitted."""
    topic, group = await new_topic(bootstrap_servers), new_group()
    told = Told()
    gate = told.block(b"running")
    await append(bootstrap_servers, topic, [b"running", b"waiting"])
    settings = kafka_settings(bootstrap_servers)
    async with consuming(settings, told, declared(topic), group, concurrency=1) as app:
        await told.until(lambda told: b"running" in told.values)
        stopping = asyncio.create_task(app.stop())
        await asyncio.sleep(0.2)
        gate.set()
        await stopping

    assert told.values == [b"running"]
    assert await committed(bootstrap_servers, group, topic) == 1


async def test_stopping_cancels_what_does_not_finish(bootstrap_servers: str) -> None:
    """Beyond the drain it is cancelled, completes nothing and comes again."""
    topic, group = await new_topic(bootstrap_servers), new_group()
    settings = kafka_settings(bootstrap_servers).model_copy(
        update={"drain_timeout": timedelta(milliseconds=300)}
    )
    cancelled = asyncio.Event()
    begun = asyncio.Event()

    async def step(message: IncomingMessage) -> None:
        del message
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    await append(bootstrap_servers, topic, [b"endless"])
    async with consuming(settings, step, declared(topic), group):
        await begun.wait()
        started_at = time.monotonic()
    elapsed = time.monotonic() - started_at

    assert cancelled.is_set()
    assert elapsed < 4
    assert await committed(bootstrap_servers, group, topic) == 0


async def test_messages_of_one_key_run_one_by_one(bootstrap_servers: str) -> None:
    """Of different keys they run together."""
    topic, group = await new_topic(bootstrap_servers), new_group()
    order: list[tuple[str, bytes | None]] = []

    async def step(message: IncomingMessage) -> None:
        order.append(("begin", message.key))
        await asyncio.sleep(0.1)
        order.append(("end", message.key))
        await told(message)

    told = Told()
    for key in (b"a", b"a", b"b"):
        await append(bootstrap_servers, topic, [b"v"], key=key)
    settings = kafka_settings(bootstrap_servers)
    async with consuming(settings, step, declared(topic), group, serial_by=key_of):
        await told.until_done(3)

    assert [what for what, key in order if key == b"a"] == ["begin", "end", "begin", "end"]
    assert order.index(("begin", b"b")) < order.index(("end", b"a"))


async def test_nothing_else_commits_and_each_subscriber_is_itself(bootstrap_servers: str) -> None:
    """Auto-commit is off, there is no producer, and client and instance ids are distinct."""
    topic, other = await new_topic(bootstrap_servers), await new_topic(bootstrap_servers)
    groups = new_group(), new_group()
    told = Told()
    app = ConsumerApp(
        kafka_settings(bootstrap_servers, instance_id="pod-1"),
        [
            Subscription(name=name, group=group, topics=declared(each), step=told, concurrency=1)
            for name, group, each in zip(("one", "two"), groups, (topic, other), strict=True)
        ],
    )
    await app.start()
    consumers = [cast("Any", app._consumer(name)) for name in ("one", "two")]  # pyright: ignore[reportPrivateUsage]
    client_ids = {each._client._client_id for each in consumers}
    instance_ids = {each._group_instance_id for each in consumers}
    auto_commits = [each._enable_auto_commit for each in consumers]
    await app.stop()

    assert auto_commits == [False, False]
    assert client_ids == {f"afterturn.{group}" for group in groups}
    assert instance_ids == {"pod-1.one", "pod-1.two"}


async def test_a_record_is_handed_over_without_giving_way(bootstrap_servers: str) -> None:
    """No rebalance can come between reading a record and taking it: nothing is awaited there."""
    topic, group = await new_topic(bootstrap_servers), new_group()
    told = Told()
    settings = kafka_settings(bootstrap_servers)
    async with consuming(settings, told, declared(topic), group) as app:
        await append(bootstrap_servers, topic, [b"v"])
        await told.until_done(1)
        broker = cast("Any", app._broker)  # pyright: ignore[reportPrivateUsage]
        subscriber = broker.subscribers[0]
        record = cast("Any", told.messages[0]).at
        fake = cast("Any", _Record(record.topic, record.partition, 1, 0, None, b"later", ()))
        with pytest.raises(StopIteration):
            subscriber.consume(fake).send(None)
        await told.until_done(2)

    assert told.values == [b"v", b"later"]


class _Record:
    """What is used of a record."""

    def __init__(self, *values: Any) -> None:
        names = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
        for name, value in zip(names, values, strict=True):
            setattr(self, name, value)


async def test_it_waits_for_kafka_and_says_so(tmp_path: Path) -> None:
    """A process that starts before its broker connects when that is there."""
    told = Told()
    async with embedded_kafka(tmp_path) as kafka:
        topic = await new_topic(kafka.bootstrap_servers)
        await append(kafka.bootstrap_servers, topic, [b"v"])
        await kafka.stop()
        app = ConsumerApp(
            kafka_settings(kafka.bootstrap_servers),
            [
                Subscription(
                    name="main", group=new_group(), topics=declared(topic), step=told, concurrency=1
                )
            ],
        )
        with capture_logs() as logs:
            starting = asyncio.create_task(app.start())
            async with asyncio.timeout(30):
                while True:
                    if any(each["event"] == "kafka_unreachable" for each in logs):
                        break
                    await asyncio.sleep(0.05)
            assert not starting.done()
            await kafka.start()
            await starting
        await told.until_done(1)
        await app.stop()

    assert [each["bootstrap_servers"] for each in logs if each["event"] == "kafka_unreachable"]


async def test_a_missing_topic_is_refused_with_what_to_do(bootstrap_servers: str) -> None:
    """It is not created on the way."""
    app = ConsumerApp(
        kafka_settings(bootstrap_servers),
        [
            Subscription(
                name="main",
                group=new_group(),
                topics=declared("nobody.made.that"),
                step=Told(),
                concurrency=1,
            )
        ],
    )
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="afterturn topics apply"):
            await app.start()
    await app.stop()


async def test_lag_is_what_is_not_committed(bootstrap_servers: str) -> None:
    """Per partition, from the oldest offset for a group that never committed."""
    topic, group = await new_topic(bootstrap_servers, partitions=2), new_group()
    topics: tuple[Topic, ...] = (*declared(topic, partitions=2), *declared("nobody.made.it"))
    settings, told = kafka_settings(bootstrap_servers), Told()
    await append(bootstrap_servers, topic, [b"v"] * 3, partition=1)
    before = await group_lag(settings, group, topics)
    async with consuming(settings, told, declared(topic, partitions=2), group):
        await told.until_done(3)
        await until_committed(bootstrap_servers, group, topic, 3, 1)
    await append(bootstrap_servers, topic, [b"v"] * 2, partition=1)
    after = await group_lag(settings, group, topics)

    assert [(each.partition, each.messages) for each in before] == [(0, 0), (1, 3)]
    assert [(each.partition, each.committed, each.messages) for each in after] == [
        (0, None, 0),
        (1, 3, 2),
    ]


async def test_a_faststream_app_can_run_it(bootstrap_servers: str) -> None:
    """As `faststream run` does."""
    topic, group = await new_topic(bootstrap_servers), new_group()
    told = Told()
    app = ConsumerApp(
        kafka_settings(bootstrap_servers),
        [Subscription(name="main", group=group, topics=declared(topic), step=told, concurrency=1)],
    )
    faststream = app.faststream()
    running = asyncio.create_task(faststream.run())
    await append(bootstrap_servers, topic, [b"v"])
    await told.until_done(1)
    faststream.exit()
    await running

    assert await committed(bootstrap_servers, group, topic) == 1
    assert TopicPartition(topic, 0) not in app.pools["main"].next_due_ms()
