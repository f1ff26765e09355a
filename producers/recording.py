"""Recording a turn: one insert, and the answer. It needs MongoDB only (I10).

Seqs have no gaps: a turn goes to the place after the newest that was read or acknowledged, and the
unique index lets one writer have it. Whoever finds it taken, or does not know what became of an
insert, reads again.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from pymongo.errors import DuplicateKeyError, PyMongoError

from pipeline.crash_points import CrashPoint, reached
from pipeline.errors import ConflictError, RecordingUnavailableError
from pipeline.ids import OpaqueIds
from pipeline.ports.clocks import Clock
from pipeline.ports.publisher import Publisher
from pipeline.ports.turns import IdempotencyKey, NewestTurn, Sessions, SessionState, Turns
from pipeline.recording import Accepted, accept, accept_identity, compose
from pipeline.tokens import count_aside
from producers.announcing import Announcer
from producers.lanes import Lane, Lanes
from schemas.event import (
    SessionClosed,
    SessionClosedData,
    TurnRecorded,
    TurnRecordedData,
    event_id,
)
from schemas.identity import SessionIdentity
from schemas.turn import Turn

IDLE_SESSIONS: Final = 10_000
"""Of how many sessions nobody writes to now the newest seq is remembered."""
STATE_AGE_SECONDS: Final = 30.0
"""How long a session's incarnation is taken as read: what forgets one waits this long before it
takes away the turns that keep its places."""
TRIES: Final = 64
"""How often a place may be lost to other processes before the caller is asked to try again."""
STEP_BACK_SECONDS: Final = 0.002
"""How much longer each lost try waits than the one before."""
PATIENCE: Final = timedelta(seconds=10)
"""How long a call waits for those before it in its session; each of them may have to wait for a
database that hangs."""
DRAIN_TIMEOUT: Final = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A stored turn, and whether this call stored it or one before it with the same key."""

    turn: Turn
    is_new: bool


