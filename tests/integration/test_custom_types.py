"""Memories of a project's own types, as the published client saves and retrieves them."""

from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from agent_engine_sdk_memory import Memory, MemoryBadRequestError, MemoryNotSupportedError

from schemas.project import ProjectSettings
from tests.integration.serving import Server, ask

SETTINGS = ProjectSettings.model_validate(
    {"custom_memory_types": [{"name": "ticket", "tags": ["status", "points", "where.city"]}]}
)


@pytest.fixture
async def declared(server: Server) -> Server:
    """A server whose default project declares tickets."""
    projects = server.parts.projects
    now = datetime.now(UTC)
    number = await projects.store("default", SETTINGS, after=0, now=now)
    assert number is not None
    await projects.apply("default", number, now=now)
    return server


def in_execution(server: Server, execution_id: str | None) -> tuple[Any, Memory]:
    """Return the clients of an agent's runtime."""
    crud = server.internal(execution_id_provider=lambda: execution_id)
    handle: Any = server.memory()
    return crud, Memory(runtime=handle._runtime, client=crud)


async def speaks(client: Any, user: str) -> None:
    tenancy = {"org_id": "", "project_id": ""}
    said = {"session_id": "s", "role": "user", "content": "Hi.", "user_id": user}
    await ask(client.write_turn, **tenancy, **said)


async def test_a_turn_that_was_refused_tells_nothing_of_its_execution(declared: Server) -> None:
    """Else anybody who names an execution could take it from its user."""
    client, memory = in_execution(declared, "run 1")
    await speaks(client, "mara")
    refused = {"user_id": "bo", "session_id": "s", "role": "user", "content": " "}
    async with httpx.AsyncClient(base_url=f"{declared.url}/api/v1/memory", timeout=30) as http:
        headers = {"X-Agent-Engine-Execution-Id": "run 1"}
        answer = await http.post("/turns", json=refused, headers=headers)

    assert answer.status_code == 422
    assert (await ask(memory.save, "ticket", "The door is stuck.")).id


async def test_a_ticket_is_saved_and_found_by_its_tags_and_words(declared: Server) -> None:
    client, memory = in_execution(declared, "run 1")
    await speaks(client, "mara")
    tags = {"status": "open", "where": {"city": "Oslo"}}
    context = {"note": {"deep": [1]}}
    saved = await ask(
        memory.save, "ticket", "The door is stuck.", tags=tags, contextual_metadata=context
    )
    other = await ask(memory.save, "ticket", "The window rattles.", tags={"status": "open"})
    await ask(memory.save, "ticket", "The door squeaks.", tags={"status": "done"})

    found = await ask(memory.retrieve, "ticket", "window", tags={"status": "open"})
    (exact,) = (
        await ask(memory.retrieve, "ticket", "anything", tags={"where.city": "Oslo"})
    ).results

    assert (saved.type, saved.tags) == ("ticket", {"status": "open", "where.city": "Oslo"})
    assert [one.id for one in found.results] == [other.id, saved.id]
    assert found.count == 2
    assert (exact.id, exact.content, exact.user_id) == (saved.id, "The door is stuck.", "mara")
    assert exact.contextual_metadata == context
    assert (await ask(memory.retrieve, "ticket", "door", top_k=1)).count == 1


async def test_twice_the_same_are_two(declared: Server) -> None:
    client, memory = in_execution(declared, "run 1")
    await speaks(client, "mara")
    await ask(memory.save, "ticket", "Stuck.")
    await ask(memory.save, "ticket", "Stuck.")

    assert (await ask(memory.retrieve, "ticket", "stuck")).count == 2


async def test_nobody_else_finds_it(declared: Server) -> None:
    client, memory = in_execution(declared, "run 1")
    await speaks(client, "mara")
    await ask(memory.save, "ticket", "Stuck.")
    others, elsewhere = in_execution(declared, "run 2")
    await speaks(others, "bo")

    assert (await ask(elsewhere.retrieve, "ticket", "stuck")).count == 0
    tenancy = {"org_id": "", "project_id": "", "user_id": "mara"}
    for kind in ("semantic", "episodic", "taxonomic", "procedural"):
        async with httpx.AsyncClient(base_url=declared.url, timeout=30) as http:
            body = {"query": "stuck", **tenancy}
            answer = await http.post(f"/api/v1/memory/retrieval/{kind}", json=body)
        assert answer.json()["memories"] == []


async def test_without_a_known_execution_of_one_user_it_is_not_supported(
    declared: Server,
) -> None:
    shared, in_shared = in_execution(declared, "run 1")
    await speaks(shared, "mara")
    await speaks(shared, "bo")
    handles = [declared.memory(), declared.memory("default")]
    handles += [in_shared, *(in_execution(declared, name)[1] for name in (None, "unheard of"))]

    for memory in handles:
        with pytest.raises(MemoryNotSupportedError):
            await ask(memory.save, "ticket", "Stuck.")
        with pytest.raises(MemoryNotSupportedError):
            await ask(memory.retrieve, "ticket", "stuck")


async def test_a_type_or_tag_that_is_not_declared_is_told(declared: Server) -> None:
    client, memory = in_execution(declared, "run 1")
    await speaks(client, "mara")

    with pytest.raises(MemoryBadRequestError, match="declares ticket") as unknown:
        await ask(memory.save, "planted", "Stuck.")
    assert (unknown.value.status, unknown.value.code) == (404, "UNKNOWN_TYPE")
    with pytest.raises(MemoryBadRequestError, match=r"points, status, where\.city") as undeclared:
        await ask(memory.retrieve, "ticket", "stuck", tags={"planted": 1})
    assert undeclared.value.status == 422
    assert "planted" not in str(undeclared.value)


async def test_an_execution_of_another_project_says_nothing_here(declared: Server) -> None:
    client, _ = in_execution(declared, "run 1")
    await speaks(client, "mara")
    header = {"X-Agent-Engine-Execution-Id": "run 1"}
    async with httpx.AsyncClient(base_url=declared.url, headers=header, timeout=30) as http:
        there = await http.post("/api/v1/projects/q/memory/types/ticket", json={"content": "c"})
        here = await http.post("/api/v1/memory/types/ticket", json={"content": "c"})

    assert (there.status_code, there.json()["code"]) == (404, "NOT_SUPPORTED")
    assert here.status_code == 201
