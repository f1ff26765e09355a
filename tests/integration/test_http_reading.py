"""Searches and contexts over HTTP: modes, options, degradation, as agents' client sees them."""

import json
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

import httpx
import pytest
from agent_engine_sdk_memory import Memory, MemorySource, RetrievalMode, SourceSpec

from pipeline.reading.index import Mode
from pipeline.stores.mongo import Database
from tests.integration.serving import Server, ask, served
from tests.scripted_endpoint import ScriptedEndpoint, raw, status
from tests.searching_world import PROJECT, World, world_over

TEXTS = ("The boat is moored in Lagos.", "The boat needs a sail.", "Mara drinks green tea.")
CANARY = TEXTS[1]
SOURCES = "/retrieval/context-from-sources"


@pytest.fixture
async def world(db: Database) -> World:
    return await world_over(db, refusing={CANARY})


@pytest.fixture
async def server(db: Database, world: World) -> AsyncGenerator[Server]:
    async with served(db, searching=world.searcher) as running:
        yield running


@pytest.fixture
async def http(server: Server) -> AsyncGenerator[httpx.AsyncClient]:
    base = f"{server.url}/api/v1/projects/{PROJECT}/memory"
    async with httpx.AsyncClient(base_url=base, timeout=30) as client:
        yield client


@pytest.fixture
async def memory(server: Server, world: World) -> Memory:
    """The published client of somebody with three facts, one of which can't be embedded."""
    client = server.memory(PROJECT, user_id="mara", session_id="s")
    for text in TEXTS:
        await ask(client.save_semantic, text=text, label=text)
    await world.embed()
    return client


