"""The published client drives the server: what its README shows, and what it promises."""

from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
from agent_engine_sdk_memory import (
    Memory,
    MemoryBadRequestError,
    MemoryRouteNotFoundError,
    MemorySource,
    RetrievalMode,
    SourceSpec,
)

from pipeline.stores.mongo import Database
from tests.integration.serving import Server, ask, served
from tests.integration.signing import account, token_of

TENANCY: dict[str, Any] = {"org_id": "o", "project_id": "alpha"}


@pytest.fixture(params=[None, "alpha"], ids=["direct", "project"])
def project(request: pytest.FixtureRequest) -> str | None:
    """Return the project whose routes are called; none for those that name none."""
    return request.param


@pytest.fixture(params=["off", "on"])
async def session(
    db: Database, project: str | None, request: pytest.FixtureRequest
) -> AsyncGenerator[Memory]:
    """A client bound to a user and a conversation, by each kind of route, signed in or not."""
    bound = {"user_id": "user_1", "session_id": "thread_123"}
    async with served(db, auth=request.param) as server:
        token = None
        if request.param == "on":
            credentials = await account(server.parts, "assistant", "alpha")
            async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
                token = await token_of(http, credentials)
        yield server.memory(project, token=token, **bound)


async def test_a_turn_is_read_at_once(session: Memory) -> None:
    first = await ask(session.record_turn, role="user", content="I'm allergic to penicillin.")
    second = await ask(session.record_turn, role="assistant", content="Noted.")
    context = await ask(
        session.build_context,
        query="What medications should I avoid?",
        enabled_sources={"stm", "episodic", "semantic"},
        max_tokens=2048,
    )

    assert (first.turn_seq, second.turn_seq, first.session_id) == (1, 2, "thread_123")
    assert context.formatted_context == [
        {"role": "user", "content": "I'm allergic to penicillin."},
        {"role": "assistant", "content": "Noted."},
    ]
    assert context.metadata.memory_counts["stm"] == 2


async def test_the_worked_example_of_metadata_runs(session: Memory) -> None:
    """But for its filter, whose key nobody has declared: that is told, with what is declared."""
    await ask(
        session.record_turn,
        role="user",
        content="The engagement is green and the rollout continues.",
        metadata={"engagement_id": "eng-alpha", "role": "mine", "Tier": 2},
    )
    spec = SourceSpec(source=MemorySource.STM, mode=RetrievalMode.HYBRID)
    context = await ask(
        session.build_context_from_sources,
        query="what is the engagement status?",
        sources=[spec],
        session_id="thread_123",
        include_memories=True,
    )
    (chunk,) = context.selected_memories or []
    metadata = chunk.metadata or {}

    assert metadata["metadata"] == {"engagement_id": "eng-alpha", "role": "mine", "Tier": 2}
    assert metadata["role"] == "user"
    (outcome,) = context.metadata.source_outcomes or []
    assert (outcome["requested_mode"], outcome["effective_mode"]) == ("hybrid", "text")
    filtered = spec.model_copy(update={"metadata_filter": {"metadata.engagement_id": "x"}})
    with pytest.raises(MemoryBadRequestError, match="declared are: agent_id"):
        await ask(
            session.build_context_from_sources,
            query="status",
            sources=[filtered],
            session_id="thread_123",
        )


async def test_no_metadata_is_no_slot(session: Memory) -> None:
    await ask(session.record_turn, role="user", content="Hello there.", metadata={})
    context = await ask(
        session.build_context, query="hello", enabled_sources={"stm"}, include_memories=True
    )
    (chunk,) = context.selected_memories or []

    assert "metadata" not in (chunk.metadata or {})


