"""A project's daily quota, counted by several processes on a real database."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from pymongo.errors import AutoReconnect

from pipeline.access.quotas import BATCH, EVERY, Quota
from pipeline.errors import QuotaExceededError
from pipeline.stores.mongo import Database
from pipeline.stores.usage import MongoUsage
from tests.virtual_time import VirtualTime

DAY = timedelta(days=1)
LIMIT = 300


@dataclass(slots=True)
class Counting:
    """Port `Usage` on the database, with how often each is called."""

    usage: MongoUsage
    added: list[int] = field(default_factory=list[int])
    read: int = 0
    is_down: bool = False

    async def of(self, project_id: str, day: int) -> int:
        self.read += 1
        return await self.usage.of(project_id, day)

    async def add(self, project_id: str, day: int, used: int) -> None:
        if self.is_down:
            raise AutoReconnect
        self.added.append(used)
        await self.usage.add(project_id, day, used)


def process(
    db: Database,
    time: VirtualTime,
    *,
    limit: int | None = LIMIT,
    monotonic: Callable[[], float] = lambda: 0.0,
) -> tuple[Quota, Counting]:
    """Return what one process counts with."""
    usage = Counting(MongoUsage(db))
    return Quota(limit, usage=usage, server_time=time, monotonic=monotonic), usage


async def store(quota: Quota, project: str = "alpha", *, is_new: bool = True) -> bool:
    """Store something; return whether the quota allowed it."""
    try:
        async with quota.one_more(project) as counted:
            counted.is_new = is_new
    except QuotaExceededError:
        return False
    # What is added is added beside the next ones.
    await asyncio.sleep(0)
    return True


async def test_one_process_stores_exactly_its_quota_with_few_commands(db: Database) -> None:
    quota, usage = process(db, VirtualTime())
    stored = [await store(quota) for _ in range(LIMIT + 20)]
    await quota.close()

    assert (sum(stored), stored[:LIMIT].count(False)) == (LIMIT, 0)
    assert sum(usage.added) == LIMIT
    assert len(usage.added) + usage.read <= 2 * LIMIT / BATCH + 2
    assert await store(quota, "beta")


async def test_processes_together_store_little_more_than_it(db: Database) -> None:
    time = VirtualTime()
    processes = [process(db, time) for _ in range(3)]
    stored = 0
    for _ in range(LIMIT):
        for quota, _ in processes:
            stored += await store(quota)
    for quota, _ in processes:
        await quota.close()
    late, _ = process(db, time)

    assert LIMIT <= stored < LIMIT + 3 * 2 * BATCH
    assert sum(sum(usage.added) for _, usage in processes) == stored
    assert not await store(late)


async def test_a_day_ends_at_midnight_and_says_so(db: Database) -> None:
    time = VirtualTime()
    quota, _ = process(db, time, limit=1)
    assert await store(quota)
    with pytest.raises(QuotaExceededError) as told:
        async with quota.one_more("alpha"):
            raise AssertionError("the body is not to run")
    left = DAY.total_seconds() - await time.now_ms() / 1000 % DAY.total_seconds()
    assert told.value.wait_seconds == pytest.approx(left, abs=5)
    time.passes(timedelta(seconds=told.value.wait_seconds))

    assert await store(quota)
    assert not await store(quota)
    await quota.close()
    again, _ = process(db, time, limit=1)
    assert not await store(again)


async def test_what_fails_or_is_known_counts_not(db: Database) -> None:
    quota, usage = process(db, VirtualTime(), limit=2)
    for _ in range(5):
        assert await store(quota, is_new=False)
        with pytest.raises(ValueError, match="refused"):
            async with quota.one_more("alpha"):
                raise ValueError("refused")
    assert [await store(quota) for _ in range(3)] == [True, True, False]
    await quota.close()

    assert sum(usage.added) == 2


async def test_those_under_way_together_are_no_more_than_it_allows(db: Database) -> None:
    quota, _ = process(db, VirtualTime(), limit=5)

    assert sum(await asyncio.gather(*(store(quota) for _ in range(20)))) == 5


async def test_a_slow_trickle_is_added_every_few_seconds(db: Database) -> None:
    seconds = 0.0
    quota, usage = process(db, VirtualTime(), monotonic=lambda: seconds)
    for _ in range(int(EVERY.total_seconds()) * 3):
        await store(quota)
        await asyncio.gather(*(each for each in asyncio.all_tasks() if each.get_name() == "quota"))
        seconds += 1.0

    assert usage.added == [11, 10]


async def test_a_sum_that_can_not_be_written_is_kept_and_stops_nobody(db: Database) -> None:
    quota, usage = process(db, VirtualTime())
    assert await store(quota)
    usage.is_down = True
    stored = [await store(quota) for _ in range(LIMIT)]
    assert sum(stored) == LIMIT - 1
    usage.is_down = False
    await quota.close()

    assert sum(usage.added) == LIMIT


async def test_no_quota_costs_nothing(db: Database) -> None:
    quota, usage = process(db, VirtualTime(), limit=None)
    assert all([await store(quota) for _ in range(BATCH * 2)])
    await quota.close()

    assert (usage.read, usage.added) == (0, [])
