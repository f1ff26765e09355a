"""What is planted is read by whom the AND table says, over every read route, and by nobody else."""

from collections.abc import AsyncGenerator
from itertools import product
from typing import Any

import httpx
import pytest

from tests.integration.serving import Server

PROJECTS = ("alpha", "beta")
USERS = ("mara", "bo")
VISIBILITIES = ("private", "org", "shared")
KINDS = ("semantic", "episodic", "procedural", "taxonomic")
BLANKS: tuple[Any, ...] = (None, "", "  ")

Planted = dict[tuple[str, str, str, str], str]


def body_of(kind: str, mark: str) -> dict[str, Any]:
    """Return what makes a memory of a kind whose content is a mark."""
    return {
        "semantic": {"label": mark, "text": mark},
        "episodic": {"title": mark, "content": mark, "session_id": "s"},
        "procedural": {"procedure": mark, "description": mark, "content": mark},
        "taxonomic": {"domain": "d", "term": mark, "definition": mark},
    }[kind]


@pytest.fixture
async def http(server: Server) -> AsyncGenerator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"{server.url}/api/v1", timeout=30) as client:
        yield client


async def plant(http: httpx.AsyncClient) -> Planted:
    """Save a memory for every project, user, visibility and kind; return their marks."""
    planted: Planted = {}
    for place, key in enumerate(product(PROJECTS, USERS, VISIBILITIES, KINDS)):
        project, user, visibility, kind = key
        mark = f"mark {place} end"
        saved = await http.post(
            f"/projects/{project}/memory/{kind}",
            json={**body_of(kind, mark), "user_id": user, "visibility": visibility},
        )
        assert saved.status_code == 201, saved.text
        planted[key] = mark
    return planted


def allowed(planted: Planted, project: str, user: Any, visibility: Any, kind: str) -> set[str]:
    """Return the marks that a read may see: each field that is given narrows it."""
    reach = {"shared": "org"}
    wanted = None if visibility in BLANKS else reach.get(visibility, visibility)
    return {
        mark
        for (in_project, owner, reaches, of_kind), mark in planted.items()
        if in_project == project
        and of_kind == kind
        and user in (*BLANKS, owner)
        and wanted in (None, reach.get(reaches, reaches))
    }


async def seen(
    http: httpx.AsyncClient, route: str, project: str, named: dict[str, Any], kind: str
) -> set[str]:
    """Return the marks that a route gives back."""
    base = f"/projects/{project}/memory"
    match route:
        case "list":
            given = {name: value for name, value in named.items() if value is not None}
            limit = {"limit": 200}
            answer = await http.get(f"{base}/{kind}", params={**given, **limit})
        case "search":
            body = {"type": kind, "query": "mark", "top_k": 200, **named}
            answer = await http.post(f"{base}/search", json=body)
        case "retrieval":
            body = {"query": "mark", "top_k": 200, **named}
            answer = await http.post(f"{base}/retrieval/{kind}", json=body)
        case "context":
            body = {"query": "mark", "enabled_sources": [kind], "include_memories": True}
            answer = await http.post(f"{base}/context", json={**body, "top_k": 200, **named})
        case _:
            body = {"query": "mark", "sources": [{"source": kind, "top_k": 200}]}
            body |= {"include_memories": True, **named}
            answer = await http.post(f"{base}/retrieval/context-from-sources", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, list[dict[str, str]]] = answer.json()
    entries = found.get("entries") or found.get("memories") or found.get("selected_memories") or []
    marks = [entry["content"] for entry in entries]
    return {mark.rpartition(": ")[2] if kind == "taxonomic" else mark for mark in marks}


async def test_each_given_field_narrows_and_none_widens(http: httpx.AsyncClient) -> None:
    planted = await plant(http)
    routes = ("list", "search", "retrieval", "context", "sources")
    for route, kind, project in product(routes, KINDS, PROJECTS):
        for user, visibility in product((*USERS, *BLANKS), (*VISIBILITIES, *BLANKS)):
            named = {"user_id": user, "visibility": visibility}
            found = await seen(http, route, project, named, kind)
            may = allowed(planted, project, user, visibility, kind)
            assert may, "a matrix of empty answers would show nothing"
            assert found == may, (route, kind, project, named)


