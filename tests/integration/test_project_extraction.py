"""Extraction by the settings of projects, on a real database, and what a change of them does."""

from datetime import UTC, datetime
from typing import Any

import pytest

from consumers.extraction_wiring import extraction_step
from consumers.wiring import Installation, wire
from pipeline.errors import AnswerError
from pipeline.settings import Settings
from pipeline.stores.mongo import Database
from schemas.extraction import Outcome, PartState
from schemas.failure import FailureClass
from schemas.memory import Kind
from schemas.project import ProjectSettings
from tests.builders import IDENTITY
from tests.integration.test_extracting import (
    Broker,
    ScriptedModel,
    announced,
    home,
    ledger_of,
    run,
)

TOO_LONG = AnswerError(FailureClass.CONTEXT_LENGTH, "context_length_exceeded")
RESET = ConnectionResetError("reset")
FOUND: dict[str, Any] = {"semantic": [home(1)], "taxonomic": [{}], "summary": ""}


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
async def parts(db: Database, broker: Broker) -> Installation:
    return await wire(Settings(), db, broker)


async def applied(parts: Installation, **extraction: Any) -> int:
    """Let the project of the builders' sessions have settings; return their revision."""
    project = IDENTITY.project_id
    settings = ProjectSettings.model_validate({"extraction": extraction})
    state = await parts.projects.state(project)
    now = datetime.now(UTC)
    number = await parts.projects.store(project, settings, after=state.stored_revision, now=now)
    assert number is not None
    await parts.projects.apply(project, number, now=now)
    return number


async def test_a_project_that_enables_nothing_asks_nobody_and_is_settled(
    parts: Installation, broker: Broker
) -> None:
    cut = await announced(parts, broker, "I live in Porto.")
    await applied(parts, enabled=[])
    model = ScriptedModel(FOUND)

    settled = await run(parts, broker, model)

    assert settled.outcome is Outcome.NOT_ASKED
    assert model.requests == []
    kept = await parts.snapshots.get(cut.snapshot_id)
    assert kept is not None
    assert kept.settled
    assert await parts.letters.count() == 0


async def test_only_what_is_enabled_is_asked_for_and_kept(
    parts: Installation, broker: Broker
) -> None:
    await announced(parts, broker, "I live in Porto.")
    await applied(parts, enabled=["semantic"])
    model = ScriptedModel(FOUND)

    settled = await run(parts, broker, model)

    assert [request.kinds for request in model.requests] == [(Kind.SEMANTIC,)]
    assert settled.parts[0].kinds == (Kind.SEMANTIC,)
    assert settled.outcome is Outcome.RECORDS
    assert [(item.kind, item.reason) for item in settled.parts[0].set_aside] == [
        (Kind.TAXONOMIC, "not_asked_for")
    ]


async def test_words_of_a_project_reach_the_model_and_make_a_version_of_their_own(
    parts: Installation, broker: Broker
) -> None:
    await announced(parts, broker, "I live in Porto.")
    word = {"name": "ticket:*", "description": "A ticket of theirs."}
    number = await applied(parts, mission="Only what concerns tickets.", vocabulary=[word])
    model = ScriptedModel(FOUND)

    settled = await run(parts, broker, model)

    (request,) = model.requests
    assert request.instructions.mission == "Only what concerns tickets."
    assert [each.name for each in request.instructions.vocabulary] == ["ticket:*"]
    assert settled.version not in (None, model.version)
    assert settled.revision == number


async def test_what_was_begun_is_finished_under_its_own_words_after_a_change(
    parts: Installation, broker: Broker
) -> None:
    await announced(parts, broker, "I live in Porto.", "I like tea.")
    first = await applied(parts, mission="The first mission.")
    model = ScriptedModel(TOO_LONG, FOUND, RESET, {"semantic": []})
    step = extraction_step(parts, model)
    await step(broker.waiting.popleft())
    begun = await ledger_of(parts)
    assert [part.state for part in begun.parts] == [
        PartState.SPLIT,
        PartState.ANSWERED,
        PartState.WAITING,
    ]

    second = await applied(parts, mission="The second mission.", enabled=["episodic"])
    settled = await run(parts, broker, model)

    missions = [request.instructions.mission for request in model.requests]
    assert missions == ["The first mission."] * 4
    assert model.requests[-1].kinds == tuple(Kind)
    versions = [part.version for part in settled.parts if part.reply]
    assert versions == [settled.version] * 2
    assert (settled.revision, settled.outcome) == (first, Outcome.RECORDS)
    assert second != first


async def test_a_mission_changed_before_the_first_answer_is_the_new_one(
    parts: Installation, broker: Broker
) -> None:
    await announced(parts, broker, "I live in Porto.")
    await applied(parts, mission="The first mission.")
    model = ScriptedModel(RESET, FOUND)
    await extraction_step(parts, model)(broker.waiting.popleft())

    second = await applied(parts, mission="The second mission.")
    settled = await run(parts, broker, model)

    missions = [request.instructions.mission for request in model.requests]
    assert missions == ["The first mission.", "The second mission."]
    assert settled.revision == second


async def test_kinds_disabled_before_the_first_answer_are_asked_for_no_more(
    parts: Installation, broker: Broker
) -> None:
    await announced(parts, broker, "I live in Porto.")
    model = ScriptedModel(RESET, FOUND)
    await extraction_step(parts, model)(broker.waiting.popleft())

    await applied(parts, enabled=[])
    settled = await run(parts, broker, model)

    assert settled.outcome is Outcome.NOT_ASKED
    assert len(model.requests) == 1


async def test_kinds_disabled_after_the_first_answer_take_nothing_from_what_was_begun(
    parts: Installation, broker: Broker
) -> None:
    await announced(parts, broker, "I live in Porto.", "I like tea.")
    model = ScriptedModel(TOO_LONG, FOUND, RESET, {"semantic": []})
    await extraction_step(parts, model)(broker.waiting.popleft())

    await applied(parts, enabled=[])
    settled = await run(parts, broker, model)

    assert settled.outcome is Outcome.RECORDS
    assert len(model.requests) == 4


async def test_where_projects_opt_in_those_without_settings_are_not_extracted(
    parts: Installation, broker: Broker
) -> None:
    extraction = parts.settings.extraction.model_copy(update={"opt_in": True})
    settings = parts.settings.model_copy(update={"extraction": extraction})
    opting = await wire(settings, parts.database, broker)
    await announced(opting, broker, "I live in Porto.")
    model = ScriptedModel(FOUND)

    assert (await run(opting, broker, model)).outcome is Outcome.NOT_ASKED
    assert model.requests == []

    await parts.database["extractions"].delete_many({})
    await applied(opting)
    broker.waiting.clear()
    await parts.database["snapshots"].delete_many({})
    await parts.database["turns"].delete_many({})
    await announced(opting, broker, "I live in Porto.")

    assert (await run(opting, broker, model)).outcome is Outcome.RECORDS
