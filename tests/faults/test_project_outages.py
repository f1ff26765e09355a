"""One project's model is gone while others work: nobody else waits, and nothing of its is spent.

As in `test_outages`: the real adapter at a scripted endpoint, a real database, a virtual clock, and
one partition that all projects share, so that what is held in it holds up whatever is behind it.
"""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from consumers.extraction_wiring import extraction_step
from consumers.recording_wiring import recorder, snapshot_step
from consumers.wiring import Installation, wire
from pipeline.extracting.step import ExtractionStep
from pipeline.models.choosing import model_from
from pipeline.models.own import OwnModels
from pipeline.settings import LLMSettings, Settings
from pipeline.stores.mongo import Database
from pipeline.stores.switches import MongoBreakers, MongoGuards
from schemas.extraction import Extraction, Outcome
from schemas.identity import SessionIdentity
from schemas.project import ProjectSettings
from tests import scripted_endpoint as scripted
from tests.faults.test_crash_points import home
from tests.faults.test_outages import PERMITS, Timeline
from tests.scripted_endpoint import Json, Reply, ScriptedEndpoint
from tests.virtual_time import VirtualTime

SESSIONS = 8
"""Of each project."""
KEY, NEW_KEY = "acme-key", "acme-new-key"
MINUTE_MS = 60_000
LLM: Json = {"provider": "openai", "model": "scripted-1", "api_key_secret": "ACME_API_KEY"}


class Town:
    """Two projects on one installation: `acme`, with a model of its own, and the default one."""

    def __init__(
        self, parts: Installation, timeline: Timeline, endpoint: ScriptedEndpoint, process: Any
    ) -> None:
        self.parts = parts
        self.timeline = timeline
        self.endpoint = endpoint
        self.process = process
        self.owns: list[OwnModels] = []

    def step(self, secrets: dict[str, str]) -> ExtractionStep:
        """Return the step of a process that was started with these variables."""
        own = OwnModels(self.parts.settings.llm, secrets)
        self.owns.append(own)
        return extraction_step(self.parts, self.process, own=own)

    async def configure(self, **block: Any) -> None:
        projects, now = self.parts.projects, datetime.now(UTC)
        state = await projects.state("acme")
        settings = ProjectSettings.model_validate(block)
        number = await projects.store("acme", settings, after=state.stored_revision, now=now)
        assert number is not None
        await projects.apply("acme", number, now=now)

    async def talk(self, sessions: int = SESSIONS) -> None:
        """Let people of both projects talk in turn, and cut what they say."""
        async with recorder(self.parts) as recording:
            for number in range(sessions):
                for project in ("acme", "default"):
                    whose = SessionIdentity(
                        project_id=project, user_id=f"user {number}", session_id="s"
                    )
                    said = {"role": "user", "content": f"I live in town {number}."}
                    await recording.record(whose, said)
                    await recording.close(whose)
        cut = snapshot_step(self.parts)
        for wake in self.timeline.wakes:
            await cut(wake)

    async def ledger(self, project: str) -> list[Extraction]:
        query = {"identity.project_id": project}
        ids = [one["_id"] async for one in self.parts.database["snapshots"].find(query)]
        found = [await self.parts.extractions.get(f"{each}:0") for each in ids]
        return [one for one in found if one is not None]

    async def outcomes(self, project: str) -> list[Outcome | None]:
        return [one.outcome for one in await self.ledger(project)]

    async def now_ms(self) -> int:
        return await self.parts.server_time.now_ms()


@pytest.fixture
async def town(db: Database, endpoint: ScriptedEndpoint) -> AsyncIterator[Town]:
    time = VirtualTime()
    timeline = Timeline(time=time)
    llm: Json = {
        "provider": "openai",
        "model": "scripted-1",
        "base_url": endpoint.url,
        "api_key": "process-key",
    }
    settings = Settings.model_validate(
        {"extraction": {"permits": PERMITS}, "llm": llm, "retry": {"age_cap": "3600"}}
    )
    parts = await wire(settings, db, timeline, server_time=time)
    process = model_from(LLMSettings.model_validate(llm))
    running = Town(parts, timeline, endpoint, process)
    endpoint.respond_with(home)
    yield running
    for own in running.owns:
        await own.aclose()
    await process.aclose()


