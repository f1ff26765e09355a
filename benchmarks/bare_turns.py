"""The yardstick of recording: the document of a turn, inserted bare."""

import time
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, Final
from uuid import uuid4

from consumers.wiring import Installation
from producers.recording import Recorder

CONTENT: Final = "I moved to Porto last spring and work at the harbour. " * 4


class BareTurns:
    """A collection with the indexes of `turns`, and the document of a turn to insert there."""

    def __init__(self, collection: Any, document: dict[str, Any]) -> None:
        self._collection = collection
        self._document = document

    async def insert(self, session: str, number: int) -> None:
        """Insert the turn as if it were the `number`th of a session."""
        own = {"_id": uuid4().hex, "session": session, "seq": number, "open": session}
        await self._collection.insert_one(self._document | own)


@asynccontextmanager
async def bare_turns(parts: Installation, recording: Recorder) -> AsyncGenerator[BareTurns]:
    """Yield the yardstick, made from a turn that was really recorded; drop it at the end."""
    turns = parts.database["turns"]
    recorded = await record(recording, "template", 0)
    document = await turns.find_one({"_id": recorded.turn_id})
    if document is None:
        raise LookupError("the turn that was just recorded is not there")
    bare = parts.database[f"bench_{uuid4().hex[:8]}"]
    for name, index in (await turns.index_information()).items():
        if name != "_id_":
            options = {key: index[key] for key in ("unique", "sparse") if key in index}
            await bare.create_index(index["key"], name=name, **options)
    try:
        yield BareTurns(bare, document)
    finally:
        await bare.drop()


async def record(recording: Recorder, session: str, number: int) -> Any:
    """Record such a turn in process; return it."""
    return await recording.record(
        {"user_id": "bench", "session_id": session},
        {"role": "user", "content": said(number)},
    )


def said(number: int) -> str:
    """Return what the `number`th turn says."""
    return f"{number} {CONTENT}"


async def timed(work: Awaitable[Any]) -> float:
    """Return how many seconds it took."""
    began = time.perf_counter()
    await work
    return time.perf_counter() - began
