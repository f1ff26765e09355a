"""The worked examples of the published client's README run as they stand, only at our address."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import metadata
from typing import Any

import agent_engine_sdk_memory as sdk
import pytest

from schemas.identity import DEFAULT_PROJECT
from schemas.project import ProjectSettings
from tests.integration.serving import Server, ask

PROJECT = "<your-project-id>"
LOCAL = "http://localhost:8080"
DECLARED: dict[str, Any] = {
    "metadata_partition_key": [
        {"name": "tier", "type": "string"},
        {"name": "confidence", "type": "number"},
        {"name": "engagement_id", "type": "string"},
    ],
    "metadata_partition_index": {"short_term": ["both"], "semantic": ["both"]},
    "short_term": {"embed_on_write": True},
}
NAMES: dict[str, Any] = {"query": "refunds"} | {
    name: getattr(sdk, name) for name in ("MemorySource", "RetrievalMode")
}
"""What the examples use and say nothing of."""


def examples() -> list[str]:
    """Return the blocks of Python in the README, in order."""
    readme = metadata("agent-engine-sdk-memory").json["description"]
    assert isinstance(readme, str)
    return re.findall(r"```python\n(.*?)```", readme, re.DOTALL)


def run(blocks: Iterable[str], names: dict[str, Any], *, url: str) -> None:
    """Run blocks one after the other, as one program with these names."""
    try:
        for block in blocks:
            exec(block.replace(LOCAL, url), names)  # noqa: S102 (it is what this test is about)
    finally:
        if memory := names.get("memory"):
            memory.close()


@pytest.fixture
async def declared(server: Server) -> Server:
    """A server whose projects have declared what the examples filter by."""
    now, projects = datetime.now(UTC), server.parts.projects
    for project in (PROJECT, DEFAULT_PROJECT):
        settings = ProjectSettings.model_validate(DECLARED)
        number = await projects.store(project, settings, after=0, now=now)
        assert number is not None
        await projects.apply(project, number, now=now)
    return server


async def test_every_example_runs(
    declared: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """But the fourth, whose handle is supplied by a platform."""
    monkeypatch.setenv("AGENTIC_MEMORY_BASE_URL", declared.url)
    blocks = examples()
    assert len(blocks) == 12
    *connecting, platform, first = blocks[:5]
    assert "do not construct it" in platform
    hosted = dict(NAMES)

    for block in connecting:
        await ask(run, [connecting[0], block], dict(NAMES), url=declared.url)
    await ask(run, [first], hosted, url=declared.url)
    told = hosted["context"].formatted_context
    await ask(run, [first, *blocks[5:-1]], hosted, url=declared.url)
    await ask(run, blocks[-1:], dict(NAMES), url=declared.url)

    assert "penicillin" in str(told)
    assert hosted["fact"]["text"] == "Prefers window seats on flights."
    assert [hit.content for hit in hosted["hits"]] == ["Prefers window seats on flights."]
    assert hosted["personal"]
    assert [chunk.content for chunk in hosted["shared"]] == [
        "Refunds over $500 need manager approval."
    ]
    assert capsys.readouterr().out.splitlines()[-1] == "eng-alpha"
