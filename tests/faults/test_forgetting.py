"""`kill -9` at every point of a forgetting: nothing is half forgotten once the waker has passed."""

import asyncio
from multiprocessing import get_context

import pytest
from pydantic import SecretStr

from consumers.wiring import Installation, wire
from pipeline.crash_points import CrashPoint, arm
from pipeline.settings import MongoSettings, Settings
from pipeline.stores.mongo import Database, connect, database
from schemas.tombstone import TombstoneState
from tests.integration.serving import Silent
from tests.integration.test_extracting import Broker, announced, broker, home, parts, run
from tests.integration.test_forgetting import (
    CAT,
    RUN,
    SAID,
    answering,
    everything,
    forget,
    told,
    violations,
)

__all__ = ["broker", "parts"]

PLACES = [
    (CrashPoint.TOMBSTONE_WRITTEN, 0),
    (CrashPoint.SLOT_BARRED, 0),
    (CrashPoint.RECORD_FOLDED, 0),
    (CrashPoint.TOMBSTONE_ADVANCED, 0),
    (CrashPoint.ANSWER_BLANKED, 0),
    (CrashPoint.SUMMARY_BLANKED, 0),
    (CrashPoint.ASSERTIONS_REMOVED, 0),
    (CrashPoint.TOMBSTONE_ADVANCED, 1),
]
"""Every write of a forgetting, in their order: the point after it, and how often that is passed."""
PATIENCE_SECONDS = 180
"""How long a process may take to start where everything is slow."""
PROCESSES = get_context("forkserver")
PROCESSES.set_forkserver_preload([__name__])
FORGOTTEN = [home(1)["text"]]


def die(uri: str, name: str, point: CrashPoint, passes: int) -> None:
    """Forget the cat in a process that dies at a point."""
    arm(point, passes=passes)
    asyncio.run(_forget(uri, name))


async def _forget(uri: str, name: str) -> None:
    settings = MongoSettings(uri=SecretStr(uri), database=name)
    client = connect(settings)
    parts = await wire(Settings(mongo=settings), database(client, settings), Silent())
    await forget(parts, CAT["text"])


@pytest.mark.parametrize("place", PLACES)
async def test_a_forgetting_that_was_killed_is_finished(
    place: tuple[CrashPoint, int],
    parts: Installation,
    broker: Broker,
    db: Database,
    mongo_uri: str,
) -> None:
    await announced(parts, broker, *SAID)
    first = broker.waiting[0]
    await run(parts, broker, answering())
    process = PROCESSES.Process(target=die, args=(mongo_uri, db.name, *place))
    process.start()
    await asyncio.to_thread(process.join, PATIENCE_SECONDS)
    assert process.exitcode == -9, f"{place} was never reached"
    is_folded = PLACES.index(place) >= PLACES.index((CrashPoint.RECORD_FOLDED, 0))
    assert (await told(parts) == FORGOTTEN) is is_folded

    for _ in range(2):
        await db["tombstones"].update_many({"due_ms": {"$exists": True}}, {"$set": {"due_ms": 0}})
        await parts.forgetter.sweep(9)
        await parts.folder.sweep_dirty(9)
    broker.waiting.append(first)
    await run(parts, broker, answering())

    assert await told(parts) == FORGOTTEN
    assert "Miso" not in await everything(db)
    assert [one.key for one in await parts.assertions.of_extraction(RUN)] == ["user/home"]
    states = [each["state"] async for each in db["tombstones"].find()]
    assert states == [TombstoneState.DONE]
    assert await violations(parts, db) == []
