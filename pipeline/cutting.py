"""Cutting: the open turns of a session become snapshots that tile it (I1).

A snapshot starts right after the last one that is stored, and the unique index over (session, first
seq) lets one cutter make it. So whatever several cutters see and however they are set, their
snapshots are one chain from turn 1, and each one's boundaries are those of whoever was first.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final, Protocol

import structlog
from pymongo.errors import DuplicateKeyError

from pipeline.crash_points import CrashPoint, reached
from pipeline.errors import MessageError, MissingDocumentError, SettingsUnreadableError
from pipeline.extracting.planning import FIRST_TICKET, ready_data, ready_event
from pipeline.ids import OpaqueIds
from pipeline.messages import decode, encode
from pipeline.ports.clocks import ServerTime
from pipeline.ports.projects import Projects
from pipeline.ports.publisher import Publisher
from pipeline.ports.snapshots import Snapshots
from pipeline.ports.turns import OpenSession, OpenTurn, Sessions, SessionState, Turns
from pipeline.settings import SnapshotSettings
from schemas.event import SessionClosed, TurnRecorded
from schemas.failure import FailureClass
from schemas.message import IncomingMessage
from schemas.snapshot import CutReason, Snapshot
from schemas.topics import SNAPSHOT_READY, Stage

GAP_AFTER: Final = timedelta(minutes=2)
"""For how long a turn must be missing before the cut goes on without it."""

MAXIMUM_HOLES: Final = 1000
"""How many missing turns are looked for at once."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The turns of one snapshot to be."""

    first_seq: int
    last_seq: int
    reason: CutReason


def plan_cuts(
    turns: Sequence[OpenTurn],
    settings: SnapshotSettings,
    now: datetime,
    *,
    first_seq: int,
    hole: int | None = None,
) -> list[Cut]:
    """Return the cuts of open turns: none, or tiles from `first_seq` on.

    Of a session that is closed or idle they are tiles of all of them. Of one that goes on they are
    the full ones, and what is left over waits for what is said next; before a hole nothing waits.
    A tile has at most `max_messages` turns and `max_tokens` tokens, but one turn at least. Where
    turns are missing, the tile of the turn after them spans them.

    Args:
        turns: By seq, none before `first_seq`; all of them say whether anything is due.
        settings: When to cut and how large.
        now: Server time.
        first_seq: The turn after the last snapshot.
        hole: A turn that is missing and may still come: only what lies before it is cut.
    """
    reason = due_reason(turns, settings, now)
    if reason is None:
        return []
    cuts: list[Cut] = []
    ready = [turn for turn in turns if hole is None or turn.seq < hole]
    for last_seq, is_full in _tile_ends(ready, settings):
        if not is_full and reason is CutReason.FULL and hole is None:
            break
        cuts.append(
            Cut(
                first_seq=first_seq,
                last_seq=last_seq,
                reason=CutReason.FULL if is_full else reason,
            )
        )
        first_seq = last_seq + 1
    return cuts


def due_reason(
    turns: Sequence[OpenTurn], settings: SnapshotSettings, now: datetime
) -> CutReason | None:
    """Return why open turns are to be cut now; none if there are none, or they wait for more."""
    if not turns:
        return None
    return _due_reason(
        settings,
        turns=len(turns),
        tokens=sum(turn.tokens for turn in turns),
        is_closed=any(turn.closes for turn in turns),
        idle=now - max(turn.recorded_at for turn in turns),
    )


def is_due(session: OpenSession, settings: SnapshotSettings, now: datetime) -> bool:
    """Return whether a cutter would find the open turns of a session due."""
    reason = _due_reason(
        settings,
        turns=session.turns,
        tokens=session.tokens,
        is_closed=session.is_closed,
        idle=now - session.newest_recorded_at,
    )
    return reason is not None


def _due_reason(
    settings: SnapshotSettings, *, turns: int, tokens: int, is_closed: bool, idle: timedelta
) -> CutReason | None:
    if is_closed:
        return CutReason.CLOSED
    if idle >= settings.stale:
        return CutReason.IDLE
    is_full = turns >= settings.max_messages or tokens >= settings.max_tokens
    return CutReason.FULL if is_full else None


def _tile_ends(turns: Sequence[OpenTurn], settings: SnapshotSettings) -> Iterable[tuple[int, bool]]:
    """Yield the last seq of each tile, each as large as may be, and whether it is full."""
    last_seq: int | None = None
    count = tokens = 0
    for turn in turns:
        is_full = count == settings.max_messages or tokens + turn.tokens > settings.max_tokens
        if last_seq is not None and is_full:
            yield last_seq, True
            count = tokens = 0
        count += 1
        tokens += turn.tokens
        last_seq = turn.seq
    if last_seq is not None:
        yield last_seq, count == settings.max_messages or tokens >= settings.max_tokens


