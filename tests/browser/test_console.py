"""The operator's day in a real Chromium: each flow from the page, and what was seen is kept."""

import asyncio
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final

import pytest
from playwright.async_api import BrowserContext, Dialog, Page, expect

from pipeline.errors import AnswerError
from pipeline.failing import guarding
from pipeline.ports.letters import LetterQuery
from pipeline.stores.mongo import Database
from pipeline.stores.operator_actions import MongoOperatorActions
from pipeline.stores.switches import MongoGuards
from schemas.access import Role
from schemas.failure import FailureClass, Letter, LetterState
from schemas.operator_action import Act
from tests.browser.conftest import Shoot
from tests.console_world import Loopback, converse, extract, fact
from tests.integration.serving import Server, served
from tests.integration.signing import account
from tests.integration.test_extracting import ScriptedModel

pytestmark = pytest.mark.browser

HOSTILE: Final = (
    "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    "<a href=\"javascript:document.title='owned'\">javascript:document.title='owned'</a>"
    "<style>body{display:none}</style> \x1b[2J \u202egnp.exe\u202c I live in Porto."
)
GOOD: Final = {"semantic": [fact(1, "I live in Porto")]}
KINDS: Final = {
    "refusal": FailureClass.REFUSED,
    "content_filter": FailureClass.FILTERED,
    "two_tool_calls": FailureClass.INVALID_OUTPUT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A server, and what fails and succeeds behind it."""

    server: Server
    broker: Loopback

    async def dead(self, session_id: str, reason: str, *said: str, user: str = "mara") -> None:
        """Let the model of a conversation fail."""
        parts = self.server.parts
        said = said or ("I live in Porto.", "Lovely.", "And I like tea.")
        await converse(parts, self.broker, *said, session_id=session_id, user_id=user)
        error = AnswerError(KINDS[reason], reason, request_id=f"req_{session_id}")
        await extract(parts, self.broker, ScriptedModel(error))

    async def good(self, session_id: str, *said: str) -> None:
        """Let one be extracted."""
        await converse(self.server.parts, self.broker, *said, session_id=session_id)
        await extract(self.server.parts, self.broker, ScriptedModel(GOOD))

    async def letters(self) -> list[Letter]:
        """Return all letters."""
        return await self.server.parts.letters.matching(LetterQuery())

    @property
    def console(self) -> str:
        """Where the console is."""
        return f"{self.server.url}/console"


@pytest.fixture
async def world(db: Database) -> AsyncGenerator[World]:
    broker = Loopback()
    async with served(db, publisher=broker) as server:
        yield World(server=server, broker=broker)


async def the_heading(page: Page, text: str | re.Pattern[str]) -> None:
    await expect(page.get_by_role("heading", level=1)).to_have_text(text)


async def test_from_what_is_wrong_to_its_cause_and_back_to_all_is_well(
    world: World, chromium: BrowserContext, shoot: Shoot
) -> None:
    """Three clicks to the cause of the newest group; then each group is cleared from the page."""
    for n in range(3):
        await world.dead(f"old-{n}", "refusal")
    await world.dead("new", "content_filter")
    await world.good("good", "I live in Porto.", "Lovely.")
    page = await chromium.new_page()

    await page.goto(f"{world.console}/")
    await shoot(page, "overview")
    await page.get_by_role("link", name="1 letter: content_filter").click()
    await page.get_by_role("link", name=re.compile("^ltr_")).click()
    await the_heading(page, re.compile("content_filter"))
    await expect(page.get_by_text("req_new")).to_be_visible()
    await expect(page.get_by_text("And I like tea.")).to_be_visible()
    await shoot(page, "letter")
    await page.get_by_label("Why").select_option("refused_for_good")
    await page.get_by_role("button", name="Discard it").click()
    await expect(page.get_by_role("status")).to_contain_text("It is discarded")

    await page.get_by_role("link", name="Groups of letters").click()
    await the_heading(page, "3 letters in 1 group")
    await shoot(page, "groups")
    await page.get_by_role("link", name="Redrive… refusal").click()
    await the_heading(page, "Redrive 3 letters?")
    await shoot(page, "plan")
    await page.get_by_role("button", name="Send 3 back").click()
    await the_heading(page, re.compile("1 of 3 sent back"))
    await shoot(page, "run")
    good = ScriptedModel(GOOD)
    async with asyncio.timeout(30):
        while not await page.get_by_text("It ended").count():
            await extract(world.server.parts, world.broker, good)
            # It loads itself anew.
            await page.wait_for_event("load")
    await the_heading(page, "3 of 3 sent back")
    await extract(world.server.parts, world.broker, good)

    await page.goto(f"{world.console}/letters/groups")
    await the_heading(page, "0 letters in 0 groups")
    await page.get_by_role("link", name="Audit").click()
    await expect(page.get_by_text("letter.redrive")).to_have_count(4)
    await shoot(page, "audit")
    states = {letter.state for letter in await world.letters()}
    assert states == {LetterState.RESOLVED, LetterState.DISCARDED}


async def test_what_was_said_to_it_does_nothing_to_the_page(
    world: World, chromium: BrowserContext, shoot: Shoot
) -> None:
    await world.dead("<b>s</b>", "refusal", HOSTILE, user="<script>alert(1)</script>")
    await world.good("good", HOSTILE)
    opened: list[str] = []

    def asked(dialog: Dialog) -> None:
        opened.append(dialog.message)

    page = await chromium.new_page()
    page.on("dialog", asked)
    violations: list[str] = []
    page.on("console", lambda told: violations.append(told.text) if told.type == "error" else None)
    (letter,) = await world.letters()

    for path in (
        f"/letters/{letter.letter_id}",
        f"/sessions/{letter.session}",
        "/sessions?user=mara",
        "/users?user=mara",
        "/letters?reason=%3Cscript%3Ealert(1)%3C/script%3E",
    ):
        await page.goto(f"{world.console}{path}")
        assert not (await page.title()).startswith("owned"), path
        assert await page.locator("main script, main img, main style").count() == 0, path
        assert await page.locator('a[href^="javascript" i]').count() == 0, path
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
    await page.goto(f"{world.console}/sessions/{letter.session}")
    await shoot(page, "hostile")
    # Were the escaping to fail, the browser would still run nothing.
    await page.evaluate("document.body.insertAdjacentHTML('beforeend', '<p id=x></p>')")
    ran = await page.evaluate(
        "() => { const s = document.createElement('script');"
        " s.textContent = 'window.ran = true'; document.body.append(s); return !!window.ran }"
    )

    assert not ran
    assert opened == []
    assert any("Content Security Policy" in each for each in violations)


async def test_two_operators_race_and_the_slower_is_told(
    world: World, chromium: BrowserContext, shoot: Shoot
) -> None:
    await world.dead("s", "refusal")
    (letter,) = await world.letters()
    first, second = await chromium.new_page(), await chromium.new_page()
    for page in (first, second):
        await page.goto(f"{world.console}/letters/{letter.letter_id}")

    await first.get_by_role("button", name="Send it back").click()
    await expect(first.get_by_role("status")).to_contain_text("It is sent back")
    await second.get_by_role("button", name="Send it back").click()
    await the_heading(second, "It is not as you saw it")
    await shoot(second, "race")

    await extract(world.server.parts, world.broker, ScriptedModel(GOOD))
    assert [one.state for one in await world.letters()] == [LetterState.RESOLVED]
    trail = await MongoOperatorActions(world.server.parts.database).of_target(letter.letter_id)
    assert [act.act for act in trail] == [Act.LETTER_REDRIVE]


async def test_a_guard_is_resumed_by_keyboard_alone(
    world: World, chromium: BrowserContext, shoot: Shoot
) -> None:
    guards = MongoGuards(world.server.parts.database)
    fresh = guard = await guards.get("extraction:v1:live")
    while guard.tripped_at_ms is None:
        guard = guarding.with_letter(guard, session=str(guard.row), reason="refusal", now_ms=1)
    assert await guards.swap(fresh, guard)
    page = await chromium.new_page()
    await page.goto(f"{world.console}/")

    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Go to the content")).to_be_focused()
    await page.keyboard.press("Enter")
    for _ in range(5):
        await page.keyboard.press("Tab")
        if await page.get_by_role("button", name="Resume extraction:v1:live").evaluate(
            "each => each === document.activeElement"
        ):
            break
    await shoot(page, "guard")
    await page.keyboard.press("Enter")

    await expect(page.get_by_role("status")).to_contain_text("It is resumed")
    assert (await guards.get("extraction:v1:live")).tripped_at_ms is None


async def test_evidence_is_marked_in_the_turns_by_night_and_on_a_narrow_window(
    world: World, chromium: BrowserContext, shoot: Shoot
) -> None:
    await world.good("good", "Hello! I live in  Porto, by the river.", "Lovely.")
    page = await chromium.new_page()
    await page.goto(f"{world.console}/sessions?user=mara")
    await page.get_by_role("link", name="good").click()

    await expect(page.locator("mark")).to_have_text("I live in  Porto")
    await shoot(page, "session")
    await page.get_by_role("link", name="The user lives in Porto.").click()
    await shoot(page, "record")
    await page.goto(f"{world.console}/users?user=mara")
    await expect(page.get_by_text("The user lives in Porto.")).to_be_visible()
    await shoot(page, "memory")
    await page.emulate_media(color_scheme="dark")
    await page.set_viewport_size({"width": 390, "height": 800})
    for path, name in (("/", "overview"), ("/users?user=mara", "memory"), ("/letters", "letters")):
        await page.goto(f"{world.console}{path}")
        wide = await page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 390, path
        await shoot(page, f"{name}-narrow-dark")


async def test_signing_in_leads_to_where_one_was_going_and_out_again(
    db: Database, chromium: BrowserContext, shoot: Shoot
) -> None:
    async with served(db, auth="on") as server:
        made = await account(server.parts, "op", "alpha", Role.OPERATOR)
        page = await chromium.new_page()
        await page.goto(f"{server.url}/console/replays/new?user=mara")
        await shoot(page, "login")
        await page.get_by_label("Account id").fill(made.client_id)
        await page.get_by_label("Secret").fill("ats_wrong")
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("alert")).to_contain_text("no such account")
        await page.get_by_label("Account id").fill(made.client_id)
        await page.get_by_label("Secret").fill(made.secret)
        await page.get_by_role("button", name="Sign in").click()

        await the_heading(page, "New replay")
        await expect(page.get_by_label("User")).to_have_value("mara")
        (cookie,) = await chromium.cookies()
        assert cookie.get("httpOnly") is True
        assert cookie.get("sameSite") == "Strict"
        await page.get_by_role("button", name="Count what it would take").click()
        await shoot(page, "replay")
        await page.get_by_role("button", name="Sign out").click()
        await the_heading(page, "Sign in")
        await page.goto(f"{server.url}/console/")
        await the_heading(page, "Sign in")
