"""Retry tiers run each message once, none early, across restarts and the group's own clocks."""

import asyncio
import time
from datetime import timedelta

import pytest

from consumers.due import DueTimes
from schemas.message import IncomingMessage
from schemas.topics import RetryTier, Topic
from tests.integration.consuming import (
    Told,
    consuming,
    kafka_settings,
    new_group,
    until_committed,
)
from tests.integration.kafka import append, new_topic

SHORT, LONG = timedelta(milliseconds=600), timedelta(milliseconds=1500)


class HostTime:
    """The clock that the test's broker has, too, shifted."""

    def __init__(self, shift: timedelta = timedelta(0)) -> None:
        self._shift_ms = round(shift.total_seconds() * 1000)

    async def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self._shift_ms


class Timed(Told):
    """Notes how late each message was run after it was appended."""

    def __init__(self) -> None:
        super().__init__()
        self.waited_ms: dict[tuple[str, int, int], int] = {}

    async def __call__(self, message: IncomingMessage) -> None:
        at = message.at
        self.waited_ms[at.topic, at.partition, at.offset] = (
            time.time_ns() // 1_000_000 - at.timestamp_ms
        )
        await super().__call__(message)


async def new_tiers(servers: str, *, partitions: int = 2) -> tuple[RetryTier, RetryTier]:
    """Create two tiers."""
    tiers = [
        RetryTier(
            topic=Topic(
                name=await new_topic(
                    servers, partitions=partitions, name="tier", is_log_append_time=True
                ),
                partitions=partitions,
                retention=timedelta(hours=1),
                is_log_append_time=True,
            ),
            delay=delay,
        )
        for delay in (SHORT, LONG)
    ]
    return tiers[0], tiers[1]


async def fill(servers: str, tiers: tuple[RetryTier, RetryTier], each: int) -> None:
    """Append to every partition of every tier."""
    for tier in tiers:
        for partition in range(tier.topic.partitions):
            values: list[bytes | None] = [b"%d" % index for index in range(each)]
            await append(servers, tier.topic.name, values, partition=partition)


def assert_on_time(timed: Timed, tiers: tuple[RetryTier, RetryTier], *, latest_ms: int) -> None:
    """Every message ran when due or a little later."""
    delay_ms = {tier.topic.name: tier.delay.total_seconds() * 1000 for tier in tiers}
    for (topic, _, _), waited_ms in timed.waited_ms.items():
        assert delay_ms[topic] <= waited_ms <= delay_ms[topic] + latest_ms


async def test_each_runs_once_and_none_early(bootstrap_servers: str) -> None:
    """All tiers by one subscriber; a long wait holds up no short one."""
    tiers, group = await new_tiers(bootstrap_servers), new_group()
    timed = Timed()
    settings = kafka_settings(bootstrap_servers)
    topics = [tier.topic for tier in tiers]
    due = DueTimes(tiers, HostTime())
    async with consuming(settings, timed, topics, group, due=due) as app:
        await fill(bootstrap_servers, tiers, 5)
        await timed.until(lambda timed: len(timed.messages) >= 10)
        next_due = app.pools["main"].next_due_ms()
        await timed.until_done(20)
        for tier in tiers:
            await until_committed(bootstrap_servers, group, tier.topic.name, 5)

    assert len(timed.messages) == len(timed.waited_ms) == 20
    assert_on_time(timed, tiers, latest_ms=1000)
    assert {tp.topic for tp in next_due} == {tiers[1].topic.name}
    assert all(due > 1_700_000_000_000 for due in next_due.values())


async def test_a_wait_survives_a_restart(bootstrap_servers: str) -> None:
    """Who waited is gone; whoever comes next waits for the same time, not for a new one."""
    tiers, group = await new_tiers(bootstrap_servers), new_group()
    settings = kafka_settings(bootstrap_servers)
    topics = [tier.topic for tier in tiers]
    first, second = Timed(), Timed()
    due = DueTimes(tiers, HostTime())
    async with consuming(settings, first, topics, group, due=due):
        await fill(bootstrap_servers, tiers, 2)
        await first.until_done(4)
    async with consuming(settings, second, topics, group, due=due):
        await second.until_done(4)

    assert {each.at.topic for each in first.messages} == {tiers[0].topic.name}
    assert {each.at.topic for each in second.messages} == {tiers[1].topic.name}
    assert len(first.messages) + len(second.messages) == 8
    assert_on_time(first, tiers, latest_ms=1000)
    assert_on_time(second, tiers, latest_ms=2500)


async def test_a_wait_longer_than_the_poll_interval_is_no_reason_to_leave(
    bootstrap_servers: str,
) -> None:
    """Paused partitions don't count as not reading."""
    tiers, group = await new_tiers(bootstrap_servers, partitions=1), new_group()
    settings = kafka_settings(bootstrap_servers).model_copy(
        update={"max_poll_interval": timedelta(milliseconds=500)}
    )
    timed = Timed()
    topics = [tier.topic for tier in tiers]
    async with consuming(settings, timed, topics, group, due=DueTimes(tiers, HostTime())):
        await fill(bootstrap_servers, tiers, 2)
        await timed.until_done(4)

    assert len(timed.messages) == 4
    assert_on_time(timed, tiers, latest_ms=1000)


@pytest.mark.parametrize("hours", [-2, 0])
async def test_a_wrong_clock_neither_hurries_nor_delays(bootstrap_servers: str, hours: int) -> None:
    """A database two hours behind makes nobody wait longer than the delay after reading."""
    tiers, group = await new_tiers(bootstrap_servers, partitions=1), new_group()
    timed = Timed()
    due = DueTimes(tiers, HostTime(timedelta(hours=hours)))
    topics = [tier.topic for tier in tiers]
    async with consuming(kafka_settings(bootstrap_servers), timed, topics, group, due=due):
        await fill(bootstrap_servers, tiers, 1)
        await timed.until_done(2)

    assert_on_time(timed, tiers, latest_ms=1000)


@pytest.mark.kafka
async def test_a_rebalance_makes_no_wait_shorter(real_kafka_servers: str) -> None:
    """A member joins while all partitions wait: each message still runs once, and on time."""
    tiers, group = await new_tiers(real_kafka_servers), new_group()
    topics = [tier.topic for tier in tiers]
    due = DueTimes(tiers, HostTime())
    first, second = Timed(), Timed()
    one, two = (kafka_settings(real_kafka_servers, instance_id=f"m{i}") for i in (1, 2))
    async with consuming(one, first, topics, group, due=due):
        await fill(real_kafka_servers, tiers, 5)
        async with consuming(two, second, topics, group, due=due):
            async with asyncio.timeout(30):
                while len(first.waited_ms) + len(second.waited_ms) < 20:  # noqa: ASYNC110 (two)
                    await asyncio.sleep(0.05)

    assert len(first.messages) + len(second.messages) == 20
    assert not first.waited_ms.keys() & second.waited_ms.keys()
    assert_on_time(first, tiers, latest_ms=6000)
    assert_on_time(second, tiers, latest_ms=6000)
