"""With sign-in on: who gets in, to what, in which project, and what the client then raises."""

import asyncio
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import httpx
import pytest
from agent_engine_sdk_memory import MemoryAuthError, MemoryBadRequestError
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from pymongo.errors import AutoReconnect
from starlette.types import Receive, Scope, Send

from api.access import OPEN, Access, Gatekeeper, rate_of
from pipeline.access.rates import Buckets
from pipeline.access.signing_in import FRESH, Authenticator
from pipeline.access.tokens import Tokens
from pipeline.metrics import NO_METRICS
from pipeline.stores.mongo import Database
from schemas.access import Role
from tests.integration.serving import Server, ask, served
from tests.integration.signing import account, bearing, desk, token_of
from tests.integration.test_http_scope import KINDS, PROJECTS, allowed, body_of, plant, seen

MANY = 10_000
"""Requests in a second: more than a test makes."""
SAID: dict[str, Any] = {"user_id": "mara", "session_id": "s", "role": "user", "content": "Hi."}


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A server where agents of two projects, an operator and an admin have tokens."""

    server: Server
    http: httpx.AsyncClient
    tokens: dict[str, str]

    async def call(self, who: str, verb: str, path: str, **more: Any) -> httpx.Response:
        """Ask something as somebody."""
        headers = bearing(self.tokens[who])
        return await self.http.request(verb, path, headers=headers, **more)


@pytest.fixture
async def world(db: Database) -> AsyncGenerator[World]:
    async with (
        served(db, auth="on", requests_per_second=MANY) as server,
        httpx.AsyncClient(base_url=server.url, timeout=30) as http,
    ):
        made = [
            await account(server.parts, "alpha", "alpha"),
            await account(server.parts, "beta", "beta"),
            await account(server.parts, "operator", "alpha", Role.OPERATOR),
            await account(server.parts, "admin", "alpha", Role.ADMIN),
        ]
        tokens = {each.name: await token_of(http, each) for each in made}
        yield World(server=server, http=http, tokens=tokens)


def routes_of(server: Server) -> list[tuple[str, str]]:
    """Return verb and path of every route there is, in the project `beta` and of no memory."""
    app = server.app.application
    assert isinstance(app, FastAPI)
    found = [
        (verb, str(route.path))
        for route in iter_route_contexts(app.routes)
        for verb in sorted(route.methods or ())
    ]
    filled = [(verb, path.replace("{project_id}", "beta")) for verb, path in found]
    return [(verb, re.sub(r"\{\w+\}", "some", path)) for verb, path in filled]


async def test_no_route_answers_without_a_token(world: World) -> None:
    routes = routes_of(world.server)
    sent: list[dict[str, str]] = [
        {},
        {"Authorization": "Bearer"},
        {"Authorization": "Basic YTpi"},
        bearing(world.tokens["alpha"][:-9]),
    ]

    assert len(routes) > 80
    for (verb, path), headers in product([*routes, ("GET", "/nowhere")], sent):
        answer = await world.http.request(verb, path, headers=headers)
        if path in OPEN:
            assert answer.status_code != 403
            assert "Bearer" not in answer.headers.get("WWW-Authenticate", "")
            continue
        assert answer.status_code == 401, (verb, path)
        assert answer.headers["WWW-Authenticate"].startswith("Bearer realm=")
        if verb != "HEAD":
            assert answer.json()["code"] == "UNAUTHENTICATED"


async def test_every_route_of_the_memory_is_closed_to_operators_and_to_other_projects(
    world: World,
) -> None:
    routes = [each for each in routes_of(world.server) if each[1].startswith("/api/")]
    memory = [each for each in routes if each[1] not in OPEN]
    others = [each for each in memory if "/projects/beta/" in each[1]]

    assert len(others) > 25
    for verb, path in memory:
        assert (await world.call("operator", verb, path)).json()["code"] == "FORBIDDEN"
    for who, (verb, path) in product(("alpha", "admin"), others):
        answer = await world.call(who, verb, path, content=b"{")
        assert (answer.status_code, answer.json()["code"]) == (403, "TENANCY_MISMATCH")


async def test_what_a_process_counts_is_for_operators_and_health_for_everybody(
    world: World,
) -> None:
    for who, status in (("alpha", 403), ("operator", 200), ("admin", 200)):
        assert (await world.call(who, "GET", "/metrics")).status_code == status
    for path in ("/health/live", "/health/ready"):
        assert (await world.http.get(path)).status_code == 200
    page = (await world.call("operator", "GET", "/metrics")).text

    assert 'afterturn_requests_refused_total{reason="forbidden"} 1.0' in page
    assert 'afterturn_logins_total{result="granted"} 4.0' in page


@pytest.mark.parametrize("project", [None, "alpha"], ids=["direct", "project"])
async def test_a_token_works_on_both_kinds_of_route_in_its_own_project(
    world: World, project: str | None
) -> None:
    memory = world.server.memory(
        project, token=world.tokens["alpha"], user_id="mara", session_id="s"
    )
    await ask(memory.record_turn, role="user", content="I'm allergic to penicillin.")
    await ask(memory.save_semantic, text="Prefers window seats.", label="seat")
    await ask(memory.save_taxonomic, domain="d", term="t", definition="What it means.")
    context = await ask(memory.build_context, query="allergic", enabled_sources={"stm"})
    hits = await ask(memory.search, "window seats")

    assert context.formatted_context == [{"role": "user", "content": "I'm allergic to penicillin."}]
    assert [hit.content for hit in hits] == ["Prefers window seats."]
    assert await ask(memory.list_domains, visibility="org") == ["d"]
    turns = world.server.parts.database["turns"].find({})
    assert [turn["identity"]["project_id"] async for turn in turns] == ["alpha"]


async def test_the_client_raises_what_it_promises(world: World) -> None:
    def memory(token: str | None, project: str | None = None, **bound: Any) -> Any:
        return world.server.memory(project, token=token, **bound)

    alpha = world.tokens["alpha"]
    for token in (None, "nonsense", f"{alpha}x"):
        with pytest.raises(MemoryAuthError) as refused:
            await ask(memory(token, user_id="mara").search, "x")
        assert (refused.value.status, refused.value.code) == (401, "UNAUTHENTICATED")
    with pytest.raises(MemoryAuthError, match="project of the path") as refused:
        await ask(memory(alpha, "beta", user_id="mara").search, "x")
    assert (refused.value.status, refused.value.code) == (403, "TENANCY_MISMATCH")
    with pytest.raises(MemoryAuthError, match="operator"):
        await ask(memory(world.tokens["operator"], user_id="mara").search, "x")
    # The one read that takes no user takes a visibility.
    for read in (partial(memory(alpha, session_id="s").search, "x"), memory(alpha).list_domains):
        with pytest.raises(MemoryBadRequestError, match="user_id or a visibility") as bad:
            await ask(read)
        assert (bad.value.status, bad.value.code) == (400, "SCOPE_REQUIRED")


class ByPath(httpx.Auth):
    """Signs a request with the token of the project that its path names."""

    def __init__(self, tokens: dict[str, str]) -> None:
        self._tokens = tokens

    def auth_flow(self, request: httpx.Request) -> Any:
        """Sign a request."""
        _, _, rest = request.url.path.partition("/projects/")
        request.headers.update(bearing(self._tokens[rest.partition("/")[0]]))
        yield request


async def test_each_read_names_a_user_or_a_visibility_and_sees_no_more_than_that(
    world: World,
) -> None:
    async with httpx.AsyncClient(
        base_url=f"{world.server.url}/api/v1", auth=ByPath(world.tokens), timeout=30
    ) as http:
        planted = await plant(http)
        for route, kind, project in product(
            ("list", "search", "retrieval", "context", "sources"), KINDS, PROJECTS
        ):
            for user, visibility in product(("mara", "bo", None), ("private", "shared", None)):
                named = {"user_id": user, "visibility": visibility}
                if user is None and visibility is None:
                    with pytest.raises(AssertionError, match="SCOPE_REQUIRED"):
                        await seen(http, route, project, named, kind)
                    continue
                found = await seen(http, route, project, named, kind)
                assert found == allowed(planted, project, user, visibility, kind), named


@pytest.mark.parametrize("kind", ["semantic", "procedural"])
async def test_a_memory_is_looked_up_corrected_and_deleted_by_whom_it_is_named_with(
    world: World, kind: str
) -> None:
    base = f"/api/v1/memory/{kind}"
    saved = await world.call("alpha", "POST", base, json={**body_of(kind, "a"), "user_id": "mara"})
    path = f"{base}/{saved.json()['id']}"
    for verb, more in (("GET", {}), ("PATCH", {"json": {"source": "x"}}), ("DELETE", {})):
        refused = await world.call("alpha", verb, path, **more)
        assert (refused.status_code, refused.json()["code"]) == (400, "SCOPE_REQUIRED"), verb
        named = (
            {"json": {"user_id": "mara"}} if verb == "PATCH" else {"params": {"user_id": "mara"}}
        )
        # Another project's token is in another project on the direct routes, whatever it names.
        assert (await world.call("beta", verb, path, **named)).status_code == 404, verb
        assert (await world.call("alpha", verb, path, **named)).status_code == 200, verb


async def test_what_is_named_elsewhere_than_in_the_path_must_be_the_tokens_too(
    world: World,
) -> None:
    whose = {"user_id": "mara", "project_id": "beta"}
    for path, body in (
        ("/turns", SAID),
        ("/sessions/close", {"session_id": "s"}),
        ("/search", {"type": "semantic", "query": "x"}),
        ("/context", {"query": "x"}),
        ("/retrieval/context-from-sources", {"query": "x", "sources": [{"source": "semantic"}]}),
        ("/retrieval/semantic", {"query": "x"}),
        *((f"/{kind}", body_of(kind, "x")) for kind in KINDS),
    ):
        for base in ("/api/v1/memory", "/api/v1/projects/alpha/memory", "/api/v1"):
            refused = await world.call("alpha", "POST", base + path, json={**body, **whose})
            assert (refused.status_code, refused.json()["code"]) == (403, "TENANCY_MISMATCH"), path
            assert "beta" not in refused.text
    for path in (*KINDS, "taxonomic/domains", "semantic/some"):
        refused = await world.call("alpha", "GET", f"/api/v1/memory/{path}", params=whose)
        assert (refused.status_code, refused.json()["code"]) == (403, "TENANCY_MISMATCH"), path
    blank = await world.call(
        "alpha", "POST", "/api/v1/memory/turns", json={**SAID, "project_id": ""}
    )
    assert blank.status_code == 201


async def test_an_account_of_an_organization_is_in_no_other(world: World) -> None:
    for org in ("north", "south"):
        made = await account(world.server.parts, org, "alpha", org=org)
        world.tokens[org] = await token_of(world.http, made)
    whose = {"user_id": "mara"}
    base = "/api/v1/memory"
    for org, more in (("north", {}), ("south", {"org_id": "south"})):
        fact = {"label": "from", "text": org, **whose, **more}
        assert (await world.call(org, "POST", f"{base}/semantic", json=fact)).status_code == 201
        assert (await world.call(org, "POST", f"{base}/turns", json=SAID)).status_code == 201

    for org, other in (("north", "south"), ("south", "north")):
        found = await world.call(org, "GET", f"{base}/semantic", params=whose)
        assert [each["text"] for each in found.json()["entries"]] == [org]
        for verb, path, sent in (
            ("GET", "/semantic", {"params": {**whose, "org_id": other}}),
            ("POST", "/semantic", {"json": {**body_of("semantic", "x"), **whose, "org_id": other}}),
            ("POST", "/turns", {"json": {**SAID, "org_id": other}}),
        ):
            refused = await world.call(org, verb, base + path, **sent)
            assert (refused.status_code, refused.json()["code"]) == (403, "TENANCY_MISMATCH")
    turns = world.server.parts.database["turns"].find({})
    assert {turn["identity"]["org_id"] async for turn in turns} == {"north", "south"}
    both = await world.call("alpha", "GET", f"{base}/semantic", params=whose)
    assert {each["text"] for each in both.json()["entries"]} == {"north", "south"}


async def test_nobody_has_a_body_read_who_is_not_let_in(world: World) -> None:
    port = world.server.url.rpartition(":")[2]
    reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
    writer.write(b"POST /api/v1/memory/turns HTTP/1.1\r\nHost: x\r\nContent-Length: 999\r\n\r\n")
    async with asyncio.timeout(20):
        status = await reader.readline()
    writer.close()

    assert status.startswith(b"HTTP/1.1 401")


async def test_a_revoked_account_is_out_within_seconds(world: World) -> None:
    """How many exactly is shown in test_signing_in.py."""
    memory = world.server.memory(token=world.tokens["alpha"], user_id="mara")
    await ask(memory.search, "x")
    await desk(world.server.parts).revoke("alpha")
    async with asyncio.timeout(FRESH.total_seconds() * 4):
        with pytest.raises(MemoryAuthError, match="revoked"):
            # Only asking tells.
            while True:
                await ask(memory.search, "x")
                await asyncio.sleep(0.1)


async def test_a_token_that_asks_too_often_is_told_when_to_come_back(db: Database) -> None:
    async with (
        served(db, auth="on", requests_per_second=0.1) as server,
        httpx.AsyncClient(base_url=server.url, timeout=30) as http,
    ):
        made = await account(server.parts, "assistant", "alpha")
        token, other = await token_of(http, made), await token_of(http, made)
        first, refused = [await http.get("/openapi.json", headers=bearing(token)) for _ in range(2)]
        with pytest.raises(MemoryBadRequestError) as told:
            await ask(server.memory(token=token, user_id="mara").search, "x")
        spared = await http.get("/openapi.json", headers=bearing(other))

    assert (first.status_code, refused.status_code, spared.status_code) == (200, 429, 200)
    assert refused.json()["code"] == "RATE_LIMITED"
    assert 1 <= int(refused.headers["Retry-After"]) <= 10
    assert (told.value.status, told.value.code) == (429, "RATE_LIMITED")


async def test_a_project_that_stored_its_days_worth_is_told_when_the_next_begins(
    db: Database,
) -> None:
    base = "/api/v1/memory"
    async with (
        served(db, auth="on", project_writes_per_day=4) as server,
        httpx.AsyncClient(base_url=server.url, timeout=30) as http,
    ):
        tokens = {
            each: await token_of(http, await account(server.parts, each, each))
            for each in ("alpha", "beta")
        }
        http.headers.update(bearing(tokens["alpha"]))
        keyed = {**SAID, "idempotency_key": "k"}
        fact = {**body_of("semantic", "a"), "user_id": "mara"}
        stored = [
            (await http.post(base + path, json=sent)).status_code
            for path, sent in (
                ("/turns", keyed),
                ("/turns", keyed),
                ("/turns", {**SAID, "role": "nobody"}),
                ("/stm/turns", SAID),
                ("/semantic", fact),
                ("/taxonomic", {**body_of("taxonomic", "t"), "user_id": "mara"}),
            )
        ]
        refused = await http.post(f"{base}/turns", json=SAID)
        with pytest.raises(MemoryBadRequestError) as told:
            memory = server.memory(token=tokens["alpha"], user_id="mara", session_id="s")
            await ask(memory.save_semantic, text="x", label="y")
        read = await http.get(f"{base}/semantic", params={"user_id": "mara"})
        other = await http.post(f"{base}/turns", json=SAID, headers=bearing(tokens["beta"]))
    used = {each["_id"]: each["used"] async for each in db["usage"].find({})}

    assert stored == [201, 200, 422, 201, 201, 201]
    assert (refused.status_code, refused.json()["code"]) == (429, "QUOTA_EXCEEDED")
    assert 1 <= int(refused.headers["Retry-After"]) <= 24 * 60 * 60
    assert (told.value.status, told.value.code) == (429, "QUOTA_EXCEEDED")
    assert (read.status_code, len(read.json()["entries"])) == (200, 1)
    assert other.status_code == 201
    # What was counted here is added to everybody's at the end.
    assert used == {"alpha": 4, "beta": 1}


async def test_with_sign_in_on_it_may_be_reached_by_others(db: Database) -> None:
    """Without, it is refused: test_http_limits.py."""
    async with served(db, auth="on", host="0.0.0.0") as server:
        port = server.url.rpartition(":")[2]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as http:
            assert (await http.get("/health/live")).status_code == 200
            assert (await http.get("/api/v1/memory/semantic")).status_code == 401


async def test_while_the_database_is_away_it_is_told_to_try_again() -> None:
    """Whoever asks, nobody can say: that is no refusal of theirs."""

    class Away:
        async def now_ms(self) -> int:
            raise AutoReconnect

    async def never(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise AssertionError("nobody is to be let in")

    tokens = Tokens(b"k" * 32)
    accounts: Any = None
    keeper = Gatekeeper(
        authenticator=Authenticator(
            accounts=accounts, tokens=tokens, server_time=Away(), monotonic=lambda: 0.0
        ),
        buckets=Buckets(rate_of(1)),
        monotonic=lambda: 0.0,
    )
    transport = httpx.ASGITransport(Access(never, keeper, NO_METRICS))
    async with httpx.AsyncClient(transport=transport, base_url="http://t") as http:
        answer = await http.get("/api/v1/memory/semantic", headers=bearing("any"))

    assert (answer.status_code, answer.json()["code"]) == (503, "UNAVAILABLE")
    assert answer.headers["Retry-After"] == "1"
