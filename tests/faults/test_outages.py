"""Outages, on a virtual clock: nothing is spent, nobody is woken, and all is as without them.

The model is the real adapter at a scripted endpoint and the ledger is on a real database; Kafka is
a queue that delivers each message when it is due.
"""

import asyncio
import heapq
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count, cycle
from typing import Any

import pytest

from consumers.extraction_wiring import extraction_step
from consumers.pool import LONGEST_HOLD
from consumers.recording_wiring import recorder, snapshot_step
from consumers.wiring import Installation, wire
from pipeline.extracting.step import ExtractionStep
from pipeline.failing.breaking import IN_A_ROW
from pipeline.failing.gating import HeldError
from pipeline.failing.guarding import ROW
from pipeline.failing.resuming import resume_guard
from pipeline.models.choosing import model_from
from pipeline.reading.memories import text_of
from pipeline.settings import LLMSettings, Settings
from pipeline.stores.mongo import Database
from pipeline.stores.switches import MongoBreakers, MongoGuards
from schemas.extraction import Extraction, Outcome
from schemas.failure import Coordinates
from schemas.identity import ReadScope, SessionIdentity
from schemas.message import IncomingMessage, OutgoingMessage
from schemas.topics import DEAD, RECORD_CHANGED, RETRY_TIERS, SNAPSHOT_READY, TURN_RECORDED, Stage
from tests import scripted_endpoint as scripted
from tests.faults.test_crash_points import home
from tests.scripted_endpoint import Json, Reply, ScriptedEndpoint
from tests.virtual_time import VirtualTime

SESSIONS = 32
PERMITS = 4
DELAYS = {tier.topic.name: tier.delay for tier in RETRY_TIERS[Stage.EXTRACTION]}
NOT_DELIVERED = {RECORD_CHANGED.name, TURN_RECORDED.name, *(dead.name for dead in DEAD.values())}


@dataclass(slots=True, kw_only=True)
class Timeline:
    """One partition with a clock of its own: each message comes when it is due.

    As the pool does it: while a message is held, nothing but what is held is begun.
    """

    time: VirtualTime
    longest_hold: timedelta = LONGEST_HOLD
    held: list[tuple[int, int, IncomingMessage]] = field(
        default_factory=list[tuple[int, int, IncomingMessage]]
    )
    due: list[tuple[int, int, IncomingMessage]] = field(
        default_factory=list[tuple[int, int, IncomingMessage]]
    )
    numbers: Any = field(default_factory=count)
    wakes: list[IncomingMessage] = field(default_factory=list[IncomingMessage])

    async def publish(self, message: OutgoingMessage) -> None:
        number = next(self.numbers)
        at = Coordinates(topic=message.topic, partition=0, offset=number, timestamp_ms=0, group="g")
        arriving = IncomingMessage(
            at=at, key=message.key, value=message.value, headers=message.headers
        )
        if message.topic == TURN_RECORDED.name:
            self.wakes.append(arriving)
        if message.topic not in NOT_DELIVERED:
            await self._later(self.due, arriving, DELAYS.get(message.topic, timedelta(0)))

    async def _later(
        self,
        queue: list[tuple[int, int, IncomingMessage]],
        message: IncomingMessage,
        wait: timedelta,
    ) -> None:
        due_ms = await self.time.now_ms() + int(wait.total_seconds() * 1000)
        heapq.heappush(queue, (due_ms, next(self.numbers), message))

    async def deliver(self, *steps: ExtractionStep, until_ms: int | None = None) -> None:
        """Deliver what is due in turn to each process, side by side, until nothing waits."""
        while (queue := self.held or self.due) and (until_ms is None or queue[0][0] < until_ms):
            self.time.passed_ms += max(0, queue[0][0] - await self.time.now_ms())
            now_ms = await self.time.now_ms()
            batch: list[IncomingMessage] = []
            while queue and queue[0][0] <= now_ms and len(batch) < 2 * PERMITS * len(steps):
                batch.append(heapq.heappop(queue)[2])
            await asyncio.gather(*map(self._attempt, cycle(steps), batch))

    async def _attempt(self, step: ExtractionStep, message: IncomingMessage) -> None:
        try:
            await step(message)
        except HeldError as error:
            wait = min(error.again_in or self.longest_hold, self.longest_hold)
            await self._later(self.held, message, wait)


