"""A retry is never early, and no clock that is wrong makes it wait longer than its tier's delay."""

import asyncio
from datetime import timedelta

from pymongo.errors import ConnectionFailure

from consumers.due import DueTimes
from schemas.failure import Coordinates
from schemas.message import IncomingMessage
from schemas.topics import RetryTier, Topic

APPENDED_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
TIER = RetryTier(
    topic=Topic(name="tier", partitions=1, retention=timedelta(days=1), is_log_append_time=True),
    delay=timedelta(minutes=10),
)


class FixedTime:
    """A server whose clock stands, or that does not answer."""

    def __init__(self, now_ms: int | None) -> None:
        self._now_ms = now_ms

    async def now_ms(self) -> int:
        if self._now_ms is None:
            raise ConnectionFailure
        return self._now_ms


async def remaining(
    now_ms: int | None, *, read_seconds_ago: float = 0, topic: str = "tier"
) -> float:
    """Return what is left to wait of ten minutes."""
    due = DueTimes([TIER], FixedTime(now_ms))
    read_at = asyncio.get_running_loop().time() - read_seconds_ago
    return await due.remaining(message(topic), read_at=read_at)


def message(topic: str = "tier") -> IncomingMessage:
    """Return a message of a topic."""
    at = Coordinates(topic=topic, partition=0, offset=0, timestamp_ms=APPENDED_MS, group="g")
    return IncomingMessage(at=at, key=None, value=b"", headers=())


async def test_due_is_the_append_time_plus_the_delay() -> None:
    """By the server's clock, to the millisecond."""
    assert await remaining(APPENDED_MS + 599_999) == 0.001
    assert await remaining(APPENDED_MS + 600_000) == 0
    assert await remaining(APPENDED_MS + 700_000) < 0
    assert DueTimes([TIER], FixedTime(0)).due_ms(message()) == APPENDED_MS + 600_000


async def test_a_server_behind_makes_nobody_wait_longer_than_the_delay() -> None:
    """It was appended before it was read, so the whole delay later it is due."""
    late = APPENDED_MS - 2 * HOUR_MS

    assert 599 < await remaining(late) <= 600
    assert 299 < await remaining(late, read_seconds_ago=300) <= 300
    assert await remaining(late, read_seconds_ago=600) <= 0


async def test_an_unknown_server_time_waits_the_whole_delay() -> None:
    """Never early for want of a clock."""
    assert 599 < await remaining(None) <= 600
    assert await remaining(None, read_seconds_ago=601) < 0


async def test_a_message_of_another_topic_is_due() -> None:
    """Only tiers wait."""
    assert await remaining(APPENDED_MS, topic="other") <= 0


async def test_the_clock_is_read_again_while_waiting() -> None:
    """A server that jumps ahead ends the wait within a look."""
    time = FixedTime(APPENDED_MS)
    due = DueTimes([TIER], time, longest_sleep=timedelta(milliseconds=1))
    waiting = asyncio.create_task(due.wait(message(), read_at=asyncio.get_running_loop().time()))
    await asyncio.sleep(0.01)
    was_done = waiting.done()
    time._now_ms = APPENDED_MS + 600_000  # pyright: ignore[reportPrivateUsage]
    async with asyncio.timeout(1):
        await waiting

    assert not was_done
