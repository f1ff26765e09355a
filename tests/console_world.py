"""Conversations for the console to show: extracted, or dead of what their model answered."""

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from consumers.extraction_wiring import extraction_step
from consumers.recording_wiring import recorder
from consumers.wiring import Installation
from pipeline.extracting.planning import FIRST_TICKET, ready_data, ready_event
from pipeline.messages import encode
from pipeline.ports.model import Model
from schemas.failure import Coordinates
from schemas.identity import SessionIdentity
from schemas.message import IncomingMessage, OutgoingMessage
from schemas.snapshot import CutReason, Snapshot
from schemas.topics import SNAPSHOT_READY
from schemas.turn import Role, TurnDraft

PATIENCE_SECONDS: Final = 30


class Loopback:
    """Port `Publisher`: what is for extraction waits here to be taken."""

    def __init__(self) -> None:
        self.waiting: deque[IncomingMessage] = deque()
        self._offset = 0

    async def publish(self, message: OutgoingMessage) -> None:
        """Take a message."""
        if not message.topic.startswith(SNAPSHOT_READY.name):
            return
        self._offset += 1
        at = Coordinates(
            topic=message.topic, partition=0, offset=self._offset, timestamp_ms=0, group="g"
        )
        self.waiting.append(
            IncomingMessage(at=at, key=message.key, value=message.value, headers=message.headers)
        )


async def extract(parts: Installation, broker: Loopback, model: Model) -> None:
    """Take what waits until nothing does."""
    step = extraction_step(parts, model)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while broker.waiting:
            await step(broker.waiting.popleft())


async def converse(
    parts: Installation,
    broker: Loopback,
    *contents: str,
    session_id: str,
    user_id: str = "mara",
    project_id: str = "default",
    **more: Any,
) -> Snapshot:
    """Record a conversation and cut it; its extraction waits at the broker."""
    whose = SessionIdentity(project_id=project_id, user_id=user_id, session_id=session_id, **more)
    async with recorder(parts) as recording:
        for place, content in enumerate(contents):
            role = Role.ASSISTANT if place % 2 else Role.USER
            await recording.record(whose, TurnDraft(role=role, content=content))
    state = await parts.sessions.open(whose)
    await parts.turns.clear_open(state.session, 1, len(contents))
    cut = Snapshot(
        snapshot_id=parts.ids.snapshot(state.session, 1),
        session=state.session,
        identity=whose,
        incarnation=state.incarnation,
        first_seq=1,
        last_seq=len(contents),
        reason=CutReason.CLOSED,
        created_at=parts.clock.now(),
    )
    await parts.snapshots.insert(cut, wake_at_ms=2**60)
    event = ready_event(ready_data(cut), parts.clock.now())
    await broker.publish(encode(SNAPSHOT_READY.name, event, ticket=FIRST_TICKET))
    return cut


def fact(seq: int, quote: str, **fields: Any) -> Mapping[str, Any]:
    """Return an item that a model may answer."""
    return {
        "attribute": "home",
        "label": "Porto",
        "text": "The user lives in Porto.",
        "evidence": [seq],
        "quote": quote,
    } | fields