async def post(http: httpx.AsyncClient, path: str, **body: Any) -> dict[str, Any]:
    answer = await http.post(path, json={"user_id": "mara", **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_what_cannot_be_embedded_is_found_by_text_and_hybrid_and_not_by_semantic(
    memory: Memory,
) -> None:
    found: dict[str, list[str]] = {}
    for mode in RetrievalMode:
        context = await ask(
            memory.build_context_from_sources,
            query="does it need a sail",
            sources=[SourceSpec(source=MemorySource.SEMANTIC, mode=mode)],
            include_memories=True,
        )
        (outcome,) = context.metadata.source_outcomes or []
        assert (outcome["requested_mode"], outcome["effective_mode"]) == (mode, mode)
        assert (outcome["error"], outcome.get("retryable")) == (None, False)
        assert outcome["count"] == len(context.selected_memories or [])
        found[mode] = [chunk.content for chunk in context.selected_memories or []]

    assert found[RetrievalMode.TEXT] == [CANARY]
    assert CANARY in found[RetrievalMode.HYBRID]
    assert sorted(found[RetrievalMode.SEMANTIC]) == sorted(set(TEXTS) - {CANARY})


async def test_searches_are_hybrid_and_a_source_is_semantic_unless_they_say_otherwise(
    memory: Memory, http: httpx.AsyncClient
) -> None:
    hits = await ask(memory.search_semantic, "does it need a sail")
    by_default = await post(http, "/search", type="semantic", query="sail")
    by_meaning = await post(
        http, "/retrieval/semantic", query="green tea", similarity_threshold=0.4
    )
    context = await post(http, SOURCES, query="sail", sources=[{"source": "semantic"}])

    assert {hit.content for hit in hits} == set(TEXTS)
    assert by_default["effective_mode"] == Mode.HYBRID
    assert by_meaning["effective_mode"] == Mode.SEMANTIC
    assert [chunk["content"] for chunk in by_meaning["memories"]] == [TEXTS[2]]
    assert context["metadata"]["source_outcomes"][0]["effective_mode"] == Mode.SEMANTIC


@pytest.mark.parametrize("style", ["openai", "claude", "jinja2"])
async def test_the_client_builds_contexts_within_budgets_in_each_style(
    memory: Memory, style: str
) -> None:
    for budget in (20, 500, 530, 2000):
        context = await ask(
            memory.build_context,
            query="boat",
            max_tokens=budget,
            format_style=style,
            include_memories=True,
        )
        counts = context.metadata.memory_counts
        assert context.metadata.token_count <= budget
        assert counts == {"episodic": 0, "semantic": len(context.selected_memories or [])}
        assert bool(context.formatted_context) is bool(counts["semantic"]) is (budget > 500)


async def test_near_repeats_over_sources_are_in_a_context_once(
    memory: Memory, http: httpx.AsyncClient
) -> None:
    await ask(memory.record_turn, role="user", content="the boat is  MOORED in Lagos")
    sources = [{"source": source, "mode": "text"} for source in ("stm", "semantic")]
    context = await post(
        http, SOURCES, query="moored", sources=sources, session_id="s", include_memories=True
    )

    assert len(context["selected_memories"]) == 1
    assert [each["count"] for each in context["metadata"]["source_outcomes"]] == [1, 1]


async def test_a_greeting_needs_no_memory_where_the_caller_says_so(
    memory: Memory, world: World, http: httpx.AsyncClient
) -> None:
    world.reads.is_down = True
    skipped = await post(http, "/context", query="Hi there!", skip_trivial=True)
    world.reads.is_down = False
    searched = await post(http, "/context", query="Hi there!")
    said_more = await post(http, "/context", query="Hi, my boat?", skip_trivial=True)

    assert skipped["formatted_context"] == []
    assert skipped["metadata"]["skipped"] == "trivial"
    assert skipped["metadata"]["ranking_strategy"] == "client_rrf"
    assert "skipped" not in searched["metadata"]
    assert said_more["metadata"]["token_count"] > 0


async def test_where_nothing_can_be_read_a_caller_says_whether_that_is_an_error(
    memory: Memory, world: World, http: httpx.AsyncClient
) -> None:
    world.reads.is_down = True
    asked: dict[str, Any] = {"query": "boat", "user_id": "mara"}
    sources = {"sources": [{"source": "semantic"}, {"source": "taxonomic"}]}
    for path, body in (("/context", asked), (SOURCES, {**asked, **sources})):
        refused = await http.post(path, json=body)
        opened = await http.post(path, json={**body, "fail_open": True, "format_style": "claude"})

        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        assert (opened.status_code, opened.json()["formatted_context"]) == (200, "")
        outcomes = opened.json()["metadata"]["source_outcomes"]
        assert [outcome["error"] for outcome in outcomes] == ["AutoReconnect"] * 2


async def test_one_source_that_fails_is_an_outcome_and_the_others_are_read(
    memory: Memory, world: World, http: httpx.AsyncClient
) -> None:
    await ask(memory.record_turn, role="user", content="My boat is red.")
    world.reads.is_down = True
    sources = [{"source": "stm", "mode": "text"}, {"source": "semantic"}]
    context = await post(http, SOURCES, query="boat", sources=sources, session_id="s")

    errors = [outcome["error"] for outcome in context["metadata"]["source_outcomes"]]
    assert errors == [None, "AutoReconnect"]
    assert context["formatted_context"] == [{"role": "user", "content": "My boat is red."}]


async def test_what_was_said_just_before_is_looked_for_too(
    memory: Memory, http: httpx.AsyncClient
) -> None:
    async def best(**more: Any) -> str:
        sources = [{"source": "semantic", "mode": "text", "top_k": 1}]
        body = {"query": "where is it", "sources": sources, "include_memories": True, **more}
        (chunk,) = (await post(http, SOURCES, **body))["selected_memories"]
        return chunk["content"]

    assert await best(recent_context=["I drink a lot of green tea."]) == TEXTS[2]
    crowded = ["I drink a lot of green tea.", "boat " * 600, "I bought a sail."]
    assert await best(recent_context=crowded) == CANARY
    too_many = {"query": "q", "user_id": "mara", "recent_context": ["x"] * 11}
    refused = await http.post("/context", json=too_many)
    assert (refused.status_code, refused.json()["problems"][0]["field"]) == (422, "recent_context")


async def test_history_is_read_on_request_only(
    memory: Memory, world: World, http: httpx.AsyncClient
) -> None:
    red = await world.save("The paint is red.", label="paint")
    await world.save("The paint is blue.", label="paint")

    async def states(**more: Any) -> list[tuple[str, str | None]]:
        body: dict[str, Any] = {"type": "semantic", "query": "paint", "mode": "text", **more}
        found = (await post(http, "/search", **body))["memories"]
        return sorted((each["content"], each["metadata"].get("state")) for each in found)

    was_red, is_blue = "The paint is red.", "The paint is blue."
    assert await states() == [(is_blue, None)]
    assert await states(include_history=True) == [(is_blue, None), (was_red, "replaced")]
    assert await states(as_of=red.since.isoformat()) == [(was_red, "replaced")]
    early = (red.since - timedelta(days=1)).isoformat()
    assert await states(as_of=early) == []
    assert await states(query_timestamp=early) == [(is_blue, None)]
    naive = {"type": "semantic", "query": "paint", "user_id": "mara", "as_of": "2026-01-01"}
    assert (await http.post("/search", json=naive)).status_code == 422


async def reranked(server: Server) -> dict[str, Any]:
    base = f"{server.url}/api/v1/projects/{PROJECT}/memory"
    sources = [{"source": "semantic", "mode": "text"}]
    async with httpx.AsyncClient(base_url=base, timeout=30) as http:
        body = {"query": "the boat", "sources": sources, "rerank": True, "include_memories": True}
        return await post(http, SOURCES, **body)


def contents(context: dict[str, Any]) -> list[str]:
    return [chunk["content"] for chunk in context["selected_memories"]]


async def test_a_reranker_puts_what_was_found_in_order(
    db: Database, world: World, endpoint: ScriptedEndpoint
) -> None:
    for text in TEXTS[:2]:
        await world.save(text)
    rerank = {"provider": "voyage", "base_url": endpoint.url, "api_key": "k"}
    async with served(db, searching=world.searcher, rerank=rerank) as server:
        scores = [{"index": 0, "relevance_score": 0.1}, {"index": 1, "relevance_score": 0.9}]
        orders: list[list[str]] = []
        for order in (scores, [{**each, "index": 1 - each["index"]} for each in scores]):
            endpoint.script(raw(json.dumps({"data": order}).encode()))
            context = await reranked(server)
            assert context["metadata"]["ranking_strategy"] == "voyage_rerank"
            orders.append(contents(context))

        assert orders[0] == orders[1][::-1]
        assert set(orders[0]) == set(TEXTS[:2])
        for reply in (status(503), raw(b"{}"), raw(b"<html>"), status(401)):
            endpoint.script(reply)
            context = await reranked(server)
            assert context["metadata"]["ranking_strategy"] == "client_rrf"
            assert context["metadata"]["rerank_error"]
            assert set(contents(context)) == set(TEXTS[:2])


async def test_without_a_reranker_it_is_said(memory: Memory, server: Server) -> None:
    context = await reranked(server)

    assert context["metadata"]["ranking_strategy"] == "client_rrf"
    assert context["metadata"]["rerank_error"] == "not_configured"
