"""`kill -9` at every named point: whoever comes next finishes, nothing is lost, doubled, repaid."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from compose.embedded import embedded_kafka
from pipeline.crash_points import CrashPoint
from pipeline.reading.memories import text_of
from schemas.extraction import Outcome
from schemas.identity import SessionIdentity
from tests.faults.system import System, system
from tests.faults.worker import Said
from tests.scripted_endpoint import (
    Json,
    Reply,
    ScriptedEndpoint,
    answers,
    cut_off,
    delayed,
    refuses,
    status,
)

TURNS = 4
IDENTITY = SessionIdentity(user_id="ana", session_id="s1")
SAID: list[Said] = [(IDENTITY, f"I live in town number {n}.") for n in range(TURNS)]

TRUNCATED = {CrashPoint.PART_ENLARGED, CrashPoint.PART_SPLIT}
UNAVAILABLE = {
    CrashPoint.FATE_WRITTEN,
    CrashPoint.FATE_PUBLISHED,
    CrashPoint.FATE_MARKED_SENT,
}
REFUSED = {
    CrashPoint.PART_BURIED,
    CrashPoint.LETTER_STORED,
    CrashPoint.LETTER_MOVED,
    CrashPoint.LETTER_PUBLISHED,
    CrashPoint.LETTER_MARKED_SENT,
}
SLOW = {CrashPoint.SNAPSHOT_WOKEN}
SLOWNESS = timedelta(seconds=8)
"""So long an unsettled snapshot is there to be found late, however slow the machine is."""
PATIENT = {
    "AFTERTURN_LLM__TIMEOUT": "9",
    "AFTERTURN_EXTRACTION__ATTEMPT_DEADLINE": "10",
    "AFTERTURN_EXTRACTION__LEASE": "12.5",
}
HELD = {CrashPoint.EXTRACTION_HELD}
CUT_OFF = {CrashPoint.MODEL_ANSWERED, *SLOW}
"""Where a call was under way, or its answer not yet stored, when the process died."""
NEVER_CLOSED = {CrashPoint.SESSION_WOKEN}
REPLAYING = "nothing is replayed here; tests/integration/test_replaying.py"
REDRIVING = "nothing is sent back here; tests/integration/test_letter_desk.py"
FORGETTING = "nothing is forgotten here; tests/faults/test_forgetting.py"
EMBEDDING = "nothing is embedded here; tests/integration/test_embedding_step.py"
ELSEWHERE = {
    CrashPoint.EMBEDDER_ANSWERED: EMBEDDING,
    CrashPoint.EMBEDDING_BEGUN: EMBEDDING,
    CrashPoint.VECTORS_PUT: EMBEDDING,
    CrashPoint.VECTORS_CLEANED: EMBEDDING,
    CrashPoint.EMBEDDING_ENDED: EMBEDDING,
    CrashPoint.EMBEDDING_WAITS: EMBEDDING,
    CrashPoint.EMBEDDING_DEAD: EMBEDDING,
    CrashPoint.EMBEDDING_WOKEN: EMBEDDING,
    CrashPoint.EMBEDDING_POSTPONED: EMBEDDING,
    CrashPoint.EMBEDDING_RENEWED: EMBEDDING,
    CrashPoint.CLEANER_NOTED: EMBEDDING,
    CrashPoint.GAP_NOTED: "minutes apart by design; tests/unit/test_cutting.py crashes there",
    CrashPoint.ASSERTIONS_REMOVED: "no run is replaced yet; tests/properties/test_fold_loop.py",
    CrashPoint.TOMBSTONE_WRITTEN: FORGETTING,
    CrashPoint.SLOT_BARRED: FORGETTING,
    CrashPoint.ANSWER_BLANKED: FORGETTING,
    CrashPoint.SUMMARY_BLANKED: FORGETTING,
    CrashPoint.TOMBSTONE_ADVANCED: FORGETTING,
    CrashPoint.RUN_BEGUN: REPLAYING,
    CrashPoint.JOB_STORED: REPLAYING,
    CrashPoint.RUN_COMPARED: REPLAYING,
    CrashPoint.RUN_ACTIVATED: REPLAYING,
    CrashPoint.ANSWERS_DROPPED: REPLAYING,
    CrashPoint.EARLIER_RUNS_ENDED: REPLAYING,
    CrashPoint.SNAPSHOT_REOPENED: REDRIVING,
    CrashPoint.PART_OPENED: REDRIVING,
    CrashPoint.LETTER_CHANGED: REDRIVING,
    CrashPoint.MESSAGE_SENT_BACK: REDRIVING,
}
POINTS = [point for point in CrashPoint if point not in ELSEWHERE]


def turns_of(request: Json) -> list[Any]:
    """Return the turns a request asks to be extracted from."""
    text: str = request["messages"][-1]["content"]
    _, _, after = text.rpartition("<turns>")
    lines = after.partition("</turns>")[0].splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def home(request: Json) -> Reply:
    """Answer with where the user lives by each turn."""
    return answers(
        semantic=[
            {
                "attribute": "home",
                "label": turn["content"],
                "text": turn["content"],
                "relation": "replaces",
                "evidence": [turn["seq"]],
                "quote": turn["content"],
            }
            for turn in turns_of(request)
        ],
        summary="Where the user lives.",
    )


def truncated(request: Json) -> Reply:
    """Break off every answer about more than one turn."""
    return home(request) if len(turns_of(request)) == 1 else cut_off()


@asynccontextmanager
async def installed(
    mongo_uri: str, endpoint: ScriptedEndpoint, folder: Path
) -> AsyncGenerator[System]:
    async with (
        embedded_kafka(folder / "kafka") as kafka,
        system(mongo_uri, kafka.bootstrap_servers, endpoint, folder) as running,
    ):
        yield running


def script(point: CrashPoint, endpoint: ScriptedEndpoint) -> int:
    """Script the model so that the point is passed; return the calls I4 allows without a crash."""
    if point in TRUNCATED:
        endpoint.respond_with(truncated)
        return 2 + 2 * 2 + TURNS
    if point in UNAVAILABLE:
        endpoint.script(status(503))
        endpoint.respond_with(home)
        return 2
    if point in HELD:
        endpoint.script(status(404, error_code="model_not_found"))
        endpoint.respond_with(home)
        return 2
    if point in REFUSED:
        endpoint.respond_with(lambda _request: refuses())
        return 1
    if point in SLOW:
        endpoint.respond_with(lambda request: delayed(home(request), SLOWNESS))
        return 1
    endpoint.respond_with(home)
    return 1


@pytest.mark.parametrize("point", POINTS)
async def test_whoever_comes_after_a_kill_finishes_what_was_begun(
    point: CrashPoint, mongo_uri: str, endpoint: ScriptedEndpoint, tmp_path: Path
) -> None:
    calls = script(point, endpoint)
    closes = point not in NEVER_CLOSED
    patient = PATIENT if point in SLOW else None
    async with installed(mongo_uri, endpoint, tmp_path) as running:
        first = running.start(SAID, crash_at=point, closes=closes, environment=patient)
        assert await running.dies(first), f"{point} was never reached"
        assert first.exitcode == -9
        if point in SLOW:
            endpoint.respond_with(home)

        running.start(SAID, closes=closes, environment=patient)
        await running.settles(TURNS)

        report = await running.audit()
        assert report.violations == []
        assert (report.turns, report.in_snapshots, report.open) == (TURNS, TURNS, 0)
        is_refused = point in REFUSED
        expected = Outcome.DEAD if is_refused else Outcome.RECORDS
        assert set(report.outcomes) == {expected}
        await holds_what_was_said(running, nothing=is_refused)
        repaid = 1 if point in CUT_OFF else 0
        snapshots = sum(report.outcomes.values())
        assert endpoint.count <= calls * snapshots + repaid
        assert await running.parts.letters.count() == (snapshots if is_refused else 0)


async def holds_what_was_said(running: System, *, nothing: bool) -> None:
    records = await running.records()
    if nothing:
        assert records == []
        return
    assert len(records) == 1
    assert [text_of(run.content) for run in records[0].runs] == [words for _, words in SAID]
    assert [run.state for run in records[0].runs] == ["replaced"] * (TURNS - 1) + ["current"]
    assert all(len(run.assertions) == 1 for run in records[0].runs)
