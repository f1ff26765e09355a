"""`bench record`: a recorded turn beside one bare `insert_one` of the same document."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

from benchmarks.figures import Figure, percentile
from consumers.wiring import Installation, recorder
from producers.recording import Recorder

PAIRS = 400
SESSIONS = 64
TURNS_A_SESSION = 15
CONTENT = "I moved to Porto last spring and work at the harbour. " * 4


async def run(parts: Installation, progress: Callable[[str], None]) -> list[Figure]:
    """Return p50 and p99 of one at a time, and turns a second of 64 sessions at once.

    The two sides take turns, so that a machine whose speed drifts drifts for both. The bare side
    inserts into a collection of its own with the same indexes.
    """
    async with recorder(parts) as recording:
        document = await _template(parts, recording)
        bare = parts.database[f"bench_{uuid4().hex[:8]}"]
        await _like_turns(parts, bare)
        try:
            progress(f"{PAIRS} turns, one at a time")
            ours, theirs = await _one_at_a_time(recording, bare, document)
            progress(f"{SESSIONS} sessions at once, {TURNS_A_SESSION} turns each")
            our_rate = await _at_once(lambda session, n: _record(recording, session, n))
            their_rate = await _at_once(
                lambda session, n: bare.insert_one(_fresh(document, session, n))
            )
        finally:
            await bare.drop()
    return [
        Figure(
            name=f"record p{percent}",
            ours=percentile(ours, percent) * 1000,
            yardstick=percentile(theirs, percent) * 1000,
            unit="ms",
            goal=goal,
        )
        for percent, goal in ((50, "≤ 1.15"), (99, "≤ 1.5"))
    ] + [
        Figure(
            name=f"record, {SESSIONS} sessions at once",
            ours=our_rate,
            yardstick=their_rate,
            unit="turns/s",
            goal="≥ 0.8",
        )
    ]


async def _template(parts: Installation, recording: Recorder) -> dict[str, Any]:
    turn = await _record(recording, "template", 0)
    document = await parts.database["turns"].find_one({"_id": turn.turn_id})
    if document is None:
        raise LookupError("the turn that was just recorded is not there")
    return document


async def _like_turns(parts: Installation, bare: Any) -> None:
    for name, index in (await parts.database["turns"].index_information()).items():
        if name != "_id_":
            options = {key: index[key] for key in ("unique", "sparse") if key in index}
            await bare.create_index(index["key"], name=name, **options)


async def _record(recording: Recorder, session: str, number: int) -> Any:
    return await recording.record(
        {"user_id": "bench", "session_id": session},
        {"role": "user", "content": f"{number} {CONTENT}"},
    )


def _fresh(document: dict[str, Any], session: str, number: int) -> dict[str, Any]:
    return document | {"_id": uuid4().hex, "session": session, "seq": number, "open": session}


async def _one_at_a_time(
    recording: Recorder, bare: Any, document: dict[str, Any]
) -> tuple[list[float], list[float]]:
    session = uuid4().hex
    await _record(recording, session, 0)
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(PAIRS):
        ours.append(await _timed(_record(recording, session, number)))
        theirs.append(await _timed(bare.insert_one(_fresh(document, session, number))))
    return ours, theirs


async def _timed(work: Awaitable[Any]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


async def _at_once(insert: Callable[[str, int], Awaitable[Any]]) -> float:
    async def talk() -> None:
        session = uuid4().hex
        for number in range(TURNS_A_SESSION):
            await insert(session, number)

    began = time.perf_counter()
    await asyncio.gather(*(talk() for _ in range(SESSIONS)))
    return SESSIONS * TURNS_A_SESSION / (time.perf_counter() - began)
