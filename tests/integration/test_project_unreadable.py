"""Settings that other hands have broken hold up their own project, and nobody beside it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from consumers.extraction_wiring import extraction_step
from consumers.wiring import Installation
from pipeline.cutting import rules_of
from pipeline.errors import SettingsUnreadableError
from pipeline.settings import SnapshotSettings
from pipeline.stores.mongo import Database
from pipeline.stores.projects import MongoProjects
from schemas.extraction import Outcome
from schemas.project import ProjectSettings
from tests.builders import IDENTITY
from tests.integration.serving import Server
from tests.integration.test_extracting import (
    Broker,
    ScriptedModel,
    announced,
    broker,
    home,
    ledger_of,
    parts,
    run,
)

__all__ = ["broker", "parts"]

FOUND: dict[str, Any] = {"semantic": [home(1)], "summary": ""}


async def applied(projects: MongoProjects, project: str) -> None:
    now = datetime.now(UTC)
    settings = ProjectSettings.model_validate({"extraction": {"mission": "Boats."}})
    number = await projects.store(project, settings, after=0, now=now)
    assert number is not None
    await projects.apply(project, number, now=now)


@pytest.mark.parametrize(
    ("collection", "update"),
    [
        ("project_revisions", {"$set": {"settings.extraction.enabled": "semantic"}}),
        ("project_revisions", {"$set": {"settings": [1]}}),
        ("project_revisions", {"$unset": {"settings": ""}}),
        ("projects", {"$set": {"applied_revision": "one"}}),
        ("projects", {"$set": {"applied_revision": 7}}),
    ],
    ids=["kinds", "list", "nothing", "no number", "a revision there is not"],
)
async def test_its_extractions_are_parked_and_hold_no_partition(
    parts: Installation,
    broker: Broker,
    db: Database,
    collection: str,
    update: dict[str, Any],
) -> None:
    await announced(parts, broker, "I live in Porto.")
    await applied(parts.projects, IDENTITY.project_id)
    as_stored = await db[collection].find_one({})
    assert as_stored is not None
    await db[collection].update_one({}, update)
    model = ScriptedModel(FOUND)

    # Each returns: to find out, and at the breaker that is open since.
    for _ in range(2):
        await extraction_step(parts, model)(broker.waiting.popleft())

    waiting = await ledger_of(parts)
    (breaker,) = await db["breakers"].find({}).to_list()
    assert (waiting.outcome, waiting.attempts, model.requests) == (None, (), [])
    assert breaker["reason"] == "settings_unreadable"

    await db[collection].replace_one({}, as_stored)
    assert (await run(parts, broker, model)).outcome is Outcome.RECORDS


async def test_its_sessions_are_cut_as_the_process_cuts(db: Database) -> None:
    await db["projects"].insert_one({"_id": "p", "applied_revision": 3})
    projects, own = MongoProjects(db), SnapshotSettings(stale=timedelta(minutes=7))

    with pytest.raises(SettingsUnreadableError, match="3:p"):
        await projects.applied("p")
    assert await rules_of("p", own, projects) == own


async def test_a_client_is_told_that_an_operator_must_mend_them(
    server: Server, db: Database
) -> None:
    await db["projects"].insert_one({"_id": "p", "applied_revision": 3})
    asked = {"query": "q", "user_id": "mara", "sources": [{"source": "semantic"}]}
    async with httpx.AsyncClient(
        base_url=f"{server.url}/api/v1/projects/p/memory", timeout=30
    ) as http:
        answer = await http.post("/retrieval/context-from-sources", json=asked)

    assert (answer.status_code, answer.json()["code"]) == (503, "UNAVAILABLE")
    assert "operator" in answer.json()["error"]