def refuses(_request: Json) -> Reply:
    return scripted.status(401)


async def test_one_projects_revoked_key_stops_nobody_else_and_costs_what_was_in_flight(
    town: Town,
) -> None:
    """For thrice the age cap: what waits for its key neither ages nor becomes a letter."""
    await town.configure(extraction_llm=LLM)
    town.endpoint.respond_to(KEY, refuses)
    await town.talk()
    began_ms = await town.now_ms()
    step = town.step({"ACME_API_KEY": KEY})

    await town.timeline.deliver(step, until_ms=began_ms + MINUTE_MS)

    assert await town.outcomes("default") == [Outcome.RECORDS] * SESSIONS
    assert await town.outcomes("acme") == [None] * SESSIONS
    assert town.timeline.held == []

    await town.timeline.deliver(step, until_ms=began_ms + 180 * MINUTE_MS)
    waiting = await town.ledger("acme")

    assert [one.outcome for one in waiting] == [None] * SESSIONS
    assert await town.parts.letters.count() == 0
    assert sum(len(one.attempts) for one in waiting) <= PERMITS
    calls = [each for each in town.endpoint.requests if each.headers["authorization"].endswith(KEY)]
    assert len(calls) <= PERMITS + 3 * 6 + 1

    # Whoever fails now is tried again, since nothing of the three hours was age.
    failures = iter([scripted.status(503)] * 2)
    town.endpoint.respond_to(NEW_KEY, lambda request: next(failures, None) or home(request))
    mended = town.step({"ACME_API_KEY": NEW_KEY})
    await town.timeline.deliver(mended)

    assert await town.outcomes("acme") == [Outcome.RECORDS] * SESSIONS
    assert await town.parts.letters.count() == 0
    said_by = {each.headers["authorization"] for each in town.endpoint.requests}
    assert said_by == {f"Bearer {key}" for key in ("process-key", KEY, NEW_KEY)}


@pytest.mark.parametrize(
    ("llm", "reason"),
    [
        (LLM, "secret_missing"),
        ({"provider": "anthropic"}, "model_not_named"),
    ],
)
async def test_a_project_that_cannot_be_asked_for_waits_and_says_why(
    town: Town, llm: Json, reason: str
) -> None:
    await town.configure(extraction_llm=llm)
    await town.talk(sessions=2)
    began_ms = await town.now_ms()

    await town.timeline.deliver(town.step({}), until_ms=began_ms + 15 * MINUTE_MS)

    assert await town.outcomes("default") == [Outcome.RECORDS] * 2
    waiting = await town.ledger("acme")
    assert [one.outcome for one in waiting] == [None] * 2
    assert sum(len(one.attempts) for one in waiting) == 0
    (breaker,) = [each for each in await MongoBreakers(town.parts.database).all() if each.reason]
    assert breaker.reason == reason

    await town.configure(extraction_llm={})
    await town.timeline.deliver(town.step({}))

    assert await town.outcomes("acme") == [Outcome.RECORDS] * 2


async def test_words_that_make_the_model_answer_badly_hold_back_their_own_project_only(
    town: Town,
) -> None:
    sessions = 24

    def answer(request: Json) -> Reply:
        is_acme = "Say only Sorry." in request["messages"][0]["content"]
        return scripted.says("Sorry.") if is_acme else home(request)

    town.endpoint.respond_with(answer)
    await town.configure(extraction={"mission": "Say only Sorry."})
    await town.talk(sessions)
    began_ms = await town.now_ms()
    step = town.step({})

    await town.timeline.deliver(step, until_ms=began_ms + 10 * MINUTE_MS)

    assert await town.outcomes("default") == [Outcome.RECORDS] * sessions
    letters = await town.parts.letters.count()
    assert 0 < letters < sessions
    assert any(guard.tripped_at_ms for guard in await MongoGuards(town.parts.database).all())

    await town.configure(extraction={"mission": "What matters to towns."})
    await town.timeline.deliver(step)

    outcomes = await town.outcomes("acme")
    assert outcomes.count(Outcome.DEAD) == letters
    assert outcomes.count(Outcome.RECORDS) == sessions - letters
