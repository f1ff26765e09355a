"""What is refused, how it is told, and that a full or failing server says so at once."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from api.access import SIGN_IN_PATH
from api.admission import BODY_BYTES, Admission, BodyLimit
from api.errors import Settling
from api.server import HttpApp, http_app
from consumers.wiring import wire
from pipeline.errors import ConfigurationError
from pipeline.settings import Settings
from pipeline.stores.mongo import Database
from tests.integration.serving import Server, Silent
from tests.ticking import largest_gap

SAID: dict[str, Any] = {"user_id": "mara", "session_id": "s", "role": "user", "content": "Hi."}
SECRET = "opensesame"
TERM: dict[str, Any] = {"user_id": "mara", "domain": "d", "term": "t", "definition": SECRET}
PROCEDURE: dict[str, Any] = {
    "user_id": "mara",
    "procedure": "p",
    "description": SECRET,
    "content": SECRET,
}
ROOM = 3


@pytest.fixture
async def http(server: Server) -> AsyncGenerator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"{server.url}/api/v1/memory", timeout=30) as client:
        yield client


async def test_a_turn_sent_again_is_one_turn(http: httpx.AsyncClient) -> None:
    said = {**SAID, "idempotency_key": "k"}
    first, again = await http.post("/turns", json=said), await http.post("/turns", json=said)
    other = await http.post("/turns", json={**said, "content": "Something else."})

    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    assert (other.status_code, other.json()["code"]) == (409, "IDEMPOTENCY_CONFLICT")


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/turns", {**SAID, "role": SECRET}, "role"),
        ("/turns", {**SAID, "content": "  "}, "content"),
        ("/turns", {**SAID, "session_id": " "}, "session_id"),
        ("/turns", {**SAID, "user_id": SECRET * 50}, "user_id"),
        ("/turns", {**SAID, "metadata": [SECRET]}, "metadata"),
        ("/turns", {**SAID, "metadata": {"a": {SECRET: float("1e400")}}}, "metadata"),
        ("/turns", {**SAID, "created_at": SECRET}, "created_at"),
        ("/search", {"type": SECRET, "query": "x"}, "type"),
        ("/search", {"type": "semantic", "query": SECRET, "top_k": 0}, "top_k"),
        ("/search", {"type": "semantic", "query": SECRET, "visibility": SECRET}, "visibility"),
        ("/context", {"query": SECRET, "max_tokens": 0}, "max_tokens"),
        ("/context", {"query": SECRET, "format_style": SECRET}, "format_style"),
        ("/retrieval/context-from-sources", {"query": SECRET, "sources": []}, "sources"),
        (
            "/retrieval/context-from-sources",
            {"query": SECRET, "sources": [{"source": "stm"}]},
            "session_id",
        ),
        ("/semantic", {"user_id": "mara", "label": "", "text": SECRET}, "label"),
        ("/semantic", {"user_id": "mara", "label": " \n\u3000", "text": SECRET}, "label"),
        ("/semantic", {"user_id": "mara", "label": SECRET, "text": "  "}, "text"),
        ("/taxonomic", {**TERM, "term": "\t"}, "term"),
        ("/episodic", {"user_id": "mara", "title": "t", "content": SECRET}, "session_id"),
        ("/semantic", {"user_id": "mara", "label": "l", "text": SECRET * 9000}, "text"),
        (
            "/semantic",
            {"user_id": "mara", "label": "l", "text": SECRET, "metadata": {SECRET: 2**70}},
            "metadata",
        ),
        ("/taxonomic", {**TERM, "related_terms": [SECRET] * 51}, "related_terms"),
        ("/procedural", {**PROCEDURE, "steps": [{"a": 2**70}]}, "steps"),
        ("/procedural", {**PROCEDURE, "steps": [SECRET]}, "steps"),
        ("/procedural", {**PROCEDURE, "allowed_tools": SECRET}, "allowed_tools"),
    ],
)
async def test_a_refusal_names_the_field_and_quotes_nothing(
    http: httpx.AsyncClient, path: str, body: dict[str, Any], field: str
) -> None:
    refused = await http.post(
        path, content=json.dumps(body), headers={"Content-Type": "application/json"}
    )

    assert refused.status_code == 422, refused.text
    assert {problem["field"] for problem in refused.json()["problems"]} == {field}
    assert SECRET not in refused.text
    assert refused.json()["error"].startswith(f"{field}: ")


async def test_what_is_no_json_is_refused(http: httpx.AsyncClient) -> None:
    refused = await http.post(
        "/turns", content=b"{" + SECRET.encode(), headers={"Content-Type": "application/json"}
    )

    assert (refused.status_code, refused.json()["problems"][0]["rule"]) == (422, "must be JSON")
    assert SECRET not in refused.text


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a":' * 100_000, b"\xff\xfe", b"null", b""])
async def test_rubbish_is_refused_and_the_server_goes_on(
    http: httpx.AsyncClient, body: bytes
) -> None:
    refused = await http.post("/turns", content=body, headers={"Content-Type": "application/json"})

    assert refused.status_code in {400, 422}, refused.text
    assert (await http.post("/turns", json=SAID)).status_code == 201


HALF = "\ud800"
EPISODE: dict[str, Any] = {"user_id": "m", "session_id": "s", "title": "t", "content": "c"}
SOURCES = "/retrieval/context-from-sources"


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/turns", {**SAID, "session_id": HALF}, "session_id"),
        ("/semantic", {"user_id": "m", "label": "l", "text": HALF}, "text"),
        ("/semantic", {"user_id": "m", "label": HALF, "text": "t"}, "label"),
        ("/semantic", {"user_id": HALF, "label": "l", "text": "t"}, "user_id"),
        ("/semantic", {"user_id": "m", "label": "l", "text": "t", "source": HALF}, "source"),
        (
            "/semantic",
            {"user_id": "m", "label": "l", "text": "t", "metadata": {"a": [{HALF: 1}]}},
            "metadata",
        ),
        ("/episodic", {**EPISODE, "participants": [HALF]}, "participants"),
        ("/episodic", {**EPISODE, "summary_text": HALF}, "summary_text"),
        ("/taxonomic", {**TERM, "related_terms": ["t", HALF]}, "related_terms"),
        ("/procedural", {**PROCEDURE, "steps": [{"a": HALF}]}, "steps"),
        ("/procedural", {**PROCEDURE, "allowed_tools": [HALF]}, "allowed_tools"),
        ("/search", {"type": "semantic", "query": HALF}, "query"),
        ("/search", {"type": "semantic", "query": "q", "tags": [HALF]}, "tags"),
        ("/search", {"type": "semantic", "query": "q", "domain": HALF}, "domain"),
        ("/context", {"query": "q", "metadata_filter": {"a": HALF}}, "metadata_filter"),
        (SOURCES, {"query": "q", "sources": [{"source": HALF}]}, "sources"),
        ("/types/car", {"content": HALF}, "content"),
        ("/types/car", {"content": "c", "tags": {"a": HALF}}, "tags"),
        ("/types/car/retrieve", {"query": "q", "tags": {HALF: 1}}, "tags"),
    ],
)
async def test_half_a_character_is_refused_in_every_field(
    http: httpx.AsyncClient, path: str, body: dict[str, Any], field: str
) -> None:
    refused = await http.post(
        path, content=json.dumps(body), headers={"Content-Type": "application/json"}
    )

    assert refused.status_code == 422, refused.text
    assert {problem["field"] for problem in refused.json()["problems"]} == {field}


async def test_half_a_character_that_was_said_is_mended(http: httpx.AsyncClient) -> None:
    said = {**SAID, "content": HALF, "metadata": {"a": HALF}}
    stored = await http.post(
        "/turns", content=json.dumps(said), headers={"Content-Type": "application/json"}
    )

    assert stored.status_code == 201, stored.text


async def test_what_nobody_foresaw_is_told_by_its_type_only(
    capfd: pytest.CaptureFixture[str],
) -> None:
    app = FastAPI()

    @app.get("/")
    async def broken() -> str:
        raise ValueError(SECRET)

    app.add_middleware(Settling)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
        answer = await client.get("/")
    said = capfd.readouterr()

    assert (answer.status_code, answer.json()["code"]) == (500, "BUG")
    assert "ValueError" in said.out + said.err
    assert SECRET not in answer.text + said.out + said.err


async def test_routes_that_there_are_not(http: httpx.AsyncClient) -> None:
    assert (await http.get("/nowhere")).json()["code"] == "ROUTE_NOT_FOUND"
    assert (await http.put("/turns")).json()["code"] == "METHOD_NOT_ALLOWED"


async def chunks(size: int) -> AsyncIterator[bytes]:
    """Yield a body whose length is not told before."""
    for _ in range(size // 65536 + 1):
        yield b" " * 65536


async def test_a_name_that_somebody_lets_point_at_this_machine_is_refused(
    http: httpx.AsyncClient,
) -> None:
    """Else a page in a browser here could read everything."""
    refused = await http.post("/turns", json=SAID, headers={"Host": "evil.example"})

    assert (refused.status_code, refused.json()["code"]) == (421, "HOST_REFUSED")
    assert "evil" not in refused.text
    assert (await http.post("/turns", json=SAID)).status_code == 201


async def test_a_body_too_large_is_refused_told_or_untold(http: httpx.AsyncClient) -> None:
    for content in (b" " * (BODY_BYTES + 1), chunks(BODY_BYTES + 1)):
        refused = await http.post(
            "/turns", content=content, headers={"Content-Type": "application/json"}
        )
        assert (refused.status_code, refused.json()["code"]) == (413, "TOO_LARGE")


async def test_the_largest_turn_is_taken(http: httpx.AsyncClient) -> None:
    stored = await http.post("/turns", json={**SAID, "content": "a" * (BODY_BYTES - 1024)})

    assert stored.status_code == 201, stored.text


async def test_who_finds_the_room_full_is_told_so_at_once() -> None:
    leave, are_in = asyncio.Event(), asyncio.Event()
    inside: list[None] = []
    app = FastAPI()

    @app.get("/slow")
    async def slow() -> str:
        inside.append(None)
        if len(inside) == ROOM:
            are_in.set()
        await leave.wait()
        return "done"

    @app.get("/health/live")
    async def live() -> str:
        return "live"

    app.add_middleware(Admission, waiting=ROOM)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
        waiting = [asyncio.create_task(client.get("/slow")) for _ in range(ROOM)]
        async with asyncio.timeout(20):
            await are_in.wait()
        began = time.perf_counter()
        refused = await client.get("/slow")
        took = time.perf_counter() - began
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        assert took < 1
        assert (await client.get("/health/live")).status_code == 200
        leave.set()
        assert {answer.status_code for answer in await asyncio.gather(*waiting)} == {200}
        assert (await client.get("/slow")).status_code == 200


async def test_a_body_that_does_not_arrive_gives_its_room_back() -> None:
    app = FastAPI()

    @app.post("/echo")
    async def echo(body: dict[str, str]) -> dict[str, str]:
        return body

    async def stuck() -> AsyncGenerator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    app.add_middleware(Admission, waiting=1)
    app.add_middleware(BodyLimit, within=timedelta(seconds=0.2))
    transport = httpx.ASGITransport(app)
    async with (
        asyncio.timeout(20),
        httpx.AsyncClient(transport=transport, base_url="http://t") as h,
    ):
        headers = {"Content-Type": "application/json"}
        refused = await h.post("/echo", content=stuck(), headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (408, "TOO_SLOW")
        assert (await h.post("/echo", json={"a": "b"})).json() == {"a": "b"}


async def test_who_signs_in_takes_no_room_from_who_has_a_token() -> None:
    leave, is_in = asyncio.Event(), asyncio.Event()
    app = FastAPI()

    @app.post(SIGN_IN_PATH)
    async def sign_in() -> None:
        is_in.set()
        await leave.wait()

    @app.get("/memory")
    async def memory() -> None:
        pass

    app.add_middleware(Admission, waiting=1, signing_in=1)
    transport = httpx.ASGITransport(app)
    async with (
        asyncio.timeout(20),
        httpx.AsyncClient(transport=transport, base_url="http://t") as h,
    ):
        signing_in = asyncio.create_task(h.post(SIGN_IN_PATH))
        await is_in.wait()
        assert (await h.post(SIGN_IN_PATH)).status_code == 503
        assert (await h.get("/memory")).status_code == 200
        leave.set()
        assert (await signing_in).status_code == 200


async def test_an_answer_that_has_begun_is_not_overwritten() -> None:
    """The limit cuts what is read, never what is being said."""
    app = FastAPI()

    @app.post("/")
    async def read(body: dict[str, Any]) -> dict[str, Any]:
        return body

    app.add_middleware(BodyLimit, limit=10)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
        assert (await client.post("/", json={"a": 1})).status_code == 200
        assert (await client.post("/", json={"a": "long enough"})).status_code == 413


async def test_health_tells_live_from_ready(server: Server) -> None:
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
        assert (await client.get("/health/live")).json() == {"live": True}
        ready = await client.get("/health/ready")
        assert (ready.status_code, ready.json()["ready"]) == (200, True)
        assert (await client.get("/metrics")).status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.org"])
async def test_without_signing_in_it_is_no_ones_but_this_machines(db: Database, host: str) -> None:
    settings = Settings.model_validate({"http": {"host": host, "port": 0}})
    async with http_app(await wire(settings, db, Silent())) as app:
        with pytest.raises(ConfigurationError, match="loopback"):
            app.open()


async def test_a_port_in_use_is_told_with_the_setting(db: Database, server: Server) -> None:
    port = int(server.url.rpartition(":")[2])
    settings = Settings.model_validate({"http": {"port": port}})
    async with http_app(await wire(settings, db, Silent())) as app:
        with pytest.raises(ConfigurationError, match="AFTERTURN_HTTP__PORT"):
            app.open()


async def test_a_stop_answers_what_was_asked(db: Database) -> None:
    settings = Settings.model_validate({"http": {"port": 0}})
    async with http_app(await wire(settings, db, Silent())) as app:
        app.open()
        await app.start()
        async with httpx.AsyncClient(base_url=app.address, timeout=30) as client:
            turns = [
                asyncio.create_task(
                    client.post("/api/v1/memory/turns", json={**SAID, "session_id": f"s{number}"})
                )
                for number in range(16)
            ]
            await first_is_stored(db)
            await app.stop()
            answers = await asyncio.gather(*turns, return_exceptions=True)
    stored = await db["turns"].count_documents({})
    acknowledged = [
        answer for answer in answers if isinstance(answer, httpx.Response) and answer.is_success
    ]

    assert len(acknowledged) == stored == 16
    assert await is_closed(app)


async def first_is_stored(db: Database) -> None:
    """Wait until the server is at work."""
    async with asyncio.timeout(20):
        # Only the database knows.
        while not await db["turns"].count_documents({}):  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def is_closed(app: HttpApp) -> bool:
    """Return whether nobody is let in any more."""
    async with httpx.AsyncClient(base_url=app.address, timeout=5) as client:
        try:
            await client.get("/health/live")
        except httpx.TransportError:
            return True
    return False


async def test_long_conversations_are_looked_through_beside_the_event_loop(
    db: Database, http: httpx.AsyncClient
) -> None:
    """One agent's long talk must not make the others wait."""
    stored = (await http.post("/turns", json={**SAID, "content": "Hi."})).json()
    turn = await db["turns"].find_one({"_id": stored["id"]})
    assert turn is not None
    rest = {name: turn[name] for name in turn.keys() - {"_id", "seq", "content", "open"}}
    said = [{**rest, "_id": f"t{seq}", "seq": seq} for seq in range(2, 42)]
    text = " ".join(f"word{number}" for number in range(5000))
    await db["turns"].insert_many({**turn, "content": f"{turn['_id']} {text}"} for turn in said)
    asked = {"user_id": "mara", "session_id": "s", "query": "word7", "enabled_sources": ["stm"]}
    answers: list[httpx.Response] = []

    async def ask() -> None:
        answers.append(await http.post("/context", json={**asked, "top_k": 5}))

    began = time.perf_counter()
    gap = await largest_gap(ask())
    took = time.perf_counter() - began

    assert answers[0].json()["metadata"]["memory_counts"] == {"stm": 5}
    # On the event loop nearly all of it would be one gap, on however slow a machine.
    assert gap < took / 3


async def test_blank_text_is_told_so(http: httpx.AsyncClient) -> None:
    blank = {"user_id": "mara", "label": " ", "text": "Prefers tea."}
    refused = await http.post("/semantic", json=blank)

    assert refused.json()["problems"] == [{"field": "label", "rule": "must not be blank"}]