@dataclass(slots=True, kw_only=True)
class World:
    """One installation and the steps of one process."""

    parts: Installation
    timeline: Timeline
    extract: ExtractionStep
    others: tuple[ExtractionStep, ...]
    """Those of two more processes."""

    async def talk(self, sessions: int = SESSIONS) -> None:
        """Record and cut so many sessions of two turns each."""
        async with recorder(self.parts) as recording:
            for number in range(sessions):
                whose = SessionIdentity(user_id=f"user {number}", session_id="s")
                for turn in range(2):
                    said = {"role": "user", "content": f"I live in town {number} {turn}."}
                    await recording.record(whose, said)
                await recording.close(whose)
        cut = snapshot_step(self.parts)
        for wake in self.timeline.wakes:
            await cut(wake)

    async def ledger(self) -> list[Extraction]:
        ids = [one["_id"] async for one in self.parts.database["extractions"].find()]
        found = [await self.parts.extractions.get(each) for each in ids]
        return [one for one in found if one is not None]

    async def contents(self) -> list[str]:
        """Return the contents of all records, closed ones too."""
        records = [
            one async for one in self.parts.records.of_scope(ReadScope(project_id="default"))
        ]
        return sorted(text_of(run.content) for record in records for run in record.runs)

    async def letters(self) -> int:
        return await self.parts.letters.count()

    async def attempts(self) -> int:
        return sum(len(one.attempts) for one in await self.ledger())


@pytest.fixture
async def world(db: Database, endpoint: ScriptedEndpoint) -> AsyncIterator[World]:
    time = VirtualTime()
    timeline = Timeline(time=time)
    settings = Settings.model_validate({"extraction": {"permits": PERMITS}})
    parts = await wire(settings, db, timeline, server_time=time)
    model = model_from(
        LLMSettings(provider="openai_compatible", model="scripted-1", base_url=endpoint.url)
    )
    extract, *others = (extraction_step(parts, model) for _ in range(3))
    yield World(parts=parts, timeline=timeline, extract=extract, others=tuple(others))
    await model.aclose()


EXPECTED = sorted(
    f"I live in town {number} {turn}." for number in range(SESSIONS) for turn in range(2)
)


def always(reply: Reply) -> Callable[[Json], Reply]:
    return lambda _request: reply


async def through(
    world: World, endpoint: ScriptedEndpoint, outage: timedelta, broken: Callable[[Json], Reply]
) -> int:
    """Let everybody talk while the model is broken for so long; return the calls until then."""
    await world.talk()
    began_ms = await world.parts.server_time.now_ms()
    over_ms = began_ms + int(outage.total_seconds() * 1000)
    endpoint.respond_with(broken)
    await world.timeline.deliver(world.extract, until_ms=over_ms)
    calls = endpoint.count
    endpoint.respond_with(home)
    world.timeline.time.passed_ms += max(0, over_ms - await world.parts.server_time.now_ms())
    await world.timeline.deliver(world.extract)
    return calls


async def all_is_as_without_it(world: World) -> None:
    assert {one.outcome for one in await world.ledger()} == {Outcome.RECORDS}
    assert await world.contents() == EXPECTED
    assert await world.letters() == 0
    assert all(
        breaker.phase == "closed" for breaker in await MongoBreakers(world.parts.database).all()
    )


async def test_a_model_that_is_down_for_twenty_minutes_costs_what_was_in_flight(
    world: World, endpoint: ScriptedEndpoint
) -> None:
    calls = await through(world, endpoint, timedelta(minutes=20), lambda _: scripted.status(503))

    await all_is_as_without_it(world)
    assert await world.attempts() <= IN_A_ROW + PERMITS
    trials = calls - await world.attempts()
    assert 1 <= trials <= 20