def missing(turns: Iterable[OpenTurn], first_seq: int) -> Iterator[int]:
    """Yield the seqs that a run of turns by seq, from `first_seq` on, should have and has not."""
    for turn in turns:
        yield from range(first_seq, turn.seq)
        first_seq = turn.seq + 1


async def rules_of(
    project_id: str, process: SnapshotSettings, projects: Projects | None
) -> SnapshotSettings:
    """Return when to cut the sessions of a project; as the process does where that can't be read.

    Args:
        project_id: Whose.
        process: What holds where it sets nothing.
        projects: What projects set; none where nobody sets anything.
    """
    if projects is None:
        return process
    try:
        applied = await projects.applied(project_id)
    except SettingsUnreadableError:
        # Who may not cut by them holds back what is cut of everybody else.
        return process
    own = applied.settings.background_extraction.snapshot
    changes: dict[str, object] = {}
    if own.max_messages is not None:
        changes["max_messages"] = own.max_messages
    if own.stale_minutes is not None:
        changes["stale"] = timedelta(minutes=own.stale_minutes)
    return process.model_copy(update=changes) if changes else process


class Cutter:
    """Cuts sessions.

    Concurrency: any number of cutters, also with other settings and on the same session.
    """

    def __init__(
        self,
        *,
        sessions: Sessions,
        turns: Turns,
        snapshots: Snapshots,
        publisher: Publisher,
        server_time: ServerTime,
        ids: OpaqueIds,
        settings: SnapshotSettings,
        wake_after: timedelta,
        projects: Projects | None = None,
        gap_after: timedelta = GAP_AFTER,
    ) -> None:
        self._projects = projects
        self._sessions = sessions
        self._turns = turns
        self._snapshots = snapshots
        self._publisher = publisher
        self._server_time = server_time
        self._ids = ids
        self._settings = settings
        self._wake_after_ms = _milliseconds(wake_after)
        self._gap_after_ms = _milliseconds(gap_after)

    async def cut(self, session: str) -> None:
        """Cut what is due in a session, and finish what another cutter left half done.

        Idempotent.

        Raises:
            BrokerUnavailableError: A snapshot is stored and not announced; its turns stay open.
            MissingDocumentError: Another cutter's snapshot is not readable yet.
        """
        while not await self._cut_once(session):
            pass

    async def _cut_once(self, session: str) -> bool:
        """Go on for as long as what was read stays true; return whether nothing is left to do."""
        # The last snapshot first: turns that are open afterwards and behind it are in none.
        last = await self._snapshots.last(session)
        first_seq = 1 if last is None else last.last_seq + 1
        turns = await self._turns.open_turns(session)
        if turns and turns[0].seq < first_seq:
            await self._finish(session, turns[0].seq)
        turns = [turn for turn in turns if turn.seq >= first_seq]
        if not turns:
            return True
        rules = await rules_of(turns[0].project_id, self._settings, self._projects)
        now_ms = await self._server_time.now_ms()
        if due_reason(turns, rules, _moment(now_ms)) is None:
            return True
        state = await self._sessions.by_key(session)
        if state is None:
            log.info("session_gone", session=session)
            return True
        hole: int | None = None
        if any(missing(turns, first_seq)):
            if await self._snapshots.last(session) != last:
                return False
            turns, hole = await self._around_holes(state, turns, first_seq, now_ms)
        cuts = plan_cuts(turns, rules, _moment(now_ms), first_seq=first_seq, hole=hole)
        return await self._make(state, cuts, now_ms)

    async def _make(self, state: SessionState, cuts: Sequence[Cut], now_ms: int) -> bool:
        """Make snapshots one after the other; false where another cutter's goes elsewhere."""
        for cut in cuts:
            snapshot = await self._stored(
                Snapshot(
                    snapshot_id=self._ids.snapshot(state.session, cut.first_seq),
                    session=state.session,
                    identity=state.identity,
                    incarnation=state.incarnation,
                    first_seq=cut.first_seq,
                    last_seq=cut.last_seq,
                    reason=cut.reason,
                    created_at=_moment(now_ms),
                ),
                now_ms,
            )
            await self._hand_over(snapshot)
            if snapshot.last_seq != cut.last_seq:
                return False
        return True

    async def _stored(self, snapshot: Snapshot, now_ms: int) -> Snapshot:
        """Return the snapshot that starts there: this one, or that of whoever was first."""
        try:
            await self._snapshots.insert(snapshot, wake_at_ms=now_ms + self._wake_after_ms)
            reached(CrashPoint.SNAPSHOT_INSERTED)
        except DuplicateKeyError:
            winner = await self._snapshots.get(snapshot.snapshot_id)
            if winner is None:
                raise MissingDocumentError("a snapshot that exists is not readable yet") from None
            return winner
        log.info(
            "snapshot_cut",
            snapshot=snapshot.snapshot_id,
            session=snapshot.session,
            first_seq=snapshot.first_seq,
            last_seq=snapshot.last_seq,
            reason=snapshot.reason,
        )
        return snapshot

    async def _finish(self, session: str, seq: int) -> None:
        """Hand over the snapshots from a turn on that was cut and is still open."""
        for snapshot in await self._snapshots.covering(session, seq):
            await self._hand_over(snapshot)

    async def _hand_over(self, snapshot: Snapshot) -> None:
        """Announce a snapshot; only when that is acknowledged, its turns are no longer open."""
        event = ready_event(ready_data(snapshot), snapshot.created_at)
        await self._publisher.publish(encode(SNAPSHOT_READY.name, event, ticket=FIRST_TICKET))
        reached(CrashPoint.SNAPSHOT_PUBLISHED)
        await self._turns.clear_open(snapshot.session, snapshot.first_seq, snapshot.last_seq)
        reached(CrashPoint.SNAPSHOT_OPEN_CLEARED)

    async def _around_holes(
        self, state: SessionState, turns: Sequence[OpenTurn], first_seq: int, now_ms: int
    ) -> tuple[list[OpenTurn], int | None]:
        """Return the turns with those that are there but not open, and the hole to stop at.

        A hole that stays for `gap_after` is a gap: it is kept with the session, an alert is given,
        and a snapshot spans it.
        """

        def may_come(seq: int) -> bool:
            return now_ms - state.gaps.get(seq, now_ms) < self._gap_after_ms

        holes = list(islice(filter(may_come, missing(turns, first_seq)), MAXIMUM_HOLES))
        if not holes:
            log.error("turns_lost", session=state.session, turns=len([*missing(turns, first_seq)]))
            return list(turns), None
        closed = {
            turn.seq: OpenTurn(seq=turn.seq, tokens=turn.tokens, recorded_at=turn.recorded_at)
            for turn in await self._turns.read(state.session, holes[0], holes[-1])
            if turn.seq in holes
        }
        new = [seq for seq in holes if seq not in closed and seq not in state.gaps]
        if new:
            log.warning("turns_missing", session=state.session, first_seq=new[0], turns=len(new))
            await self._sessions.note_gap(state.session, new, now_ms)
            reached(CrashPoint.GAP_NOTED)
        whole = sorted([*turns, *closed.values()], key=lambda turn: turn.seq)
        return whole, next(filter(may_come, missing(whole, first_seq)), None)


