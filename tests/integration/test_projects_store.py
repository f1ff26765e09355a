"""The settings of projects on a real database."""

import asyncio
from datetime import UTC, datetime

import pytest

from pipeline.stores import projects as store
from pipeline.stores.mongo import Database
from pipeline.stores.projects import MongoProjects
from schemas.memory import Kind
from schemas.project import ProjectSettings

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def enabling(*kinds: str) -> ProjectSettings:
    return ProjectSettings.model_validate({"extraction": {"enabled": list(kinds)}})


async def stored(projects: MongoProjects, settings: ProjectSettings, after: int) -> int:
    number = await projects.store("p", settings, after=after, now=NOW)
    assert number is not None
    return number


async def test_what_is_stored_does_not_count_until_it_is_applied(db: Database) -> None:
    projects = MongoProjects(db)

    number = await stored(projects, enabling("semantic"), 0)
    assert (await projects.applied("p")).settings.kinds == tuple(Kind)
    await projects.apply("p", number, now=NOW)

    applied = await projects.applied("p")
    assert (applied.number, applied.settings.kinds) == (number, (Kind.SEMANTIC,))
    assert (await projects.applied("q")).number == 0


async def test_every_revision_stays_as_it_was(db: Database) -> None:
    projects = MongoProjects(db)
    first = await stored(projects, enabling("semantic"), 0)
    second = await stored(projects, enabling(), first)

    fresh = MongoProjects(db)
    kept = [await fresh.revision("p", number) for number in (first, second)]

    assert [each.settings.kinds for each in kept if each] == [(Kind.SEMANTIC,), ()]
    assert await fresh.revision("p", second + 1) is None
    state = await fresh.state("p")
    assert (state.stored_revision, state.applied_revision) == (second, 0)
    assert [each.project_id for each in await fresh.all()] == ["p"]


async def test_of_two_that_store_at_once_one_is_told_to_look_again(db: Database) -> None:
    projects = MongoProjects(db)

    results = await asyncio.gather(
        *(
            projects.store("p", enabling(kind), after=0, now=NOW)
            for kind in ("semantic", "episodic")
        )
    )
    (won,) = [number for number in results if number is not None]

    assert (await projects.state("p")).stored_revision == won
    assert await projects.store("p", enabling(), after=won + 1, now=NOW) is None


async def test_what_was_overtaken_is_not_applied(db: Database) -> None:
    """Who read an older revision and is slow must not undo what somebody applied meanwhile."""
    projects = MongoProjects(db)
    first = await stored(projects, enabling("semantic"), 0)
    second = await stored(projects, enabling(), first)
    assert await projects.apply("p", second, now=NOW)

    assert not await projects.apply("p", first, now=NOW)

    assert (await projects.state("p")).applied_revision == second


async def test_keys_of_a_newer_version_are_left_out_and_keep_nobody_from_working(
    db: Database,
) -> None:
    newer = {
        "added": 1,
        "extraction": {"enabled": ["semantic"], "also_added": {"x": 1}},
        "custom_memory_types": [{"name": "boat", "colour": "red"}],
    }
    await db["project_revisions"].insert_one({"_id": "3:p", "project_id": "p", "settings": newer})
    await db["projects"].insert_one({"_id": "p", "stored_revision": 3, "applied_revision": 3})

    applied = await MongoProjects(db).applied("p")

    assert applied.settings.kinds == (Kind.SEMANTIC,)
    assert applied.settings.custom_type("boat") is not None


async def test_another_process_is_felt_when_what_is_known_is_no_longer_fresh(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, others = MongoProjects(db), MongoProjects(db)
    assert (await mine.applied("p")).number == 0
    number = await stored(others, enabling(), 0)
    await others.apply("p", number, now=NOW)

    assert (await mine.applied("p")).number == 0
    monkeypatch.setattr(store, "FRESH_SECONDS", 0.0)
    assert (await mine.applied("p")).number == number
