"""When partitions move, nothing is lost, and what fits the drain is not done twice."""

import asyncio
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from schemas.message import IncomingMessage
from tests.integration.consuming import (
    consuming,
    declared,
    kafka_settings,
    new_group,
    until_committed,
)
from tests.integration.kafka import append, new_topic

pytestmark = pytest.mark.kafka
PARTITIONS, EACH = 4, 10


class Shared:
    """What all members of a group were given and finished, and when anything changes."""

    def __init__(self, seconds: float) -> None:
        self.given: list[tuple[int, int]] = []
        self.done: list[tuple[int, int]] = []
        self._seconds = seconds

    async def __call__(self, message: IncomingMessage) -> None:
        self.given.append((message.at.partition, message.at.offset))
        await asyncio.sleep(self._seconds)
        self.done.append((message.at.partition, message.at.offset))

    async def until(self, count: int) -> None:
        """Wait until so many different messages are done."""
        async with asyncio.timeout(60):
            while len(set(self.done)) < count:  # noqa: ASYNC110 (several members)
                await asyncio.sleep(0.02)


async def filled_topic(servers: str) -> str:
    """Create a topic with messages on every partition."""
    topic = await new_topic(servers, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        await append(servers, topic, [b"v"] * EACH, partition=partition)
    return topic


async def until_all_committed(servers: str, group: str, topic: str) -> None:
    """Wait until the group has committed everything."""
    for partition in range(PARTITIONS):
        await until_committed(servers, group, topic, EACH, partition)


@pytest.mark.parametrize("is_static", [True, False])
async def test_work_that_fits_the_drain_is_done_once(
    real_kafka_servers: str, is_static: bool
) -> None:
    """A member joins and one leaves while all are working."""
    topic, group = await filled_topic(real_kafka_servers), new_group()
    topics = declared(topic, partitions=PARTITIONS)
    step = Shared(0.5)
    one, two = (
        kafka_settings(real_kafka_servers, instance_id=name).model_copy(
            update={} if is_static else {"instance_id": None}
        )
        for name in ("one", "two")
    )
    async with consuming(one, step, topics, group):
        await step.until(4)
        async with consuming(two, step, topics, group):
            await step.until(20)
        await step.until(PARTITIONS * EACH)
        await until_all_committed(real_kafka_servers, group, topic)

    assert len(step.given) == PARTITIONS * EACH
    assert sorted(step.done) == sorted(set(step.given))


async def test_work_that_does_not_fit_comes_again_and_nothing_is_lost(
    real_kafka_servers: str,
) -> None:
    """Its late completion moves nobody's offset."""
    topic, group = await filled_topic(real_kafka_servers), new_group()
    topics = declared(topic, partitions=PARTITIONS)
    step = Shared(1.5)
    one, two = (
        kafka_settings(real_kafka_servers, instance_id=name).model_copy(
            update={"drain_timeout": timedelta(milliseconds=100)}
        )
        for name in ("one", "two")
    )
    with capture_logs() as logs:
        async with consuming(one, step, topics, group, concurrency=16):
            await step.until(4)
            async with consuming(two, step, topics, group, concurrency=16):
                await step.until(PARTITIONS * EACH)
                await until_all_committed(real_kafka_servers, group, topic)

    events = [each["event"] for each in logs]
    assert len(step.given) > PARTITIONS * EACH
    assert "drain_timed_out" in events
    assert "late_completion_ignored" in events