@pytest.mark.parametrize("kind", ["semantic", "procedural"])
async def test_one_memory_is_read_within_its_scope_only(http: httpx.AsyncClient, kind: str) -> None:
    saved = await http.post(
        f"/projects/alpha/memory/{kind}", json={**body_of(kind, "mark"), "user_id": "mara"}
    )
    name = saved.json()["id"]

    async def status(project: str, **named: str) -> int:
        path = f"/projects/{project}/memory/{kind}/{name}"
        return (await http.get(path, params=named)).status_code

    assert await status("alpha", user_id="mara") == 200
    assert await status("alpha", user_id="mara", visibility="private") == 200
    assert await status("alpha", user_id="bo") == 404
    assert await status("alpha", visibility="org") == 404
    assert await status("beta", user_id="mara") == 404


@pytest.mark.parametrize("verb", ["PATCH", "DELETE"])
async def test_nobody_changes_what_is_another_users(http: httpx.AsyncClient, verb: str) -> None:
    base = "/projects/alpha/memory/semantic"
    saved = await http.post(base, json={**body_of("semantic", "mark"), "user_id": "mara"})
    path = f"{base}/{saved.json()['id']}"
    content: dict[str, Any] = {"json": {"user_id": "bo", "text": "x"}} if verb == "PATCH" else {}

    refused = await http.request(verb, path, params={"user_id": "bo"}, **content)

    assert refused.status_code == 404
    assert (await http.get(path, params={"user_id": "mara"})).json()["text"] == "mark"


async def test_a_project_named_twice_must_be_one(http: httpx.AsyncClient) -> None:
    said = {"user_id": "mara", "session_id": "s", "role": "user", "content": "Hi."}

    refused = await http.post("/projects/alpha/memory/turns", json={**said, "project_id": "beta"})
    blank = await http.post("/projects/alpha/memory/turns", json={**said, "project_id": ""})

    assert (refused.status_code, refused.json()["problems"][0]["field"]) == (422, "project_id")
    assert blank.status_code == 201


@pytest.mark.parametrize("project", ["%20", "%00", "%0A", "%C2%85", "a" * 257])
async def test_a_project_in_the_path_must_be_a_name(http: httpx.AsyncClient, project: str) -> None:
    asked = {"query": "q", "user_id": "mara", "sources": [{"source": "semantic"}]}
    base = f"/projects/{project}/memory"

    for answer in (
        await http.get(f"{base}/semantic", params={"user_id": "mara"}),
        await http.post(f"{base}/semantic", json=body_of("semantic", "mark")),
        await http.post(f"{base}/retrieval/context-from-sources", json=asked),
    ):
        assert (answer.status_code, answer.json()["problems"][0]["field"]) == (422, "project_id")


@pytest.mark.parametrize(
    ("header", "field"),
    [("X-Agent-Engine-Agent-Id", "agent_id"), ("X-Agent-Engine-Execution-Id", "execution_id")],
)
async def test_a_name_in_a_header_is_held_to_the_rules_of_one_in_a_body(
    http: httpx.AsyncClient, header: str, field: str
) -> None:
    for sent in (b"x" * 257, b"a\tb", b"\x81"):
        refused = await http.post(
            "/memory/semantic", json=body_of("semantic", "mark"), headers={header.encode(): sent}
        )
        assert (refused.status_code, refused.json()["problems"][0]["field"]) == (422, field)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_save_names_its_owner(http: httpx.AsyncClient, kind: str) -> None:
    for user in BLANKS:
        refused = await http.post(
            f"/memory/{kind}", json={**body_of(kind, "mark"), "user_id": user}
        )
        assert refused.status_code == 422
        assert refused.json()["problems"] == [{"field": "user_id", "rule": "is required"}]