async def test_a_turn_keeps_its_tool_calls_and_its_model(session: Memory) -> None:
    calls: list[dict[str, Any]] = [
        {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}},
        {"id": "2", "name": "find", "input": {"b": 2}},
    ]
    await ask(session.record_turn, role="assistant", tool_calls=calls, model_name="some-model")
    await ask(
        session.record_turn,
        role="tool",
        content="not found",
        tool_call_id="2",
        tool_name="find",
        is_error=True,
    )
    context = await ask(
        session.build_context, query="find", enabled_sources={"stm"}, include_memories=True
    )
    read = [chunk.metadata or {} for chunk in context.selected_memories or []]
    by_role = {metadata["role"]: metadata for metadata in read}

    assert by_role["assistant"]["model_name"] == "some-model"
    assert by_role["assistant"]["tool_calls"] == [
        {"id": "1", "name": "look", "arguments": '{"a": 1}'},
        {"id": "2", "name": "find", "arguments": {"b": 2}},
    ]
    assert (by_role["tool"]["tool_call_id"], by_role["tool"]["is_error"]) == ("2", True)


async def test_a_fact_is_saved_replaced_and_found(session: Memory) -> None:
    saved = await ask(
        session.save_semantic,
        text="Prefers window seats on flights.",
        label="seat-preference",
        metadata={"tier": "gold"},
    )
    await ask(session.save_semantic, text="Prefers aisle seats now.", label="seat-preference")
    fact = await ask(session.get_semantic, "seat-preference")
    hits = await ask(session.search, "aisle seats", sources=["semantic", "episodic"], top_k=5)

    assert fact is not None
    assert (fact["id"], fact["text"]) == (saved.id, "Prefers aisle seats now.")
    assert [hit.content for hit in hits] == ["Prefers aisle seats now."]
    assert await ask(session.get_semantic, "no-such-label") is None


async def test_episodes_are_listed_of_one_conversation_only_where_it_is_named(
    session: Memory,
) -> None:
    await ask(session.save_episode, title="Call", content="We renewed.", session_id="monday")
    await ask(
        session.save_episode,
        title="Call",
        content="We renewed.",
        summary="Renewal",
        participants=["Mara"],
        tags=["sales"],
    )

    assert len(await ask(session.list_episodes)) == 2
    (monday,) = await ask(session.list_episodes, session_id="monday")
    assert monday["session_id"] == "monday"
    assert len(await ask(session.search_episodes, "renewed", session_id="monday")) == 1


async def test_an_episode_drops_an_older_formats_metadata_whole(session: Memory) -> None:
    scores = {"citation_score": 1, "llm_confidence_score": 1, "combined_score": 1}
    await ask(session.save_episode, title="A", content="a", metadata={**scores, "mine": 1})
    await ask(
        session.save_episode, title="B", content="b", metadata={"citation_score": 1, "mine": 1}
    )
    read = {episode["title"]: episode["metadata"] for episode in await ask(session.list_episodes)}

    assert read == {"A": {}, "B": {"citation_score": 1, "mine": 1}}


async def test_terms_are_the_projects(session: Memory) -> None:
    await ask(
        session.save_taxonomic,
        domain="billing",
        term="dunning",
        definition="Reminding of unpaid invoices.",
        related_terms=["invoice"],
    )
    term = await ask(session.get_taxonomic_term, "billing", "dunning")
    (found,) = await ask(session.search_taxonomic, "unpaid invoices", domain="billing")

    assert term is not None
    assert (term["visibility"], term["related_terms"]) == ("org", ["invoice"])
    assert await ask(session.list_domains, visibility="org") == ["billing"]
    assert found.id == term["id"]
    assert await ask(session.search_taxonomic, "unpaid", domain="shipping") == []


async def test_procedures_come_back_as_they_were_saved(session: Memory) -> None:
    steps = [{"action": "check", "tool": "orders"}, {"action": "refund"}]
    await ask(
        session.save_procedure,
        procedure="refund",
        description="How to refund an order.",
        content="Check the order, then refund it.",
        steps=steps,
        tags=["orders"],
        allowed_tools=["orders"],
        metadata={"tier": 1},
    )
    procedure = await ask(session.get_procedure, "refund")
    (found,) = await ask(session.discover_procedures, "refund an order", tags=["orders"])

    assert procedure is not None
    assert (procedure["steps"], procedure["allowed_tools"]) == (steps, ["orders"])
    assert procedure["content"] == "Check the order, then refund it."
    assert (found["procedure"], found["metadata"]) == ("refund", {"tier": 1})
    assert await ask(session.discover_procedures, "refund", tags=["other"]) == []


