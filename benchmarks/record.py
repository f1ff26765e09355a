"""`bench record`: a recorded turn beside one bare `insert_one` of the same document."""

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any
from uuid import uuid4

from benchmarks.bare_turns import BareTurns, bare_turns, record, timed
from benchmarks.figures import Figure, latencies
from consumers.recording_wiring import recorder
from consumers.wiring import Installation
from producers.recording import Recorder

PAIRS = 400
SESSIONS = 64
TURNS_A_SESSION = 15


async def run(parts: Installation, progress: Callable[[str], None]) -> list[Figure]:
    """Return p50 and p99 of one at a time, and turns a second of 64 sessions at once.

    The two sides take turns, so that a machine whose speed drifts drifts for both. The bare side
    inserts into a collection of its own with the same indexes.
    """
    async with recorder(parts) as recording, bare_turns(parts, recording) as bare:
        progress(f"{PAIRS} turns, one at a time")
        ours, theirs = await _one_at_a_time(recording, bare)
        progress(f"{SESSIONS} sessions at once, {TURNS_A_SESSION} turns each")
        our_rate = await _at_once(lambda session, n: record(recording, session, n))
        their_rate = await _at_once(bare.insert)
    return [
        *latencies("record", ours, theirs, {50: "≤ 1.15", 99: "≤ 1.5"}),
        Figure(
            name=f"record, {SESSIONS} sessions at once",
            ours=our_rate,
            yardstick=their_rate,
            unit="turns/s",
            goal="≥ 0.8",
        ),
    ]


async def _one_at_a_time(recording: Recorder, bare: BareTurns) -> tuple[list[float], list[float]]:
    session = uuid4().hex
    await record(recording, session, 0)
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(PAIRS):
        ours.append(await timed(record(recording, session, number)))
        theirs.append(await timed(bare.insert(session, number)))
    return ours, theirs


async def _at_once(insert: Callable[[str, int], Awaitable[Any]]) -> float:
    async def talk() -> None:
        session = uuid4().hex
        for number in range(TURNS_A_SESSION):
            await insert(session, number)

    began = perf_counter()
    await asyncio.gather(*(talk() for _ in range(SESSIONS)))
    return SESSIONS * TURNS_A_SESSION / (perf_counter() - began)
