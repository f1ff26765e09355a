"""How the indexes of scopes follow the database: memories by what changed, turns by their seq."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeVar

from pipeline.embedding.ports import Vector, Vectors, content_hash
from pipeline.ports.clocks import ServerTime
from pipeline.reading.cache import CachedIndex
from pipeline.reading.index import Entry
from pipeline.reading.memories import Memory, memories_of
from pipeline.reading.ports import RecordReads, TurnReads, Version
from pipeline.reading.spoken import spoken
from schemas.identity import ReadScope
from schemas.memory import RecordKind
from schemas.record import Record, RunState
from schemas.turn import Turn

BATCH: Final = 200
"""How many records or turns are taken in at a time."""
OVERLAP: Final = 3
"""What changed so many timeouts of a command ago is read again.

A write stamps the server's time when it begins; it can be seen when a majority has it. The client
gives up after one timeout, the server ends what is running by then, and a majority that is late by
two more is a cluster that answers nobody. The clocks of two primaries fit in as well.
"""
HOLE: Final = 200
"""How many seqs behind the newest turn a missing one may still come."""
AWAITED: Final = 200
"""Of how many turns without a vector, the newest, it is asked for again."""

Each = TypeVar("Each")


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """Whose vectors an index has."""

    vectors: Vectors
    model: str

    async def of(self, owners: Iterable[str]) -> dict[str, dict[str, Vector]]:
        """Return owner -> content hash -> vector."""
        return await self.vectors.of_owners(self.model, list(owners))


class MemoryIndex(CachedIndex):
    """The memories of a scope and of some kinds."""

    def __init__(
        self,
        *,
        scope: ReadScope,
        kinds: Sequence[RecordKind],
        history: bool,
        records: RecordReads,
        embedded: Embedded | None,
        server_time: ServerTime,
        command_timeout: timedelta,
    ) -> None:
        """Make an empty one.

        Args:
            scope: Of what never changes of a record: neither agent nor session.
            kinds: Of which kinds.
            history: Whether it has what is not current, too.
            records: Where they are read.
            embedded: Where their vectors are; none where only words are searched.
            server_time: The database's clock.
            command_timeout: After what the database gives up a write.
        """
        super().__init__()
        self._scope = scope
        self._kinds = kinds
        self._states = tuple(RunState) if history else (RunState.CURRENT,)
        self._records = records
        self._embedded = embedded
        self._server_time = server_time
        self._overlap_ms = OVERLAP * command_timeout // timedelta(milliseconds=1)
        self._read_at_ms: int | None = None
        self._seen: dict[str, Version] = {}
        self._keys: dict[str, tuple[str, ...]] = {}
        """Of each record that has any."""

    async def _refresh(self) -> None:
        now_ms = await self._server_time.now_ms()
        if self._read_at_ms is None:
            await self._read_all()
        else:
            await self._read_changed(self._read_at_ms - self._overlap_ms)
        self._read_at_ms = now_ms

    async def _read_all(self) -> None:
        waiting: list[Record] = []
        async for record in self._records.all_of(self._scope, self._kinds):
            waiting.append(record)
            if len(waiting) == BATCH:
                await self._take(waiting)
                waiting = []
        await self._take(waiting)

    async def _read_changed(self, since_ms: int) -> None:
        changed = await self._records.changed(self._scope, since_ms)
        stale = [name for name, version in changed.items() if self._seen.get(name) != version]
        for ids in batches(stale):
            found = await self._records.of_ids(ids, self._scope, self._kinds)
            await self._take(found)
            gone = set(ids) - {record.record_id for record in found}
            await self._replace([key for name in gone for key in self._keys.pop(name, ())], ())
        self._seen = changed

    async def _take(self, records: Sequence[Record]) -> None:
        """Have of these records what they hold now."""
        memories = {record.record_id: memories_of([record], self._states) for record in records}
        owners = [name for name, held in memories.items() if held]
        vectors = await self._embedded.of(owners) if self._embedded and owners else {}
        entries: list[Entry] = []
        gone: list[str] = []
        for name, held in memories.items():
            of_record = vectors.get(name, {})
            entries.extend(_entry(memory, of_record) for memory in held)
            gone.extend(self._keys.pop(name, ()))
            if held:
                self._keys[name] = tuple(memory.key for memory in held)
        await self._replace(gone, entries)


class TurnIndex(CachedIndex):
    """The turns of a conversation, all of them; projects say whether they are embedded."""

    is_embedded_at_will = True

    def __init__(self, *, scope: ReadScope, turns: TurnReads, embedded: Embedded | None) -> None:
        """Make an empty one.

        Args:
            scope: Names a session id.
            turns: Where they are read.
            embedded: Where their vectors are; none where only words are searched.
        """
        super().__init__()
        self._scope = scope
        self._turns = turns
        self._embedded = embedded
        self._whole: dict[str, int] = {}
        """Up to which seq nothing of a session is missing."""
        self._beyond: dict[str, set[int]] = {}
        self._awaited: dict[str, Turn] = {}
        """The newest of those that have no vector, the oldest first."""

    async def _refresh(self) -> None:
        await self._take(list(self._awaited.values()))
        waiting: list[Turn] = []
        async for turn in self._turns.since(self._scope, self._known()):
            if turn.turn_id not in self._places:
                waiting.append(turn)
            if len(waiting) == BATCH:
                await self._take(waiting)
                waiting = []
        await self._take(waiting)

    def _known(self) -> dict[str, int]:
        newest = {session: max(beyond, default=0) for session, beyond in self._beyond.items()}
        return {
            session: max(whole, newest.get(session, 0) - HOLE)
            for session, whole in self._whole.items()
        }

    async def _take(self, turns: Sequence[Turn]) -> None:
        """Have these turns, with the vectors that there are now."""
        ids = [turn.turn_id for turn in turns]
        vectors = await self._embedded.of(ids) if self._embedded and ids else {}
        entries = [_turn_entry(turn, vectors.get(turn.turn_id, {})) for turn in turns]
        await self._replace(
            (), [one for one in entries if one.vector is not None or one.key not in self._places]
        )
        for turn, entry in zip(turns, entries, strict=True):
            self._count(turn)
            if entry.vector is not None:
                self._awaited.pop(turn.turn_id, None)
            elif self._embedded is not None:
                self._awaited[turn.turn_id] = turn
        for turn_id in list(self._awaited)[:-AWAITED]:
            del self._awaited[turn_id]

    def _count(self, turn: Turn) -> None:
        whole = self._whole.get(turn.session, 0)
        beyond = self._beyond.setdefault(turn.session, set())
        if turn.seq > whole:
            beyond.add(turn.seq)
        while whole + 1 in beyond:
            whole += 1
            beyond.discard(whole)
        self._whole[turn.session] = whole


def batches(items: Sequence[Each]) -> Iterator[Sequence[Each]]:
    """Yield items in batches."""
    for first in range(0, len(items), BATCH):
        yield items[first : first + BATCH]


def _entry(memory: Memory, vectors: dict[str, Vector]) -> Entry:
    return Entry(
        key=memory.key,
        text=memory.text,
        said_at=memory.last_said,
        vector=vectors.get(content_hash(memory.text)),
    )


def _turn_entry(turn: Turn, vectors: dict[str, Vector]) -> Entry:
    return Entry(
        key=turn.turn_id,
        text=turn.content,
        said_at=turn.effective_at,
        vector=vectors.get(content_hash(spoken(turn))),
        thread=turn.session,
        place=turn.seq,
    )
