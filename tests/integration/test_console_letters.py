"""Letters at the console: found, understood and put right, by one operator or two at once."""

import asyncio
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import httpx
import pytest

from api.console.session import CONSOLE, NOBODY
from consumers.operating import letter_desk
from consumers.wiring import Installation
from pipeline.errors import AnswerError
from pipeline.ports.letters import LetterQuery
from pipeline.stores.mongo import Database
from pipeline.stores.operator_actions import MongoOperatorActions
from schemas.access import Role
from schemas.failure import FailureClass, Letter, LetterState
from schemas.operator_action import Act
from tests.console_world import Loopback, converse, extract, fact
from tests.integration.browsing import Browser, browser, read
from tests.integration.serving import Server, served
from tests.integration.signing import account
from tests.integration.test_extracting import ScriptedModel

REFUSED: Final = AnswerError(FailureClass.REFUSED, "refusal", request_id="req-7")
FILTERED: Final = AnswerError(FailureClass.FILTERED, "content_filter")
HOSTILE: Final = (
    "<script>document.title='owned'</script><img src=x onerror=alert(1)>"
    " javascript:alert(1) \x1b[2J\x1b]0;owned\x07 \u202egnp.exe\u202c \u2066x\u2069 \u061c end"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A server, and an extraction that shares its database and fails as it is told."""

    server: Server
    parts: Installation
    broker: Loopback

    async def dead(self, session_id: str, error: AnswerError = REFUSED, **whose: str) -> Letter:
        """Return the letter of a new conversation whose model answered with an error."""
        known = {one.letter_id for one in await self.letters()}
        said = whose.pop("said", "I live in Porto.")
        await converse(self.parts, self.broker, said, "Noted.", session_id=session_id, **whose)
        await extract(self.parts, self.broker, ScriptedModel(error))
        (letter,) = [one for one in await self.letters() if one.letter_id not in known]
        return letter

    async def letters(self) -> list[Letter]:
        """Return all letters."""
        return await self.parts.letters.matching(LetterQuery())

    async def states(self) -> list[LetterState]:
        """Return how they stand, the one that died first last."""
        return [one.state for one in await self.letters()]


@pytest.fixture
async def world(db: Database) -> AsyncGenerator[World]:
    broker = Loopback()
    async with served(db, publisher=broker) as server:
        yield World(server=server, parts=server.parts, broker=broker)


@pytest.fixture
async def person(world: World) -> AsyncGenerator[Browser]:
    async with browser(world.server) as opened:
        yield opened


def links(page: httpx.Response) -> list[str]:
    return re.findall(r'href="([^"]+)"', page.text)


async def test_from_the_overview_to_the_cause_of_the_newest_kind_in_three_clicks(
    world: World, person: Browser
) -> None:
    await world.dead("old")
    newest = await world.dead("new", FILTERED)

    async def follow(page: httpx.Response, ending: str) -> httpx.Response:
        (way, *_) = (each for each in links(page) if ending in each)
        return await person.open(way.replace("&amp;", "&").removeprefix(CONSOLE))

    overview = await person.open("/")
    (first, *_) = (each for each in links(overview) if "group=" in each)
    assert newest.fingerprint in first
    kind = await follow(overview, f"group={newest.fingerprint}")
    letter = await follow(kind, f"/letters/{newest.letter_id}")

    assert "content_filter" in read(kind)
    assert "Redrive with another model or without that turn" in read(letter)
    assert "pipeline.errors.AnswerError" in read(letter)
    assert "I live in Porto." in read(letter)


async def test_a_letter_tells_all_that_is_known_of_it(world: World, person: Browser) -> None:
    letter = await world.dead("s")

    page = read(await person.open(f"/letters/{letter.letter_id}"))

    assert letter.original is not None
    for told in (
        letter.letter_id,
        letter.fingerprint,
        letter.original.topic,
        f"partition 0, offset {letter.original.offset}",
        str(letter.session),
        str(letter.extraction_id),
        "request of the vendor: req-7",
        "1 attempt",
        "ce_id",
        "2 turns",
        "I live in Porto.",
        "Noted.",
    ):
        assert told in page, told


FILTERS: Final[list[tuple[dict[str, str], int]]] = [
    ({}, 2),
    ({"class": "content.refused"}, 1),
    ({"reason": "content_filter"}, 1),
    ({"reason": " "}, 2),
    ({"state": "resolved"}, 0),
    ({"state": "any", "disposition": "content"}, 2),
    ({"stage": "snapshot"}, 0),
    ({"project": "beta"}, 1),
    ({"model": "model-1"}, 2),
    ({"topic": "afterturn.snapshot.ready.v1"}, 2),
    ({"since": "2020-01-01T00:00"}, 2),
    ({"until": "2020-01-01T00:00:00Z"}, 0),
    ({"deaths": "2"}, 0),
    ({"page": "2"}, 0),
]
"""What an address asks for, and how many letters of two that finds."""


async def test_every_filter_is_in_the_address(world: World, person: Browser) -> None:
    await world.dead("a")
    await world.dead("b", FILTERED, project_id="beta")

    for asked, found in FILTERS:
        page = await person.open("/letters", **asked)
        assert page.text.count('name="id"') == found, asked


async def test_a_filter_that_can_not_be_meant_is_named_and_not_repeated(person: Browser) -> None:
    for name, value in (
        ("class", "nonsense"),
        ("since", "soon"),
        ("deaths", "-"),
        ("state", "nonsense"),
        ("page", "0"),
    ):
        page = await person.open("/letters", **{name: value})
        assert page.status_code == 422
        assert f"{name.capitalize()}: " in read(page)
        assert "nonsense" not in page.text


async def test_what_a_letter_is_about_is_sent_back_with_a_change_and_noted_before(
    world: World, person: Browser
) -> None:
    letter = await world.dead("s")
    await person.open(f"/letters/{letter.letter_id}")

    sent = await person.send(
        f"/letters/{letter.letter_id}/act", act="redrive", seen="dead:1", leave_out="2", split=""
    )
    model = ScriptedModel({"semantic": [fact(1, "I live in Porto.")]})
    await extract(world.parts, world.broker, model)

    assert "It is sent back" in read(sent)
    assert [turn.seq for turn in model.requests[0].turns] == [1]
    assert await world.states() == [LetterState.RESOLVED]
    (act,) = await MongoOperatorActions(world.parts.database).of_target(letter.letter_id)
    assert (act.act, act.by) == (Act.LETTER_REDRIVE, NOBODY)
    assert "letter.redrive" in read(await person.open(f"/letters/{letter.letter_id}"))


async def test_of_two_operators_at_once_one_does_it_and_the_other_is_told(
    world: World, person: Browser
) -> None:
    letter = await world.dead("s")
    async with browser(world.server) as other:
        for one in (person, other):
            await one.open(f"/letters/{letter.letter_id}")
        answers = await asyncio.gather(
            *(
                one.send(
                    f"/letters/{letter.letter_id}/act",
                    act="discard",
                    seen="dead:1",
                    discard_reason="not_needed",
                )
                for one in (person, other)
            )
        )

    assert sorted(each.status_code for each in answers) == [200, 409]
    (told,) = (read(each) for each in answers if each.status_code == 409)
    assert "somebody has dealt with it" in told or "is not dead any more" in told
    assert await world.states() == [LetterState.DISCARDED]


async def test_what_died_again_meanwhile_is_not_sent_back_by_who_has_not_seen_that(
    world: World, person: Browser
) -> None:
    letter = await world.dead("s")
    await person.open(f"/letters/{letter.letter_id}")
    await letter_desk(world.parts, by="another").redrive(letter)
    await extract(world.parts, world.broker, ScriptedModel(REFUSED))

    refused = await person.send(f"/letters/{letter.letter_id}/act", act="redrive", seen="dead:1")

    assert refused.status_code == 409
    assert "died 2 times" in read(refused)
    assert await world.states() == [LetterState.DEAD]


async def test_a_kind_is_planned_then_sent_back_the_first_one_before_the_others(
    world: World, person: Browser
) -> None:
    dead = [await world.dead(f"s{n}") for n in range(3)]
    await world.dead("other", FILTERED)
    group = dead[0].fingerprint

    plan = await person.open("/letters/plan", act="redrive", group=group)
    begun = await person.send(
        "/letters/act", act="redrive", group=group, seen="3", rate="1000", canary="1"
    )
    run = begun.url.path.removeprefix(CONSOLE)
    waiting = await world.states()
    good = ScriptedModel({"semantic": [fact(1, "I live in Porto.")]})
    async with asyncio.timeout(30):
        while "It ended" not in read(page := await person.open(run)):
            await extract(world.parts, world.broker, good)
    await extract(world.parts, world.broker, good)

    assert "Redrive 3 letters?" in read(plan)
    assert "Nothing is done yet" in read(plan)
    assert "1 of 3 sent back" in read(begun)
    assert waiting.count(LetterState.WAITING) == 1
    assert "3 of 3 sent back" in read(page)
    assert (await world.states()).count(LetterState.RESOLVED) == 3
    assert (await world.states()).count(LetterState.DEAD) == 1


async def test_where_the_first_dies_again_the_rest_is_left_and_a_run_can_be_stopped(
    world: World, person: Browser
) -> None:
    for n in range(2):
        await world.dead(f"s{n}")
    await person.open("/letters/plan", act="redrive")
    begun = await person.send("/letters/act", act="redrive", seen="2")
    run = begun.url.path.removeprefix(CONSOLE)
    async with asyncio.timeout(30):
        while "It stopped" not in read(page := await person.open(run)):
            await extract(world.parts, world.broker, ScriptedModel(REFUSED))
    assert "1 of 1 that ended died again" in read(page)

    await person.open("/letters/plan", act="redrive")
    begun = await person.send("/letters/act", act="redrive", seen="2")
    run = begun.url.path.removeprefix(CONSOLE)
    stopped = await person.send(f"{run}/stop")

    assert f"{NOBODY} stopped it" in read(stopped)
    assert sorted(await world.states()) == [LetterState.DEAD, LetterState.WAITING]


async def test_chosen_ones_are_discarded_and_restored_and_more_than_was_seen_is_not_touched(
    world: World, person: Browser
) -> None:
    first, second, third = [await world.dead(f"s{n}") for n in range(3)]
    chosen = [first.letter_id, second.letter_id]

    await person.open("/letters/plan", act="discard", id=chosen)
    refused = await person.send("/letters/act", act="discard", seen="2", discard_reason="duplicate")
    reasonless = await person.send("/letters/act", act="discard", id=chosen, seen="2")
    discarded = await person.send(
        "/letters/act", act="discard", id=chosen, seen="2", discard_reason="duplicate"
    )
    again = await person.send(
        "/letters/act", act="discard", id=chosen, seen="2", discard_reason="duplicate"
    )
    plan = await person.open("/letters/plan", act="restore", state="discarded")
    restored = await person.send("/letters/act", act="restore", seen="2")

    assert (refused.status_code, reasonless.status_code) == (409, 422)
    assert "you saw 2 letters, and now there are 3" in read(refused).lower()
    assert "2 of 2 discarded" in read(discarded)
    assert again.status_code == 409
    assert "Restore 2 letters?" in read(plan)
    assert "2 of 2 restored" in read(restored)
    assert await world.states() == [LetterState.DEAD] * 3
    assert third.letter_id not in chosen


async def test_what_somebody_wrote_is_shown_and_does_nothing(world: World, person: Browser) -> None:
    letter = await world.dead("s", said=HOSTILE, user_id="<script>alert(1)</script>")

    page = await person.open(f"/letters/{letter.letter_id}")

    assert "<script" not in page.text
    assert "<img" not in page.text
    assert "&lt;script&gt;document.title" in page.text
    assert not [each for each in links(page) if not each.startswith(CONSOLE) and each != "#main"]
    for character in "\x1b\x07\u202e\u202c\u2066\u2069\u061c":
        assert character not in page.text
    assert "[U+202E]gnp.exe" in page.text
    assert "\u241b[2J" in page.text
    for address in (
        f"/letters/{HOSTILE[:40]}",
        "/letters?reason=%3Cscript%3E%22%27%3E",
        "/letters/plan?act=%3Cscript%3E",
        "/?done=%3Cscript%3E",
    ):
        assert "<script" not in (await person.open(address)).text


async def test_no_other_projects_letters_are_seen_or_touched(db: Database) -> None:
    broker = Loopback()
    async with served(db, auth="on", publisher=broker) as server, browser(server) as operator:
        world = World(server=server, parts=server.parts, broker=broker)
        own = await world.dead("a", project_id="alpha")
        foreign = await world.dead("b", project_id="beta")
        await operator.sign_in(await account(server.parts, "op", "alpha", Role.OPERATOR))

        listed = await operator.open("/letters", state="any", project="beta")
        everything = await operator.open("/letters", state="any")
        shown = await operator.open(f"/letters/{own.letter_id}")
        hidden = await operator.open(f"/letters/{foreign.letter_id}")
        acts = [
            await operator.send(f"/letters/{foreign.letter_id}/act", act="redrive", seen="dead:1"),
            await operator.send("/letters/act", act="redrive", id=foreign.letter_id, seen="1"),
            await operator.send("/letters/act", act="redrive", project="beta", seen="9"),
        ]

        assert foreign.letter_id not in listed.text + everything.text
        assert own.letter_id in everything.text
        assert hidden.status_code == 404
        assert [each.status_code for each in acts] == [404, 404, 409]
        assert await world.states() == [LetterState.DEAD] * 2
        # What was said is for who may read words, and an operator need not.
        assert "I live in Porto." not in shown.text
        assert "includes words" in read(shown)


async def test_letters_have_the_same_address_after_a_while(world: World, person: Browser) -> None:
    """What is not there any more, or never was, is told by its own page."""
    for path in ("/letters/nothing", "/letters/runs/nothing", "/letters/nothing/act"):
        page = await person.open(path)
        assert page.status_code == (405 if path.endswith("act") else 404)
        assert urlsplit(str(page.url)).path == f"{CONSOLE}{path}"