class Undecodable(Protocol):
    """Sets a message aside that can't be read."""

    async def settle(self, message: IncomingMessage, stage: Stage, error: MessageError) -> None:
        """Return once its letter is stored."""
        ...

    async def bury(self, message: IncomingMessage, stage: Stage) -> None:
        """Return once the letter of a message that kills its process is stored."""
        ...


class SnapshotStep:
    """What the snapshot consumer does with a wake-up: cut the session it names."""

    def __init__(self, *, cutter: Cutter, undecodable: Undecodable) -> None:
        self._cutter = cutter
        self._undecodable = undecodable

    async def __call__(self, message: IncomingMessage) -> None:
        """Return once the session is cut as far as it is due, or the message is a letter.

        Idempotent. What MongoDB or Kafka raise means that the message is to be held.
        """
        try:
            session = _session_of(message)
        except MessageError as error:
            await self._undecodable.settle(message, Stage.SNAPSHOT, error)
            return
        await self._cutter.cut(session)

    def subject(self, message: IncomingMessage) -> str | None:
        """Return the session, by the key: every wake-up of it cuts the same turns."""
        try:
            return None if message.key is None else message.key.decode()
        except UnicodeDecodeError:
            return None

    async def bury(self, message: IncomingMessage) -> bool:
        """Set a wake-up aside, unread; its session's turns stay open. Always true. Idempotent."""
        await self._undecodable.bury(message, Stage.SNAPSHOT)
        return True


def _session_of(message: IncomingMessage) -> str:
    event = decode(message)
    if not isinstance(event, (TurnRecorded, SessionClosed)):
        raise MessageError(FailureClass.UNDECODABLE, "unexpected_type")
    return event.data.session


def _moment(now_ms: int) -> datetime:
    return datetime.fromtimestamp(now_ms / 1000, UTC)


def _milliseconds(span: timedelta) -> int:
    return span // timedelta(milliseconds=1)
