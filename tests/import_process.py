"""An import as a process of its own that kills itself after so many turns.

`python -m tests.import_process URI DATABASE FILE TURNS`
"""

import asyncio
import sys
from pathlib import Path

from pydantic import SecretStr

from pipeline.clock import SystemClock
from pipeline.crash_points import CrashPoint, arm
from pipeline.ids import OpaqueIds
from pipeline.settings import MongoSettings
from pipeline.stores.mongo import connect, database
from pipeline.stores.sessions import MongoSessions
from pipeline.stores.turns import MongoTurns
from producers.importing import import_transcript
from producers.recording import Recorder
from schemas.message import OutgoingMessage


class Nowhere:
    """Kafka, of which nothing is needed here."""

    async def publish(self, message: OutgoingMessage) -> None:
        del message


async def main(uri: str, name: str, path: str, turns: str) -> None:
    """Import, and die right after an insert, before anybody is told of it."""
    arm(CrashPoint.TURN_INSERTED, passes=int(turns))
    settings = MongoSettings(uri=SecretStr(uri), database=name)
    db = database(connect(settings), settings)
    ids = OpaqueIds(b"k" * 32)
    recorder = Recorder(
        sessions=MongoSessions(db, ids),
        turns=MongoTurns(db),
        publisher=Nowhere(),
        ids=ids,
        clock=SystemClock(),
    )
    await import_transcript(Path(path), recorder)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
