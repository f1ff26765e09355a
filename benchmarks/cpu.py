"""`bench cpu`: our CPU a snapshot, model aside, beside the same commands sent bare.

Every command that our side sends to MongoDB is noted and then sent again as it is, from documents
that are ready; every message is published again by a bare producer. What we compute is the rest.
"""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from aiokafka import AIOKafkaProducer
from pymongo import monitoring

from benchmarks.figures import Figure
from consumers.extraction_wiring import extraction_step
from consumers.wiring import Installation, wire
from pipeline.extracting.planning import FIRST_TICKET, ready_data, ready_event
from pipeline.messages import encode
from pipeline.ports.model import ModelRequest
from pipeline.stores.mongo import connect, database
from schemas.extraction import Reply
from schemas.failure import Coordinates
from schemas.identity import SessionIdentity
from schemas.message import IncomingMessage, OutgoingMessage
from schemas.snapshot import CutReason, Snapshot
from schemas.topics import SNAPSHOT_READY
from schemas.turn import Role, Turn

SNAPSHOTS = 100
TURNS = 20
WARM_UP = 10
_NOT_COMMANDS: Final = ("hello", "ping", "endSessions", "killCursors", "getMore", "isMaster")


class _Noted(monitoring.CommandListener):
    """Notes commands while told to."""

    def __init__(self) -> None:
        self.is_on = False
        self.commands: list[dict[str, Any]] = []

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        if self.is_on and event.command_name not in _NOT_COMMANDS:
            dropped = ("lsid", "$db", "$clusterTime", "txnNumber", "$readPreference")
            self.commands.append(
                {name: value for name, value in event.command.items() if name not in dropped}
            )

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        """Nothing to note."""

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        """Nothing to note."""


class _NotedPublisher:
    """Passes messages on to the real publisher and notes them."""

    def __init__(self, publisher: Any) -> None:
        self._publisher = publisher
        self.messages: list[OutgoingMessage] = []

    async def publish(self, message: OutgoingMessage) -> None:
        """Publish and note."""
        self.messages.append(message)
        await self._publisher.publish(message)


class _InstantModel:
    """Answers at once with one fact a snapshot."""

    name = "instant"
    version = "bench"
    max_tokens = 4096

    async def answer(self, request: ModelRequest) -> Reply:
        """Return the same answer every time."""
        first = request.turns[0]
        return Reply(
            answer={
                "semantic": [
                    {
                        "attribute": "home",
                        "label": "Porto",
                        "text": "The user lives in Porto.",
                        "evidence": [first.seq],
                        "quote": "I moved to Porto",
                    }
                ],
                "episodic": [],
                "procedural": [],
                "taxonomic": [],
                "summary": "The user moved.",
            },
            model="bench",
            finish_reason="tool_calls",
            request_id=None,
            calls=1,
            prompt_tokens=1,
            completion_tokens=1,
            answered_at=datetime.now(UTC),
        )


async def run(parts: Installation, progress: Callable[[str], None]) -> list[Figure]:
    """Return the CPU of this process a snapshot, from message to settled."""
    settings = parts.settings
    noted = _Noted()
    monitoring.register(noted)
    client = connect(settings.mongo)
    publisher = _NotedPublisher(parts.publisher)
    own = await wire(settings, database(client, settings.mongo), publisher)
    step = extraction_step(own, _InstantModel())
    messages = [await _ready_snapshot(own, number) for number in range(WARM_UP + SNAPSHOTS)]
    for message in messages[:WARM_UP]:
        await step(message)
    publisher.messages.clear()
    progress(f"{SNAPSHOTS} snapshots of {TURNS} turns")
    noted.is_on = True
    before = time.process_time()
    for message in messages[WARM_UP:]:
        await step(message)
    ours = time.process_time() - before
    noted.is_on = False
    progress(f"their {len(noted.commands)} commands and {len(publisher.messages)} messages, bare")
    theirs = await _bare(own, noted.commands, publisher.messages)
    await client.close()
    return [
        Figure(
            name="cpu a snapshot, model aside",
            ours=ours / SNAPSHOTS * 1000,
            yardstick=theirs / SNAPSHOTS * 1000,
            unit="ms",
            goal="≤ 1.5",
        )
    ]


async def _ready_snapshot(parts: Installation, number: int) -> IncomingMessage:
    """Store a snapshot and its turns; return the message that hands it to extraction."""
    identity = SessionIdentity(user_id=f"user {uuid4().hex}", session_id="bench")
    session = parts.ids.session(identity, 1)
    now = parts.clock.now()
    for seq in range(1, TURNS + 1):
        turn = Turn(
            turn_id=parts.ids.turn(session, seq),
            session=session,
            identity=identity,
            incarnation=1,
            seq=seq,
            role=Role.USER,
            content=f"I moved to Porto, {seq} years ago, and I work at the harbour.",
            created_at=now,
            recorded_at=now,
            effective_at=now,
            tokens=16,
        )
        await parts.turns.insert(turn, idempotency=None)
    snapshot = Snapshot(
        snapshot_id=parts.ids.snapshot(session, 1),
        session=session,
        identity=identity,
        incarnation=1,
        first_seq=1,
        last_seq=TURNS,
        reason=CutReason.FULL,
        created_at=now,
    )
    await parts.snapshots.insert(snapshot, wake_at_ms=2**60)
    announced = encode(
        SNAPSHOT_READY.name, ready_event(ready_data(snapshot), now), ticket=FIRST_TICKET
    )
    at = Coordinates(
        topic=SNAPSHOT_READY.name, partition=0, offset=number, timestamp_ms=0, group="bench"
    )
    return IncomingMessage(
        at=at, key=announced.key, value=announced.value, headers=announced.headers
    )


async def _bare(
    parts: Installation,
    commands: Sequence[dict[str, Any]],
    messages: Sequence[OutgoingMessage],
) -> float:
    """Send the same again and return the CPU seconds; the database is told to do it all anew."""
    settings = parts.settings
    client = connect(settings.mongo)
    producer: Any = AIOKafkaProducer(
        bootstrap_servers=settings.kafka.bootstrap_servers, acks="all", enable_idempotence=True
    )
    await producer.start()
    try:
        db = database(client, settings.mongo)
        await db.command("ping")
        before = time.process_time()
        for command in commands:
            await db.command(command)
        for message in messages:
            headers = [(name, value) for name, value in message.headers]
            await producer.send_and_wait(
                message.topic, message.value, key=message.key, headers=headers
            )
        return time.process_time() - before
    finally:
        await producer.stop()
        await client.close()