class Recorder:
    """Records turns and closes sessions.

    Concurrency: any number of callers and of processes; turns of one session get their places in
    the order in which their calls come to it.
    """

    def __init__(
        self,
        *,
        sessions: Sessions,
        turns: Turns,
        publisher: Publisher,
        ids: OpaqueIds,
        clock: Clock,
        announcer: Announcer | None = None,
        to_embed: Callable[[str], Awaitable[bool]] | None = None,
        idle_sessions: int = IDLE_SESSIONS,
        patience: timedelta = PATIENCE,
    ) -> None:
        """Make one that has recorded nothing yet.

        Args:
            sessions: The sessions.
            turns: Their turns.
            publisher: Where wake-ups go.
            ids: Makes their ids.
            clock: When it is.
            announcer: Sends wake-ups, after the answer.
            to_embed: Whether turns of a project are to be embedded; it raises nothing. None: no.
            idle_sessions: Of how many sessions nobody writes to the newest seq is remembered.
            patience: How long a call waits for those before it in its session.
        """
        self._sessions = sessions
        self._turns = turns
        self._ids = ids
        self._clock = clock
        self._announcer = announcer or Announcer(publisher)
        self._to_embed = to_embed
        self._lanes = Lanes(idle=idle_sessions, patience=patience)

    async def record(self, identity: object, said: object) -> Turn:
        """Store a turn; return it as stored, once a majority has it.

        Args:
            identity: A `SessionIdentity`, or a mapping of its fields.
            said: A `TurnDraft`, or a mapping of its fields.

        Idempotent: with an idempotency key; without one, every call is a turn of its own.

        Raises:
            InvalidInputError: It breaks rules; nothing was stored.
            ConflictError: The idempotency key was used for another turn of this session.
            RecordingUnavailableError: It was not stored, or that is unknown.
        """
        return (await self.record_once(identity, said)).turn

    async def record_once(self, identity: object, said: object) -> Recorded:
        """Do the same, and tell whether the turn is new."""
        whose = accept_identity(identity)
        accepted = accept(said)
        tokens = await count_aside(accepted.texts)
        async with self._lanes.enter(whose) as lane:
            try:
                recorded = await self._place(lane, whose, accepted, tokens)
            except PyMongoError as error:
                lane.forget()
                raise RecordingUnavailableError("the turn may not be stored") from error
            except BaseException:
                # A cancelled insert may be on its way still: know nothing, read again.
                lane.forget()
                raise
        self._announce_turn(recorded.turn)
        return recorded

    async def close(self, identity: object) -> None:
        """Close a session: all that is open in it is extracted now. A later turn opens it again.

        Idempotent. A session nobody ever spoke in has nothing to close.

        Raises:
            InvalidInputError: The identity breaks rules.
            RecordingUnavailableError: It was not closed, or that is unknown.
        """
        whose = accept_identity(identity)
        async with self._lanes.enter(whose) as lane:
            try:
                state = await self._state(lane, whose)
                newest = await self._turns.newest(state.session)
                if newest is None:
                    return
                await self._turns.mark_closing(state.session, newest.seq)
                reached(CrashPoint.SESSION_CLOSED)
            except PyMongoError as error:
                raise RecordingUnavailableError("the session could not be closed") from error
        self._announcer.announce(
            SessionClosed(
                id=event_id("session.closed", state.session, newest.seq),
                subject=state.session,
                time=self._clock.now(),
                data=SessionClosedData(session=state.session),
            )
        )

    async def drain(self, timeout: timedelta = DRAIN_TIMEOUT) -> bool:
        """Wait for the wake-ups on their way; return whether all of them ended in time."""
        return await self._announcer.drain(timeout)

    async def stop(self, timeout: timedelta = DRAIN_TIMEOUT) -> None:
        """Send no more wake-ups after this; turns can still be recorded."""
        await self._announcer.stop(timeout)

    async def _place(
        self, lane: Lane, whose: SessionIdentity, accepted: Accepted, tokens: int
    ) -> Recorded:
        """Insert at the first place that nobody else has.

        Raises:
            pymongo.errors.PyMongoError: What became of the insert is unknown.
        """
        to_embed = self._to_embed is not None and await self._to_embed(whose.project_id)
        for lost in range(TRIES):
            state = await self._state(lane, whose)
            if not lane.is_known:
                lane.newest = await self._turns.newest(state.session)
                lane.is_known = True
            turn = compose(
                accepted,
                identity=whose,
                state=state,
                after=lane.newest,
                tokens=tokens,
                now=self._clock.now(),
                ids=self._ids,
            )
            key = self._key(accepted, state.session)
            try:
                await self._turns.insert(turn, idempotency=key, to_embed=to_embed)
                reached(CrashPoint.TURN_INSERTED)
            except DuplicateKeyError as error:
                lane.forget()
                known = await self._known(state.session, key) if _names_key(error) else None
            else:
                lane.newest = NewestTurn(seq=turn.seq, effective_at=turn.effective_at)
                return Recorded(turn=turn, is_new=True)
            if known is not None:
                return Recorded(turn=known, is_new=False)
            await asyncio.sleep(lost * STEP_BACK_SECONDS)
        raise RecordingUnavailableError("too many others write to this session")

    async def _state(self, lane: Lane, whose: SessionIdentity) -> SessionState:
        now = time.monotonic()
        if lane.state is None or now - lane.read_at > STATE_AGE_SECONDS:
            state = await self._sessions.open(whose)
            if lane.state is None or lane.state.session != state.session:
                lane.newest = None
                lane.is_known = state.is_new
            lane.state = state
            lane.read_at = now
        return lane.state

    def _key(self, accepted: Accepted, session: str) -> IdempotencyKey | None:
        name = accepted.draft.idempotency_key
        if name is None:
            return None
        return IdempotencyKey(key=name, body=self._ids.body(session, accepted.body()))

    async def _known(self, session: str, key: IdempotencyKey | None) -> Turn | None:
        """Return the turn that has the key; none while a majority has not got it.

        Raises:
            ConflictError: It says something else.
        """
        found = None if key is None else await self._turns.by_idempotency_key(session, key.key)
        if found is None or key is None:
            return None
        turn, body = found
        if body != key.body:
            raise ConflictError("the idempotency key was used for another turn of this session")
        return turn

    def _announce_turn(self, turn: Turn) -> None:
        self._announcer.announce(
            TurnRecorded(
                id=event_id("turn.recorded", turn.session, turn.seq),
                subject=turn.session,
                time=turn.recorded_at,
                data=TurnRecordedData(session=turn.session, seq=turn.seq),
            )
        )


def _names_key(error: DuplicateKeyError) -> bool:
    """Return whether the idempotency key is taken, and not (only) the place."""
    details: Mapping[str, Any] = error.details or {}
    return "idempotency" in details.get("keyPattern", {})
