"""A bad replay beside live traffic: it stops itself, and nobody else notices."""

import asyncio
from datetime import timedelta

from consumers.operating import replay_desk
from pipeline.ending import end
from pipeline.failing.guarding import ROW
from pipeline.failing.resuming import resume_guard
from pipeline.stores.switches import MongoGuards
from schemas.extraction import Outcome
from schemas.job import JobState, Replay, ReplayJob, Selection
from schemas.topics import SNAPSHOT_REPLAY
from tests import scripted_endpoint as scripted
from tests.faults.test_crash_points import home
from tests.faults.test_outages import SESSIONS, Timeline, World, always, world
from tests.integration.test_extracting import ScriptedModel
from tests.integration.test_replaying import replay_runner
from tests.scripted_endpoint import ScriptedEndpoint

__all__ = ["world"]

PATIENCE_SECONDS = 60
SOON_MS = timedelta(minutes=10) // timedelta(milliseconds=1)


async def test_a_bad_replay_stops_itself_and_live_traffic_goes_on(
    world: World, endpoint: ScriptedEndpoint
) -> None:
    endpoint.respond_with(home)
    await world.talk()
    await world.timeline.deliver(world.extract)
    known = await world.contents()
    desk = replay_desk(world.parts, by="an operator")
    job = await desk.start(Replay(selection=Selection(), is_forced=True))
    running = asyncio.create_task(replay_runner(world.parts, ScriptedModel({})).run(job.job_id))
    replays = await begun(world)
    # The process that runs it dies here; what it began is the consumers'.
    await end([running])

    endpoint.respond_with(always(scripted.says("Sorry.")))
    soon_ms = await world.parts.server_time.now_ms() + SOON_MS
    await replays.deliver(world.extract, until_ms=soon_ms)
    letters, calls = await world.letters(), endpoint.count
    endpoint.respond_with(home)
    await world.talk()
    await world.timeline.deliver(world.extract)
    live = [one for one in await world.ledger() if one.run == 0]

    assert 0 < letters <= ROW
    assert await world.letters() == letters
    assert {one.outcome for one in live} == {Outcome.RECORDS}
    assert len(live) == 2 * SESSIONS
    assert [one.attempts for one in live if one.attempts] == []
    assert endpoint.count == calls + SESSIONS
    assert set(known) <= set(await world.contents())

    (guard,) = [one for one in await MongoGuards(world.parts.database).all() if one.tripped_at_ms]
    assert guard.guard_id.endswith(":job")
    await resume_guard(guard.guard_id, MongoGuards(world.parts.database))
    await replays.deliver(world.extract)
    async with asyncio.timeout(PATIENCE_SECONDS):
        ended = await replay_runner(world.parts, ScriptedModel({})).run(job.job_id)
    assert isinstance(ended, ReplayJob)
    assert ended.state is JobState.DONE
    report = await desk.report(ended)
    assert report.took_over == SESSIONS - letters
    assert (report.gone, report.added) == (0, 0)
    assert await world.letters() == letters


async def begun(world: World) -> Timeline:
    """Wait until all of the replay is begun; return what it sent, on a partition of its own."""
    topic = SNAPSHOT_REPLAY.name
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(world.timeline.due) < SESSIONS:  # noqa: ASYNC110 (nothing tells)
            await asyncio.sleep(0.01)
    assert {message.at.topic for _, _, message in world.timeline.due} == {topic}
    replays = Timeline(time=world.timeline.time, due=world.timeline.due)
    world.timeline.due = []
    return replays
