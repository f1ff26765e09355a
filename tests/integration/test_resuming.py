"""An operator sees what is held back and why, and lets it go on by the name it is shown under."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from consumers.operating import switch_desk
from consumers.status import held_back
from consumers.wiring import Installation, wire
from pipeline.errors import NotHeldError
from pipeline.failing import breaking, guarding
from pipeline.failing.breaking import Cooldowns, Free, Trial
from pipeline.failing.resuming import resume_breaker
from pipeline.settings import Settings
from pipeline.stores.backlog import read_backlog
from pipeline.stores.mongo import Database
from pipeline.stores.operator_actions import MongoOperatorActions
from pipeline.stores.switches import MongoBreakers, MongoGuards
from schemas.failure import Failure, FailureClass
from schemas.operator_action import Act
from tests.faults.test_outages import Timeline
from tests.integration.test_command_line import environment, run
from tests.virtual_time import VirtualTime

__all__ = ["environment"]

COOLDOWNS = Cooldowns(passing=(), personal=(Settings().retry.age_cap,))
TARGET, VERSION = "openai:m:crd_1", "extraction:v1:live"


@pytest.fixture
async def parts(db: Database) -> Installation:
    return await wire(Settings(), db, Timeline(time=VirtualTime()))


async def broken(parts: Installation) -> None:
    """Open a breaker and trip a guard."""
    now_ms = await parts.server_time.now_ms()
    breakers, guards = MongoBreakers(parts.database), MongoGuards(parts.database)
    closed = await breakers.get(TARGET)
    failure = Failure(failure_class=FailureClass.CREDENTIALS, reason="http_401", exception="x")
    opened = breaking.failed(
        closed, Free(), failure, extraction_id="e", now_ms=now_ms, cooldowns=COOLDOWNS
    )
    assert await breakers.swap(closed, opened)
    fresh = guard = await guards.get(VERSION)
    while guard.tripped_at_ms is None:
        guard = guarding.with_letter(guard, session=str(guard.row), reason="r", now_ms=now_ms)
    assert await guards.swap(fresh, guard)


async def test_a_breaker_that_nobody_tries_any_more_alerts_nobody(parts: Installation) -> None:
    """As that of a key that was replaced, for ever."""
    await broken(parts)
    time = VirtualTime()
    assert (await read_backlog(parts.database, time)).breakers == {"open": 1}

    time.passes(Settings().retry.age_cap + timedelta(minutes=5))
    assert (await read_backlog(parts.database, time)).breakers == {"open": 1}

    time.passes(timedelta(minutes=15))
    assert (await read_backlog(parts.database, time)).breakers == {"trying": 1}


async def test_a_vendor_that_asked_for_time_is_shown_until_it_had_it(parts: Installation) -> None:
    now_ms = await parts.server_time.now_ms()
    breakers = MongoBreakers(parts.database)
    fresh = await breakers.get(TARGET)
    slow = fresh.model_copy(update={"rev": 1, "slow_until_ms": now_ms + 60_000})
    assert await breakers.swap(fresh, slow)

    (shown,) = await held_back(parts)
    assert (shown["name"], shown["reason"]) == (TARGET, "http_429")
    assert (shown["state"], shown["next_try_ms"]) == ("slowed down", now_ms + 60_000)

    await resume_breaker(TARGET, breakers, parts.server_time)
    assert await held_back(parts) == []


async def test_what_is_held_back_is_shown_with_its_reason_and_resumed_by_its_name(
    parts: Installation, mongo_uri: str, environment: dict[str, str], tmp_path: Path
) -> None:
    await broken(parts)
    names = [(one["name"], one["reason"]) for one in await held_back(parts)]
    assert names == [(TARGET, "http_401"), (VERSION, "r")]
    here = environment | {
        "AFTERTURN_MONGO__URI": mongo_uri,
        "AFTERTURN_MONGO__DATABASE": parts.database.name,
    }

    def resumed(name: str) -> dict[str, Any]:
        finished = run(here, "resume", name, "--data-dir", tmp_path, "--json")
        assert finished.returncode == (1 if name == "nonsense" else 0), finished.stderr
        return json.loads(finished.stdout.splitlines()[-1])

    assert [one["name"] for one in resumed("nonsense")["held_back"]] == [TARGET, VERSION]
    assert resumed(TARGET) == {"resumed": TARGET}
    assert resumed(VERSION) == {"resumed": VERSION}

    breaker = await MongoBreakers(parts.database).get(TARGET)
    now_ms = await parts.server_time.now_ms()
    assert isinstance(breaking.admit(breaker, now_ms=now_ms, wave_ms=1)[0], Trial)
    assert (await MongoGuards(parts.database).get(VERSION)).tripped_at_ms is None
    trail = MongoOperatorActions(parts.database)
    acts = [act for name in (TARGET, VERSION, "nonsense") for act in await trail.of_target(name)]
    assert [act.act for act in acts] == [Act.BREAKER_RESUME, Act.GUARD_RESUME]
    assert all(act.by.startswith("command line: ") for act in acts)


async def test_what_holds_nothing_back_is_not_resumed_and_of_that_nothing_is_noted(
    parts: Installation,
) -> None:
    with pytest.raises(NotHeldError, match="look at it again"):
        await switch_desk(parts, by="an operator").resume(TARGET)

    assert await MongoOperatorActions(parts.database).of_target(TARGET) == []