async def test_the_clients_of_a_memory_server_itself_find_their_paths(server: Server) -> None:
    """The package's internal client, on both of its prefixes."""
    for prefix in ("/api/v1/memory", "/api/v1"):
        user = prefix.rpartition("/")[2]
        client = server.internal(prefix)
        whose: dict[str, Any] = {**TENANCY, "user_id": user}
        turn = await ask(client.write_turn, session_id="s", role="user", content="Hi.", **whose)
        assert turn.turn_seq == 1
        await ask(client.create_semantic, label="seat", text="window", **whose)
        scope: dict[str, Any] = {**TENANCY, "user_id": user}
        found = await ask(client.fetch_semantic_memories, "window", **scope)
        assert [chunk.content for chunk in found] == ["window"]
        one = await ask(client.get_semantic, id=found[0].id, **scope)
        assert one["label"] == "seat"
        await ask(client.create_procedural, procedure="p", description="d", content="c", **whose)
        changed = await ask(client.update_procedural, procedure="p", content="better", **whose)
        assert changed["content"] == "better"
        assert (await ask(client.get_procedural, procedure="p", **scope))["id"] == changed["id"]
        assert (await ask(client.delete_procedural, procedure="p", **whose)).deleted_count == 1
        assert await ask(client.get_procedural, procedure="p", **scope) is None
        deleted = await ask(client.get_procedural, procedure="p", include_deleted=True, **scope)
        assert deleted["deleted"] is True
        context = await ask(client.build_context, "hi", session_id="s", **scope)
        assert context.metadata.memory_counts == {"episodic": 0, "semantic": 1}


async def test_a_correction_is_found_under_the_same_id(server: Server) -> None:
    client = server.internal()
    whose: dict[str, Any] = {**TENANCY, "user_id": "mara"}
    saved = await ask(client.create_semantic, label="seat", text="window", **whose)
    await ask(client.update_semantic, label="seat", text="aisle", visibility="org", **TENANCY)
    read = await ask(client.get_semantic, id=saved.id, **whose)

    assert (read["text"], read["visibility"]) == ("aisle", "org")


async def test_two_users_of_one_session_id_have_two_conversations(server: Server) -> None:
    mara = server.memory(user_id="mara", session_id="s")
    bo = server.memory(user_id="bo", session_id="s")
    await ask(mara.record_turn, role="user", content="Mine.")
    turn = await ask(bo.record_turn, role="user", content="His.")
    context = await ask(bo.build_context, query="whose?", enabled_sources={"stm"})

    assert turn.turn_seq == 1
    assert context.formatted_context == [{"role": "user", "content": "His."}]


async def test_two_organizations_of_one_user_and_session_id_have_two_conversations(
    server: Server,
) -> None:
    """Else what is said to one would be made into memories of the other."""
    said = {"user_id": "mara", "session_id": "s", "role": "user"}
    async with httpx.AsyncClient(base_url=f"{server.url}/api/v1/memory", timeout=30) as http:
        for org in ("north", "south", None):
            turn = {**said, "org_id": org, "content": f"I work for {org}."}
            stored = await http.post("/turns", json=turn)
            assert stored.json()["turn_seq"] == 1

    stored = [turn async for turn in server.parts.database["turns"].find({})]
    assert len({turn["session"] for turn in stored}) == len(stored) == 3


async def test_a_wrong_address_is_told_with_the_way_out(server: Server) -> None:
    """The client takes a 404 of a core route for a wrong route shape, and says which to try."""
    for project, hint in ((None, "set project_id"), ("alpha", "unset project_id")):
        lost = server.memory(project, path="/elsewhere")
        with pytest.raises(MemoryRouteNotFoundError, match=hint):
            await ask(lost.record_turn, role="user", content="Hi.", session_id="s")
