"""The console's door: who gets in, to which pages, whose forms count, what browsers are told."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from itertools import product

import httpx
import pytest

from api.console.gate import HEADERS, WORDS
from api.console.session import CONSOLE
from pipeline.stores.mongo import Database
from pipeline.stores.operator_actions import MongoOperatorActions
from schemas.access import Role
from schemas.operator_action import Act
from tests.integration.browsing import Browser, browser, pages, read
from tests.integration.serving import Server, served
from tests.integration.signing import Credentials, account, bearing, token_of

OPEN = ("/login",)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A server where an agent, an operator and an admin have accounts."""

    server: Server
    accounts: dict[str, Credentials]


@pytest.fixture
async def world(db: Database) -> AsyncGenerator[World]:
    async with served(db, auth="on", requests_per_second=10_000) as server:
        made = [await account(server.parts, role.value, "alpha", role) for role in Role]
        yield World(server=server, accounts={each.name: each for each in made})


def is_login(page: httpx.Response) -> bool:
    return page.url.path == f"{CONSOLE}/login"


async def test_without_a_session_every_page_leads_to_the_login_and_no_form_is_taken(
    world: World,
) -> None:
    assert {"/", "/login"} <= set(pages(world.server, "GET"))
    async with browser(world.server) as nobody:
        for path in [*pages(world.server, "GET"), "/nowhere", "/static"]:
            assert is_login(await nobody.open(path)), path
        for path in [*pages(world.server, "POST"), "/nowhere"]:
            refused = await nobody.send(path)
            assert refused.status_code == 401, path
            assert path in OPEN or "Nothing was done" in read(refused)
        # The API's tokens open it in a cookie only, so that no other site can send one.
        token = await token_of(nobody.http, world.accounts["admin"])
        sent = await nobody.http.get(f"{CONSOLE}/", headers=bearing(token))
        assert sent.status_code == 303


