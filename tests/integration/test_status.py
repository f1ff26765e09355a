"""Where an installation stands, counted from its ledger, and how it flows."""

from datetime import timedelta
from typing import Any

import pytest

from consumers import status
from consumers.status import ledger_status
from consumers.wiring import Installation, wire
from pipeline.errors import AnswerError
from pipeline.settings import Settings
from pipeline.stores.figures import MongoFigures, Totals
from pipeline.stores.mongo import Database
from schemas.extraction import Outcome
from schemas.failure import FailureClass, LetterState
from tests.console_world import Loopback, converse, extract, fact
from tests.integration.test_extracting import ScriptedModel

LATER_MS = 2**60


async def stand(db: Database) -> Installation:
    """Return an installation with extractions that wait, are worked on, ended, and not begun."""
    broker = Loopback()
    parts = await wire(Settings(), db, broker)
    down = AnswerError(FailureClass.UNAVAILABLE, "http_503")
    refused = AnswerError(FailureClass.REFUSED, "refusal")
    good = {"semantic": [fact(1, "I live in Porto")]}
    for name, answer in (
        ("waits", down),
        ("waits too", down),
        ("worked on", down),
        ("dead", refused),
        ("good", good),
    ):
        cut = await converse(parts, broker, "I live in Porto.", "Noted.", session_id=name)
        await extract(parts, broker, ScriptedModel(answer))
        if name == "worked on":
            held = {"fence": 9, "owner": "o", "lease_until_ms": LATER_MS, "message": "m"}
            await db["extractions"].update_one(
                {"_id": f"{cut.snapshot_id}:0"}, {"$set": {"claim": held | {"ticket": "t"}}}
            )
    await converse(parts, broker, "I live in Porto.", session_id="not begun")
    return parts


@pytest.mark.parametrize("batch", [1, 500])
async def test_what_is_pending_is_counted_whatever_is_read_at_once(
    db: Database, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(status, "BATCH", batch)
    parts = await stand(db)

    found: dict[str, Any] = (await ledger_status(parts))["extractions"]

    assert (found["queued"], found["worked_on"]) == (1, 1)
    assert [tier["extractions"] for tier in found["waiting"].values()] == [2]
    assert found["reasons"]["http_503"]["extractions"] == 2


async def test_how_it_flows_is_counted_from_a_moment_on(db: Database) -> None:
    parts = await stand(db)
    figures = MongoFigures(db)
    now = parts.clock.now()

    lately = await figures.flow(now - timedelta(hours=1))
    deaths = await figures.deaths(now - timedelta(hours=1), None)

    assert await figures.totals() == Totals(turns=11, snapshots=6, extractions=5, records=1)
    assert (lately.turns, lately.snapshots, lately.extractions) == (11, 6, 2)
    assert lately.outcomes == {Outcome.DEAD: 1, Outcome.RECORDS: 1}
    assert [(one.failure_class, one.state) for one in deaths] == [
        (FailureClass.REFUSED, LetterState.DEAD)
    ]
    assert (await figures.flow(now + timedelta(hours=1))).turns == 0
    assert await figures.deaths(now - timedelta(hours=1), ("another",)) == []
