"""What a project declares is what its contexts may be filtered by, for the client agents have."""

from datetime import UTC, datetime
from typing import Any

import pytest
from agent_engine_sdk_memory import (
    ContextResponse,
    Memory,
    MemoryBadRequestError,
    MemoryServerError,
    MemorySource,
    RetrievalMode,
    SourceSpec,
)

from schemas.project import ProjectSettings
from tests.integration.serving import Server, ask

KEYS: list[dict[str, str]] = [
    {"name": "engagement_id", "type": "string"},
    {"name": "score", "type": "number"},
]
BOTH: dict[str, Any] = {
    "metadata_partition_key": KEYS,
    "metadata_partition_index": {"short_term": ["both"], "semantic": ["text"]},
    "short_term": {"embed_on_write": True},
}
PROJECT = "acme"


async def configured(server: Server, **block: Any) -> None:
    projects, now = server.parts.projects, datetime.now(UTC)
    settings = ProjectSettings.model_validate(block)
    number = await projects.store(PROJECT, settings, after=0, now=now)
    assert number is not None
    await projects.apply(PROJECT, number, now=now)


async def talk(server: Server, project: str | None = PROJECT) -> Memory:
    memory = server.memory(project, user_id="ana", session_id="t")
    for engagement, score in (("eng-alpha", 1), ("eng-beta", 9)):
        await ask(
            memory.record_turn,
            role="user",
            content=f"The engagement {engagement} is green.",
            metadata={"engagement_id": engagement, "score": score},
        )
    return memory


def engagements(found: ContextResponse) -> list[str]:
    chunks = found.selected_memories or []
    return [(chunk.metadata or {})["metadata"]["engagement_id"] for chunk in chunks]


async def context(memory: Memory, *specs: SourceSpec) -> ContextResponse:
    return await ask(
        memory.build_context_from_sources,
        query="what is the engagement status?",
        sources=list(specs),
        session_id="t",
        include_memories=True,
    )


def stm(
    wanted: dict[str, Any] | None = None, mode: RetrievalMode = RetrievalMode.HYBRID
) -> SourceSpec:
    return SourceSpec(source=MemorySource.STM, mode=mode, metadata_filter=wanted)


async def test_the_worked_example_of_metadata_runs_with_its_filter(server: Server) -> None:
    await configured(server, **BOTH)
    memory = await talk(server)

    found = await context(memory, stm({"metadata.engagement_id": "eng-alpha"}))
    ranged = await context(memory, stm({"metadata.score": {"$gt": 5}}))

    assert engagements(found) == ["eng-alpha"]
    assert engagements(ranged) == ["eng-beta"]


async def test_what_is_not_declared_is_refused_with_what_is(server: Server) -> None:
    await configured(server, **BOTH)
    memory = await talk(server)

    for wrong in ("metadata.engagement", "engagement_id"):
        with pytest.raises(MemoryBadRequestError) as refused:
            await context(memory, stm({wrong: "eng-alpha"}))
        assert "agent_id, metadata.engagement_id, metadata.score" in str(refused.value)
    with pytest.raises(MemoryBadRequestError, match="declared as string"):
        await context(memory, stm({"metadata.engagement_id": {"$gt": "a"}}))


async def test_a_source_is_filtered_in_the_ways_it_is_listed_for(server: Server) -> None:
    await configured(server, **BOTH)
    memory = await talk(server)
    wanted = {"metadata.score": 1}
    listed = SourceSpec(
        source=MemorySource.SEMANTIC, mode=RetrievalMode.TEXT, metadata_filter=wanted
    )

    await context(memory, listed)

    for source, mode in (
        (MemorySource.SEMANTIC, RetrievalMode.HYBRID),
        (MemorySource.EPISODIC, RetrievalMode.TEXT),
    ):
        spec = SourceSpec(source=source, mode=mode, metadata_filter=wanted)
        with pytest.raises(MemoryBadRequestError, match="metadata_partition_index"):
            await context(memory, spec)
        await context(memory, spec.model_copy(update={"metadata_filter": {"agent_id": "a"}}))


async def test_turns_that_are_not_listed_are_a_source_with_an_error(server: Server) -> None:
    await configured(server, metadata_partition_index={"semantic": ["text"]})
    memory = await talk(server)
    semantic = SourceSpec(source=MemorySource.SEMANTIC, mode=RetrievalMode.TEXT)

    found = await context(memory, stm(mode=RetrievalMode.TEXT), semantic)
    with pytest.raises(MemoryServerError) as none:
        await context(memory, stm(mode=RetrievalMode.TEXT))

    by_source = {each["source"]: each for each in found.metadata.source_outcomes or []}
    assert "list short_term" in (by_source["stm"]["error"] or "")
    assert by_source["semantic"]["error"] is None
    assert "list short_term" in str(none.value)


async def test_a_project_without_settings_has_its_turns_and_declares_nothing(
    server: Server,
) -> None:
    await configured(server, **BOTH)
    memory = await talk(server, "another")

    found = await context(memory, stm(mode=RetrievalMode.TEXT))

    assert len(found.selected_memories or []) == 2
    with pytest.raises(MemoryBadRequestError, match="declared are: agent_id"):
        await context(memory, stm({"metadata.engagement_id": "eng-alpha"}))
