"""Sessions, turns, snapshots and Kafka in memory, with reads that may lag behind, for cutters.

Each method runs without giving way, so it is as atomic as the command it stands for. Behind
`tests.interleaving.Gated`, these calls are the steps that processes can interleave.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo.errors import DuplicateKeyError

from pipeline.cutting import Cutter
from pipeline.errors import BrokerUnavailableError
from pipeline.ids import OpaqueIds
from pipeline.ports.turns import OpenSession, OpenTurn, SessionState
from pipeline.settings import SnapshotSettings
from schemas.event import SnapshotReady
from schemas.identity import SessionIdentity
from schemas.message import OutgoingMessage
from schemas.snapshot import Snapshot
from schemas.turn import Role, Turn
from tests.interleaving import Gated

IDS = OpaqueIds(b"k" * 32)
WHOSE = SessionIdentity(user_id="ana", session_id="talk")
SESSION = IDS.session(WHOSE, 1)
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
Wrap = Callable[[object], Any]


def _bare(port: object) -> Any:
    return port


@dataclass(frozen=True, slots=True)
class State:
    """All that is stored, at one moment."""

    turns: tuple[OpenTurn, ...] = ()
    open_seqs: frozenset[int] = frozenset()
    snapshots: tuple[Snapshot, ...] = ()


@dataclass(slots=True)
class CuttingWorld:
    """One session, what was published, and the clock.

    Args:
        lag: How many writes a read may lag behind; which, the dice decide.
        dice: None reads the newest state always.
    """

    lag: int = 0
    dice: random.Random | None = None
    now: datetime = NOW
    history: list[State] = field(default_factory=lambda: [State()])
    gaps: dict[int, int] = field(default_factory=dict[int, int])
    published: list[OutgoingMessage] = field(default_factory=list[OutgoingMessage])
    is_known: bool = True
    kafka_is_gone: bool = False

    @property
    def state(self) -> State:
        """What is stored now."""
        return self.history[-1]

    def seen(self) -> State:
        """What a read returns."""
        if self.dice is None or self.dice.random() < 0.5:
            return self.state
        return self.history[-1 - self.dice.randint(0, min(self.lag, len(self.history) - 1))]

    def write(self, **changes: Any) -> None:
        self.history.append(replace(self.state, **changes))

    def record(
        self, *seqs: int, tokens: int = 1, at: datetime | None = None, closes: bool = False
    ) -> None:
        """Store turns as open."""
        new = tuple(
            OpenTurn(seq=seq, tokens=tokens, recorded_at=at or self.now, closes=closes)
            for seq in seqs
        )
        self.write(
            turns=tuple(sorted((*self.state.turns, *new), key=lambda turn: turn.seq)),
            open_seqs=self.state.open_seqs | set(seqs),
        )

    def now_ms(self) -> int:
        return int(self.now.timestamp() * 1000)

    def cutter(self, *, wrap: Wrap = _bare, **settings: Any) -> Cutter:
        """Return a cutter of its own process; `wrap` puts something around each of its ports."""
        return Cutter(
            sessions=wrap(SessionsTwin(self)),
            turns=wrap(TurnsTwin(self)),
            snapshots=wrap(SnapshotsTwin(self)),
            publisher=wrap(PublisherTwin(self)),
            server_time=wrap(ServerTimeTwin(self)),
            ids=IDS,
            settings=SnapshotSettings(**settings),
            wake_after=timedelta(minutes=2),
        )

    def gated_cutter(self, **settings: Any) -> Cutter:
        """Return a cutter each of whose calls is a step of its own."""
        return self.cutter(wrap=lambda port: Gated(port, []), **settings)

    def ranges(self) -> list[tuple[int, int]]:
        """Return the snapshots as first and last seq."""
        return [(snapshot.first_seq, snapshot.last_seq) for snapshot in self.state.snapshots]

    def tiles(self) -> None:
        """Assert the half of I1 that holds at any moment: tiles from 1, the rest open."""
        expected = 1
        for first_seq, last_seq in self.ranges():
            assert first_seq == expected, self.ranges()
            assert last_seq >= first_seq
            expected = last_seq + 1
        after = {turn.seq for turn in self.state.turns if turn.seq >= expected}

        assert after <= self.state.open_seqs, "a turn after the cut is not open"

    def is_handed_over(self) -> None:
        """Assert the other half: every snapshot is published, none of its turns is open."""
        announced = {
            SnapshotReady.model_validate_json(message.value or b"").data.snapshot
            for message in self.published
        }
        for snapshot in self.state.snapshots:
            assert snapshot.snapshot_id in announced
        cut = max((last for _, last in self.ranges()), default=0)

        assert all(seq > cut for seq in self.state.open_seqs)


@dataclass(slots=True)
class SessionsTwin:
    """The part of the port `Sessions` that cutting uses."""

    world: CuttingWorld

    async def by_key(self, session: str) -> SessionState | None:
        if not self.world.is_known:
            return None
        return SessionState(
            identity=WHOSE, session=session, incarnation=1, gaps=dict(self.world.gaps)
        )

    async def note_gap(self, session: str, seqs: Sequence[int], now_ms: int) -> None:
        assert session == SESSION
        for seq in seqs:
            self.world.gaps[seq] = min(now_ms, self.world.gaps.get(seq, now_ms))


@dataclass(slots=True)
class TurnsTwin:
    """The part of the port `Turns` that cutting uses."""

    world: CuttingWorld

    async def open_turns(self, session: str) -> list[OpenTurn]:
        assert session == SESSION
        seen = self.world.seen()
        return [turn for turn in seen.turns if turn.seq in seen.open_seqs]

    async def read(self, session: str, first_seq: int, last_seq: int) -> list[Turn]:
        return [
            Turn(
                turn_id=IDS.turn(session, turn.seq),
                session=session,
                identity=WHOSE,
                incarnation=1,
                seq=turn.seq,
                role=Role.USER,
                content="x",
                created_at=turn.recorded_at,
                recorded_at=turn.recorded_at,
                effective_at=turn.recorded_at,
                tokens=turn.tokens,
            )
            for turn in self.world.seen().turns
            if first_seq <= turn.seq <= last_seq
        ]

    async def clear_open(self, session: str, first_seq: int, last_seq: int) -> int:
        assert session == SESSION
        before = self.world.state.open_seqs
        cleared = {seq for seq in before if first_seq <= seq <= last_seq}
        self.world.write(open_seqs=before - cleared)
        return len(cleared)

    async def open_sessions(self) -> list[OpenSession]:
        turns = await self.open_turns(SESSION)
        if not turns:
            return []
        return [
            OpenSession(
                session=SESSION,
                turns=len(turns),
                tokens=sum(turn.tokens for turn in turns),
                oldest_seq=turns[0].seq,
                newest_seq=turns[-1].seq,
                oldest_recorded_at=min(turn.recorded_at for turn in turns),
                newest_recorded_at=max(turn.recorded_at for turn in turns),
                is_closed=any(turn.closes for turn in turns),
            )
        ]


@dataclass(slots=True)
class SnapshotsTwin:
    """The part of the port `Snapshots` that cutting uses."""

    world: CuttingWorld

    async def insert(self, snapshot: Snapshot, *, wake_at_ms: int) -> None:
        del wake_at_ms
        known = self.world.state.snapshots
        if any(other.first_seq == snapshot.first_seq for other in known):
            raise DuplicateKeyError("E11000")
        ordered = sorted((*known, snapshot), key=lambda each: each.first_seq)
        self.world.write(snapshots=tuple(ordered))

    async def last(self, session: str) -> Snapshot | None:
        assert session == SESSION
        snapshots = self.world.seen().snapshots
        return snapshots[-1] if snapshots else None

    async def covering(self, session: str, seq: int) -> list[Snapshot]:
        assert session == SESSION
        return [each for each in self.world.seen().snapshots if each.last_seq >= seq]

    async def get(self, snapshot_id: str) -> Snapshot | None:
        for snapshot in self.world.seen().snapshots:
            if snapshot.snapshot_id == snapshot_id:
                return snapshot
        return None


@dataclass(slots=True)
class PublisherTwin:
    """The part of the port `Publisher` that cutting uses."""

    world: CuttingWorld

    async def publish(self, message: OutgoingMessage) -> None:
        if self.world.kafka_is_gone:
            raise BrokerUnavailableError("gone")
        self.world.published.append(message)


@dataclass(slots=True)
class ServerTimeTwin:
    """The part of the port `ServerTime` that cutting uses."""

    world: CuttingWorld

    async def now_ms(self) -> int:
        return self.world.now_ms()
