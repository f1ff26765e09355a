"""Conversations, memories and the trail at the console: what rests on what, and for whose eyes."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from itertools import product

import pytest

from pipeline.stores.mongo import Database
from schemas.access import Role
from schemas.snapshot import Snapshot
from tests.console_world import Loopback, converse, extract, fact
from tests.integration.browsing import Browser, browser, read
from tests.integration.serving import Server, served
from tests.integration.signing import account
from tests.integration.test_extracting import ScriptedModel

SAID = (
    "Hello! I live in  Porto, by the river.",
    "Noted.",
    "No, wait: <b>I live in Braga</b> now.",
)
LEARNED = {
    "semantic": [
        fact(1, "I live in Porto"),
        fact(
            3,
            "I live in Braga",
            label="Braga",
            text="The user lives in Braga.",
            relation="replaces",
        ),
        fact(1, "I live in Paris"),
    ]
}


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A server with one conversation that was extracted."""

    server: Server
    broker: Loopback
    cut: Snapshot


@pytest.fixture
async def world(db: Database) -> AsyncGenerator[World]:
    broker = Loopback()
    async with served(db, publisher=broker) as server:
        cut = await converse(server.parts, broker, *SAID, session_id="evening", user_id="mara")
        await extract(server.parts, broker, ScriptedModel(LEARNED))
        yield World(server=server, broker=broker, cut=cut)


async def test_a_conversation_shows_in_its_turns_what_was_learned_from_which_words(
    world: World,
) -> None:
    async with browser(world.server) as person:
        found = await person.open("/sessions", user="mara")
        page = await person.open(f"/sessions/{world.cut.session}")
        later = await person.open(f"/sessions/{world.cut.session}", **{"from": 3})

    assert f"/console/sessions/{world.cut.session}" in found.text
    assert "<mark>I live in  Porto</mark>" in page.text
    assert "&lt;b&gt;<mark>I live in Braga</mark>&lt;/b&gt;" in page.text
    assert "The user lives in Braga." in read(page)
    assert "1 quote_not_found" in read(page)
    assert "Turns 1 to 3 records" in read(page)
    assert "m answered with 1 + 1 tokens" in read(page)
    assert "Hello!" not in later.text
    assert "Earlier" in read(later)


async def test_a_users_memory_shows_what_held_before_and_a_record_where_it_is_from(
    world: World,
) -> None:
    async with browser(world.server) as person:
        page = await person.open("/users", user="mara")
        nobody = await person.open("/users", user="bo")
        other_kind = await person.open("/users", user="mara", kind="episodic")
        (record_id,) = {
            part.partition('"')[0] for part in page.text.split("/console/users/records/")[1:]
        }
        record = await person.open(f"/users/records/{record_id}")

    shown = read(page)
    assert shown.index("The user lives in Braga.") < shown.index("The user lives in Porto.")
    assert "1 that held before" in shown
    assert "replaced" in shown
    assert f"/console/sessions/{world.cut.session}?from=3#turn-3" in page.text
    assert "0 memories" in read(nobody)
    assert "0 memories" in read(other_kind)
    assert "user/home" in read(record)
    assert "I live in Porto" in read(record)
    assert "m, v1" in read(record)


async def test_words_are_for_admins_of_the_same_project_and_organization(db: Database) -> None:
    broker = Loopback()
    async with served(db, auth="on", publisher=broker) as server:
        cuts = {
            (project, org): await converse(
                server.parts,
                broker,
                f"I live in {project} {org}.",
                session_id="s",
                project_id=project,
                **({} if org is None else {"org_id": org}),
            )
            for project, org in (("alpha", None), ("alpha", "north"), ("beta", None))
        }
        await extract(server.parts, broker, ScriptedModel({"semantic": [fact(1, "I live in")]}))
        may_read = {
            "admin": {("alpha", None), ("alpha", "north")},
            "north": {("alpha", "north")},
            "operator": set[tuple[str, str | None]](),
        }
        for name, seen in may_read.items():
            role = Role.OPERATOR if name == "operator" else Role.ADMIN
            org = "north" if name == "north" else None
            async with browser(server) as person:
                await person.sign_in(await account(server.parts, name, "alpha", role, org))
                for whose, cut in cuts.items():
                    page = await person.open(f"/sessions/{cut.session}")
                    shows = page.status_code == 200 and "I live in" in page.text
                    assert shows == (whose in seen), (name, whose)
                    record = await server.parts.assertions.of_extraction(f"{cut.snapshot_id}:0")
                    page = await person.open(f"/users/records/{record[0].slot}")
                    assert (page.status_code == 200) == (whose in seen), (name, whose)
                for path, project in product(("/sessions", "/users"), ("alpha", "beta", "")):
                    page = await person.open(path, user="mara", project=project)
                    assert (
                        page.text.count("/console/sessions/ses_")
                        == {
                            "/sessions": len(seen),
                            "/users": len(seen),
                        }[path]
                    ), (name, path, project)


async def test_the_trail_tells_who_did_what_in_ones_own_project(db: Database) -> None:
    async with served(db, auth="on") as server, browser(server) as operator:
        made = await account(server.parts, "op", "alpha", Role.OPERATOR)
        foreign = await account(server.parts, "other", "beta", Role.OPERATOR)
        await operator.sign_in(made)
        await operator.open("/replays/new", count="on")
        await operator.send("/replays/start")

        page = await operator.open("/audit")
        shown = read(page)
        only = read(await operator.open("/audit", act="replay.start", by=made.client_id))
        none = await operator.open("/audit", target=foreign.client_id)
        wrong = await operator.open("/audit", act="nonsense")

        started = shown.index(f"replay.start {made.client_id} rpl_")
        assert started < shown.index(f"login {made.client_id} {made.client_id}")
        assert foreign.client_id not in page.text
        assert "account.create" not in only.partition("Clear")[2]
        assert "replay.start" in only.partition("Clear")[2]
        assert "No act is so" in read(none)
        assert wrong.status_code == 422


async def empty(person: Browser, path: str) -> bool:
    return (await person.open(path)).status_code == 404


async def test_what_is_not_there_is_told(server: Server) -> None:
    async with browser(server) as person:
        for path in ("/sessions/ses_none", "/users/records/rec_none", "/replays/none", "/nowhere"):
            assert await empty(person, path), path
        assert "No conversation is so" in read(await person.open("/sessions", user="nobody"))
