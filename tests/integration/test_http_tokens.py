"""`POST /api/v1/oauth/token` as OAuth 2 has it, and that no secret is written anywhere."""

from base64 import b64encode
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import httpx
import jwt
import pytest

from pipeline.access.signing_in import REFUSALS
from pipeline.stores.mongo import Database
from tests.integration.serving import Server, served
from tests.integration.signing import GRANT, SIGN_IN, Credentials, account, bearing, sign_in

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A server and an account of it."""

    server: Server
    http: httpx.AsyncClient
    agent: Credentials


@pytest.fixture
async def world(db: Database) -> AsyncGenerator[World]:
    async with (
        served(db, auth="on") as server,
        httpx.AsyncClient(base_url=server.url, timeout=30) as http,
    ):
        yield World(
            server=server, http=http, agent=await account(server.parts, "assistant", "alpha")
        )


async def test_both_ways_of_sending_a_secret_give_a_token_of_an_hour(world: World) -> None:
    in_form = {"client_id": world.agent.client_id, "client_secret": world.agent.secret}
    by_basic = await sign_in(world.http, world.agent.client_id, world.agent.secret)
    by_form = await world.http.post(SIGN_IN, data={**GRANT, **in_form})
    named_too = await world.http.post(
        SIGN_IN,
        data={**GRANT, "client_id": world.agent.client_id, "scope": ""},
        auth=(world.agent.client_id, world.agent.secret),
    )
    # What is special in a form is written as %XX under HTTP Basic, too.
    escaped = world.agent.client_id.replace("_", "%5F")
    by_escaped = await sign_in(world.http, escaped, world.agent.secret)

    for answer in (by_basic, by_form, named_too, by_escaped):
        assert answer.status_code == 200, answer.text
        assert answer.headers["Cache-Control"] == "no-store"
        told = answer.json()
        token = told.pop("access_token")
        assert told == {"token_type": "Bearer", "expires_in": 3600, "scope": "agent"}
        found = await world.http.get(
            "/api/v1/memory/semantic", params={"user_id": "mara"}, headers=bearing(token)
        )
        assert found.status_code == 200
    claims = [
        jwt.decode(each.json()["access_token"], options={"verify_signature": False})
        for each in (by_basic, by_form)
    ]
    assert claims[0]["jti"] != claims[1]["jti"]


async def refusal(world: World, **sent: Any) -> tuple[int, str]:
    answer = await world.http.post(SIGN_IN, **sent)
    told = answer.json()
    assert answer.headers["Cache-Control"] == "no-store"
    assert told.keys() == {"error", "error_description"}
    assert world.agent.secret not in answer.text
    assert "planted" not in answer.text
    is_challenged = answer.headers.get("WWW-Authenticate", "").startswith("Basic ")
    assert is_challenged == (answer.status_code == 401)
    return answer.status_code, told["error"]


async def test_what_is_no_request_for_a_token_is_refused_as_oauth_has_it(world: World) -> None:
    auth = (world.agent.client_id, world.agent.secret)
    in_form = {"client_id": auth[0], "client_secret": auth[1]}
    named: dict[str, dict[str, Any]] = {
        "invalid_request": {"data": {"scope": "agent"}, "auth": auth},
        "unsupported_grant_type": {"data": {"grant_type": "password"}, "auth": auth},
    }
    for error, sent in named.items():
        assert await refusal(world, **sent) == (400, error)
    for sent in (
        {"json": GRANT, "auth": auth},
        {"content": b"", "auth": auth},
        {"data": {**GRANT, **in_form}, "auth": auth},
        {"data": {**GRANT, "client_id": "planted"}, "auth": auth},
        {"content": b"grant_type=client_credentials&grant_type=planted", "headers": FORM},
        {"content": b"&".join(b"f%d=planted" % each for each in range(50)), "headers": FORM},
    ):
        assert await refusal(world, **sent) == (400, "invalid_request"), sent


async def test_who_is_not_known_is_told_nothing_about_why(world: World) -> None:
    client_id, secret = world.agent.client_id, world.agent.secret
    planted = b64encode(b"planted\xff:planted").decode()
    sent: list[dict[str, Any]] = [
        {},
        {"auth": (client_id, "planted")},
        {"auth": ("planted", secret)},
        {"auth": (client_id, "")},
        {"headers": {"Authorization": f"Basic {planted}"}},
        {"headers": {"Authorization": "Basic !planted!"}},
        {"headers": bearing("planted")},
        {"data": {**GRANT, "client_id": client_id, "client_secret": "planted"}},
        {"data": {**GRANT, "client_id": client_id}},
    ]
    for each in sent:
        assert await refusal(world, **{"data": GRANT, **each}) == (401, "invalid_client"), each


async def test_who_is_refused_too_often_is_told_when_to_come_back(world: World) -> None:
    answers = [
        await sign_in(world.http, world.agent.client_id, "wrong") for _ in range(REFUSALS.burst + 2)
    ]
    last = answers[-1]

    assert {answer.status_code for answer in answers[: REFUSALS.burst]} == {401}
    assert last.status_code == 429
    assert 1 <= int(last.headers["Retry-After"]) <= 30
    assert last.json()["code"] == "RATE_LIMITED"
    good = await sign_in(world.http, world.agent.client_id, world.agent.secret)
    assert good.status_code == 200


async def test_no_secret_and_no_token_is_logged_counted_or_stored(
    world: World, db: Database, capfd: pytest.CaptureFixture[str]
) -> None:
    good = await sign_in(world.http, world.agent.client_id, world.agent.secret)
    token = good.json()["access_token"]
    await sign_in(world.http, world.agent.client_id, "planted")
    await sign_in(world.http, "planted", "planted")
    for sent in (token, token[:-9], "planted"):
        await world.http.get("/metrics", headers=bearing(sent))
        await world.http.get(f"/api/v1/memory/semantic?planted={sent}", headers=bearing(sent))
    said = capfd.readouterr()
    exporter = world.server.parts.exporter
    assert exporter is not None
    counted = exporter.page().decode()
    stored = str(
        [
            document
            for name in await db.list_collection_names()
            async for document in db[name].find({})
        ]
    )

    assert "afterturn_logins_total" in counted
    for secret in (world.agent.secret, token, token.rpartition(".")[2], "planted"):
        for where in (said.out, said.err, counted, stored):
            assert secret not in where
