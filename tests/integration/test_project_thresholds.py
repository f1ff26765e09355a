"""When sessions are cut, by what their projects set, on a real database."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from consumers.recording_wiring import recorder, snapshot_step, waker
from consumers.wiring import Installation, wire
from pipeline.settings import Settings
from pipeline.stores.mongo import Database
from schemas.identity import SessionIdentity
from schemas.message import OutgoingMessage
from schemas.project import ProjectSettings
from schemas.snapshot import CutReason
from schemas.topics import TURN_RECORDED
from tests.faults.test_outages import Timeline
from tests.virtual_time import VirtualTime


class Wakes(Timeline):
    """Keeps the wake-ups and delivers nothing."""

    async def publish(self, message: OutgoingMessage) -> None:
        if message.topic == TURN_RECORDED.name:
            await super().publish(message)


@pytest.fixture
def timeline() -> Wakes:
    return Wakes(time=VirtualTime())


@pytest.fixture
async def parts(db: Database, timeline: Wakes) -> AsyncIterator[Installation]:
    yield await wire(Settings(), db, timeline, server_time=timeline.time)


async def configured(parts: Installation, **snapshot: Any) -> None:
    now = datetime.now(UTC)
    block = {"background_extraction": {"snapshot": snapshot}}
    settings = ProjectSettings.model_validate(block)
    number = await parts.projects.store("acme", settings, after=0, now=now)
    assert number is not None
    await parts.projects.apply("acme", number, now=now)


async def talk(parts: Installation, turns: int) -> dict[str, str]:
    """Record so many turns in a session of each project; return their keys by project."""
    sessions: dict[str, str] = {}
    async with recorder(parts) as recording:
        for project in ("acme", "other"):
            whose = SessionIdentity(project_id=project, user_id="ana", session_id="s")
            for number in range(turns):
                said = {"role": "user", "content": f"I live in town {number}."}
                sessions[project] = (await recording.record(whose, said)).session
    return sessions


async def cut(parts: Installation, timeline: Wakes) -> dict[str, list[tuple[int, int, str]]]:
    """Cut whatever was woken; return the snapshots by project."""
    step = snapshot_step(parts)
    for wake in timeline.wakes:
        await step(wake)
    found: dict[str, list[tuple[int, int, str]]] = {}
    async for one in parts.database["snapshots"].find().sort("first_seq"):
        tile = (one["first_seq"], one["last_seq"], one["reason"])
        found.setdefault(one["identity"]["project_id"], []).append(tile)
    return found


async def test_a_project_cuts_at_its_own_size(parts: Installation, timeline: Wakes) -> None:
    await configured(parts, max_messages=2)
    await talk(parts, 5)

    assert await cut(parts, timeline) == {"acme": [(1, 2, CutReason.FULL), (3, 4, CutReason.FULL)]}


async def test_a_project_cuts_after_its_own_silence_and_is_woken_for_it(
    parts: Installation, timeline: Wakes
) -> None:
    await configured(parts, stale_minutes=0.5)
    sessions = await talk(parts, 2)
    timeline.wakes.clear()
    timeline.time.passes(timedelta(minutes=1))

    await waker(parts).sweep()

    assert {wake.key for wake in timeline.wakes} == {sessions["acme"].encode()}
    assert await cut(parts, timeline) == {"acme": [(1, 2, CutReason.IDLE)]}


async def test_what_a_project_sets_later_than_the_process_makes_it_wait(
    parts: Installation, timeline: Wakes
) -> None:
    await configured(parts, stale_minutes=60)
    await talk(parts, 2)
    timeline.time.passes(timedelta(minutes=4))

    assert await cut(parts, timeline) == {"other": [(1, 2, CutReason.IDLE)]}
