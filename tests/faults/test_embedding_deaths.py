"""`kill -9` of a real process that embeds: nothing pending is lost, nothing has two vectors."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pipeline.crash_points import CrashPoint
from pipeline.embedding.ledger import texts_of
from schemas.embedding import EmbeddingState
from schemas.project import ProjectSettings
from tests.faults.system import System
from tests.faults.test_crash_points import SAID, TURNS, home, installed
from tests.scripted_endpoint import Json, Reply, ScriptedEndpoint, sends

WITHIN = timedelta(seconds=90)


def answer(request: Json) -> Reply:
    """Be the model, or the embedder."""
    if "input" not in request:
        return home(request)
    rows = [
        {"index": place, "embedding": [1, len(text), 0]}
        for place, text in enumerate(request["input"])
    ]
    return sends({"data": rows})


async def is_embedded(running: System) -> bool:
    """Return whether a record and every turn is there, and nothing is pending."""
    for name, least in (("records", 1), ("turns", TURNS)):
        collection = running.parts.database[name]
        done = {"embedding.state": EmbeddingState.EMBEDDED.value}
        there = await collection.count_documents({})
        if there < least or await collection.count_documents(done) != there:
            return False
    return True


async def gets_embedded(running: System) -> None:
    async with asyncio.timeout(WITHIN.total_seconds()):
        while True:
            if await is_embedded(running):
                return
            await asyncio.sleep(0.5)


async def test_whoever_comes_after_a_kill_embeds_what_was_begun(
    mongo_uri: str, endpoint: ScriptedEndpoint, tmp_path: Path
) -> None:
    """It dies with vectors written and not accounted for, of a turn or of a record."""
    endpoint.respond_with(answer)
    environment = {
        "AFTERTURN_EMBEDDING__PROVIDER": "openai_compatible",
        "AFTERTURN_EMBEDDING__MODEL": "scripted-vectors",
        "AFTERTURN_EMBEDDING__BASE_URL": endpoint.url,
        "AFTERTURN_EMBEDDING__DIMENSION": "3",
        "AFTERTURN_EMBEDDING__TIMEOUT": "2",
    }
    async with installed(mongo_uri, endpoint, tmp_path) as running:
        parts = running.parts
        wants = ProjectSettings.model_validate({"short_term": {"embed_on_write": True}})
        now = datetime.now(UTC)
        number = await parts.projects.store("default", wants, after=0, now=now)
        assert number is not None
        assert await parts.projects.apply("default", number, now=now)
        first = running.start(SAID, crash_at=CrashPoint.VECTORS_PUT, environment=environment)
        assert await running.dies(first)
        assert first.exitcode == -9
        assert not await is_embedded(running)

        running.start(SAID, environment=environment)
        await running.settles(TURNS)
        await gets_embedded(running)

        report = await running.audit()
        assert report.violations == []
        assert report.embedded_turns == TURNS
        owners = [found.owner for found in await parts.embeddings.after("", 99, project_id=None)]
        stored = await parts.database["vectors"].count_documents({})
        assert stored == sum(len(texts_of(owner)) for owner in owners)
        asked = Counter(
            text for one in endpoint.requests for text in one.json.get("input", ()) or ()
        )
        paid = [asked[words] for _, words in SAID]
        assert min(paid) >= 1
        assert max(paid) <= 2 * 2, "a turn and a record say it, each was cut off once at most"