@pytest.mark.parametrize(
    ("hours", "broken"),
    [
        (40, scripted.status(401)),
        (4, scripted.status(429, error_code="insufficient_quota")),
        (4, scripted.status(404, error_code="model_not_found")),
    ],
    ids=["key", "quota", "model"],
)
async def test_what_a_person_must_mend_waits_without_a_letter(
    hours: int, broken: Reply, world: World, endpoint: ScriptedEndpoint
) -> None:
    """For longer than the age cap: time that was held does not count."""
    world.timeline.longest_hold = timedelta(minutes=10)
    calls = await through(world, endpoint, timedelta(hours=hours), always(broken))

    await all_is_as_without_it(world)
    assert await world.attempts() <= PERMITS
    assert calls <= PERMITS + hours * 6 + 1


async def test_a_bad_deploy_makes_few_letters_and_goes_on_when_it_is_mended(
    world: World, endpoint: ScriptedEndpoint
) -> None:
    """By three processes no more than by one."""
    steps = (world.extract, *world.others)
    endpoint.respond_with(always(scripted.says("Sorry.")))
    await world.talk()
    soon_ms = await world.parts.server_time.now_ms() + 600_000
    await world.timeline.deliver(*steps, until_ms=soon_ms)
    letters, calls = await world.letters(), endpoint.count

    assert letters <= ROW
    later_ms = soon_ms + 3_600_000
    await world.timeline.deliver(*steps, until_ms=later_ms)
    assert (await world.letters(), endpoint.count) == (letters, calls)

    endpoint.respond_with(home)
    guards = MongoGuards(world.parts.database)
    (guard,) = await guards.all()
    await resume_guard(guard.guard_id, guards)
    await world.timeline.deliver(*steps)
    outcomes = [one.outcome for one in await world.ledger()]

    assert outcomes.count(Outcome.RECORDS) == SESSIONS - letters
    assert outcomes.count(Outcome.DEAD) == letters == await world.letters()


async def test_what_cannot_be_read_trips_no_guard_and_holds_nobody_up(
    world: World, endpoint: ScriptedEndpoint
) -> None:
    """However many there are: held messages would hold up those behind them."""
    endpoint.respond_with(home)
    junk = 3 * ROW
    for number in range(junk):
        sent = OutgoingMessage(
            topic=SNAPSHOT_READY.name, key=b"%d" % number, value=b"\xff%d" % number, headers=()
        )
        await world.timeline.publish(sent)
    await world.talk(sessions=4)
    await world.timeline.deliver(world.extract)

    assert {one.outcome for one in await world.ledger()} == {Outcome.RECORDS}
    assert await world.letters() == junk


async def test_one_bad_message_stops_nobody(world: World, endpoint: ScriptedEndpoint) -> None:
    def broken(request: Json) -> Reply:
        is_bad = "I live in town 3 0." in str(request)
        return scripted.status(500) if is_bad else home(request)

    endpoint.respond_with(broken)
    await world.talk()
    await world.timeline.deliver(world.extract)
    outcomes = [one.outcome for one in await world.ledger()]

    assert outcomes.count(Outcome.RECORDS) == SESSIONS - 1
    assert outcomes.count(Outcome.DEAD) == 1


async def test_a_bad_message_that_is_tried_after_an_outage_keeps_nobody_waiting(
    world: World, endpoint: ScriptedEndpoint
) -> None:
    """Not even those behind it in its partition, where it comes first."""

    def broken(request: Json) -> Reply:
        return scripted.status(500) if "I live in town 0 0." in str(request) else home(request)

    sessions = IN_A_ROW + 3
    await world.talk(sessions)
    over_ms = await world.parts.server_time.now_ms() + 600_000
    endpoint.respond_with(always(scripted.status(503)))
    await world.timeline.deliver(world.extract, until_ms=over_ms)
    endpoint.respond_with(broken)
    await world.timeline.deliver(world.extract, until_ms=over_ms + 900_000)
    outcomes = [one.outcome for one in await world.ledger()]

    assert outcomes.count(Outcome.RECORDS) == sessions - 1
    await world.timeline.deliver(world.extract)
    assert [one.outcome for one in await world.ledger()].count(Outcome.DEAD) == 1
    assert await world.letters() == 1