async def test_every_answer_tells_browsers_what_they_must_not_do(world: World) -> None:
    async with browser(world.server) as nobody, browser(world.server) as admin:
        await admin.sign_in(world.accounts["admin"])
        for who, path in product(
            (nobody, admin), (*pages(world.server, "GET"), "/static/console.css", "/nowhere")
        ):
            answer = await who.http.get(f"{CONSOLE}{path}")
            for name, value in HEADERS.items():
                assert answer.headers.get_list(name) == [value], (path, name)
            assert "style=" not in answer.text
            assert "<script" not in answer.text
    policy = HEADERS["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "script-src" not in policy


async def test_each_role_sees_what_it_may(world: World) -> None:
    words = [path for path in pages(world.server, "GET") if f"{CONSOLE}{path}".startswith(WORDS)]
    others = [path for path in pages(world.server, "GET") if path not in (*words, *OPEN)]
    async with (
        browser(world.server) as agent,
        browser(world.server) as operator,
        browser(world.server) as admin,
    ):
        refused = await agent.sign_in(world.accounts["agent"])
        assert (refused.status_code, len(agent.http.cookies)) == (403, 0)
        assert "role agent may not operate" in read(refused)
        for name, who in (("operator", operator), ("admin", admin)):
            assert "From turns to memory" in read(await who.sign_in(world.accounts[name]))
            for path in others:
                assert (await who.open(path)).status_code not in (401, 403), path
        for path in words:
            page = await operator.open(path)
            assert page.status_code == 403
            assert "does not include words" in read(page)
            assert (await admin.open(path)).status_code != 403
        assert "Sessions" in read(await admin.open("/"))
        assert "Sessions" not in read(await operator.open("/"))


async def test_an_agents_token_is_no_session(world: World) -> None:
    """It is a token of this installation all the same, so its role must be looked at."""
    async with browser(world.server) as agent:
        token = await token_of(agent.http, world.accounts["agent"])
        agent.http.cookies.set("afterturn-console", token, path=CONSOLE)
        page = await agent.open("/")

    assert page.status_code == 403
    assert "does not include operate" in read(page)


async def test_a_login_is_in_the_trail_and_its_cookie_is_nobody_elses(world: World) -> None:
    operator = world.accounts["operator"]
    async with browser(world.server) as person:
        await person.open("/login")
        wrong = await person.send("/login", client_id=operator.client_id, client_secret="ats_x")
        assert (wrong.status_code, len(person.http.cookies)) == (401, 0)
        assert "ats_x" not in wrong.text
        entered = await person.send(
            "/login",
            client_id=operator.client_id,
            client_secret=operator.secret,
            next=f"{CONSOLE}/?refresh=on",
            follow=False,
        )
        (cookie,) = entered.headers.get_list("set-cookie")
        assert entered.headers["location"] == f"{CONSOLE}/?refresh=on"
        assert {"HttpOnly", "SameSite=Strict", f"Path={CONSOLE}", "Max-Age=3600"} <= set(
            cookie.split("; ")
        )
        await person.open("/")
        left = await person.send("/logout")
        assert is_login(left)
        assert is_login(await person.open("/"))
    trail = await MongoOperatorActions(world.server.parts.database).of_target(operator.client_id)
    assert [each.act for each in trail][-2:] == [Act.LOGIN_REFUSED, Act.LOGIN]


async def test_a_changed_cookie_is_no_session(world: World) -> None:
    operator = world.accounts["operator"]
    async with browser(world.server) as person:
        await person.sign_in(operator)
        token = person.http.cookies["afterturn-console"]
        person.http.cookies.set("afterturn-console", f"{token[:-3]}abc", path=CONSOLE)
        page = await person.open("/")

    assert is_login(page)
    assert "session has ended" in read(page)


async def signed_in(world: World, person: Browser) -> None:
    await person.sign_in(world.accounts["operator"])
    await person.open("/")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "null"},
        {"Origin": "https://evil.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "HOME", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "HOME", "Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
async def test_a_form_from_elsewhere_is_refused_though_it_has_the_token(
    world: World, headers: dict[str, str]
) -> None:
    async with browser(world.server) as person:
        await signed_in(world, person)
        sent = {
            name: person.origin if value == "HOME" else value for name, value in headers.items()
        }
        answer = await person.http.post(
            f"{CONSOLE}/logout", data={"form_token": person.form_token}, headers=sent
        )
        assert answer.status_code == 403
        assert "Nothing was done" in read(answer)
        assert "Overview" in read(await person.open("/"))


async def test_a_form_without_the_token_of_its_session_is_refused_on_every_address(
    world: World,
) -> None:
    async with browser(world.server) as person, browser(world.server) as other:
        await signed_in(world, person)
        await other.sign_in(world.accounts["admin"])
        await other.open("/")
        own = person.form_token
        assert own != other.form_token
        for path, sent in product(pages(world.server, "POST"), ("", "x", "é", other.form_token)):
            person.form_token = sent
            answer = await person.send(path)
            assert answer.status_code == 403, path
            assert "not of this session" in read(answer)
        for kind in ("application/json", "multipart/form-data; boundary=x", "text/plain"):
            answer = await person.http.post(
                f"{CONSOLE}/logout",
                content=f"form_token={own}",
                headers={"Origin": person.origin, "Content-Type": kind},
            )
            assert answer.status_code == 403
        person.form_token = own
        assert is_login(await person.send("/logout"))


async def test_nobody_need_sign_in_on_this_machine_and_no_other_name_is_answered(
    server: Server,
) -> None:
    async with browser(server) as person:
        page = await person.open("")
        assert page.url.path == f"{CONSOLE}/"
        # Nobody stood Kafka up for this test.
        assert "1 thing needs a look" in read(page)
        assert "Bring Kafka back" in read(page)
        assert not person.http.cookies
        for path in ("/", "/login", "/static/console.css"):
            rebound = await person.http.get(f"{CONSOLE}{path}", headers={"Host": "evil.example"})
            assert rebound.status_code == 421
        elsewhere = await person.http.post(
            f"{CONSOLE}/resume",
            data={"name": "x", "form_token": person.form_token},
            headers={"Origin": "http://evil.example"},
        )
        assert elsewhere.status_code == 403
