"""Forgetting a memory for good: whatever is delivered, tried or folded again never brings it back.

A tombstone is written first. Then the slot's record is barred, from where on no fold can hold what
is forgotten; its vectors go, the items are taken out of the stored answers, and the assertions
removed. Who had
read the slot before may still write what is forgotten, to be found by nobody: a second pass, when
every lease from then has ended, removes that as well. A forgetting that was cut off anywhere is
found by an index, and goes on.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from pipeline.crash_points import CrashPoint, reached
from pipeline.folding.folder import in_source_order
from pipeline.folding.refolding import Folder
from pipeline.folding.slots import slot_of
from pipeline.forgetting.barring import evidence_of, is_barred, spared_by
from pipeline.metrics import NO_METRICS, Metrics
from pipeline.ports.clocks import ServerTime
from pipeline.ports.records import Assertions, Records
from pipeline.reading.memories import Memory
from pipeline.sweeping import mend_each
from schemas.identity import ReadScope
from schemas.record import Record
from schemas.tombstone import Tombstone, TombstoneLevel, TombstoneState

RESUMED_AFTER: Final = timedelta(seconds=30)
"""How long a forgetting is left to who began it."""
LEASES: Final = 2
"""Who held a lease when something was forgotten is given so many of them to write what it read."""


class Tombstones(Protocol):
    """The tombstones, and which of them stand for a forgetting that is not done."""

    async def write(self, tombstone: Tombstone, *, due_ms: int) -> None:
        """Store one; it is due from then on. Idempotent by its id."""
        ...

    async def advance(self, tombstone: Tombstone, state: TombstoneState, *, due_ms: int) -> None:
        """Store how far it is, if it is as it was read; one that is done is never due."""
        ...

    async def due(self, now_ms: int, limit: int) -> list[Tombstone]:
        """Return those that are due, the longest waiting first."""
        ...


class Blanks(Protocol):
    """The stored answers."""

    async def blank(self, extraction_ids: Sequence[str]) -> None:
        """Take out of the answers of extractions what their slots may not hold. Idempotent."""
        ...


class Cleans(Protocol):
    """The vectors of records."""

    async def clean(self, record_id: str) -> None:
        """Delete those of what a record says no more, whoever embeds it meanwhile. Idempotent."""
        ...


class Forgetter:
    """Forgets memories.

    Concurrency: any number of them in any number of processes may forget the same or memories
    beside each other, while others save and extract. What Kafka is told of it, the waker's sweep
    tells.
    """

    def __init__(
        self,
        *,
        tombstones: Tombstones,
        records: Records,
        assertions: Assertions,
        answers: Blanks,
        vectors: Cleans,
        folder: Folder,
        server_time: ServerTime,
        new_name: Callable[[], str],
        lease: timedelta,
        metrics: Metrics = NO_METRICS,
    ) -> None:
        self._tombstones = tombstones
        self._records = records
        self._assertions = assertions
        self._answers = answers
        self._vectors = vectors
        self._folder = folder
        self._server_time = server_time
        self._new_name = new_name
        """Makes a name that no other tombstone ever has."""
        self._second_pass_after = LEASES * lease
        self._metrics = metrics

    async def forget(self, memory: Memory) -> None:
        """Forget a memory, in every slot that it was ever in, with all that is not current there.

        Returns once nobody reads it any more and all that is stored of it is removed. What is
        current beside it stays. Begun and not finished, it is finished by the sweep.

        Raises:
            pymongo.errors.PyMongoError: It may be forgotten, or half: then do it again.
        """
        scope = memory.record.scope
        owned = ReadScope(project_id=scope.project_id, user_id=scope.owner)
        records = await self._records.of_memory(memory.memory_id, owned)
        # Where it is current comes last: until then it is found, and the same request mends it.
        for record in sorted(records, key=lambda one: one.record_id == memory.record.record_id):
            tombstone = await self._tombstone(record, memory.memory_id)
            await self._tombstones.write(tombstone, due_ms=await self._in(RESUMED_AFTER))
            reached(CrashPoint.TOMBSTONE_WRITTEN)
            await self._go_on(tombstone)

    async def sweep(self, limit: int) -> int:
        """Go on with what was cut off or waits for its second pass; return how many there were."""
        due = await self._tombstones.due(await self._server_time.now_ms(), limit)
        return await mend_each(due, self._go_on, sweep="forgettings", metrics=self._metrics)

    async def _tombstone(self, record: Record, memory_id: str) -> Tombstone:
        slot = slot_of(record)
        now = datetime.fromtimestamp(await self._server_time.now_ms() / 1000, UTC)
        said = await self._assertions.of_slot(record.record_id)
        spared = spared_by(slot, memory_id, in_source_order(said))
        return Tombstone(
            tombstone_id=self._new_name(),
            level=TombstoneLevel.RECORD,
            scope=record.scope,
            slot=record.record_id,
            memory_id=memory_id,
            # A save may stand a moment ahead of the clock, after what it was saved over. Turns by a
            # clock that was ahead are barred as evidence, which keeps nothing else out.
            as_of=max([now, *(one.position.effective_at for one in said if one.saved)]),
            evidence=evidence_of(one for one in said if one.assertion_id not in spared),
            state=TombstoneState.WRITTEN,
        )

    async def _go_on(self, tombstone: Tombstone) -> None:
        if tombstone.state is TombstoneState.WRITTEN:
            await self._folder.bar(tombstone)
            tombstone = await self._advanced(tombstone, TombstoneState.BARRED, RESUMED_AFTER)
        await self._remove(tombstone)
        if tombstone.state is TombstoneState.BARRED:
            await self._advanced(tombstone, TombstoneState.REMOVED, self._second_pass_after)
        else:
            await self._advanced(tombstone, TombstoneState.DONE, timedelta())

    async def _remove(self, tombstone: Tombstone) -> None:
        """Remove what the slot may not hold; answers first, for assertions are what names them.

        The vectors before all, for they are what is searched. Nothing is folded for it: a fold
        leaves out what is barred, whether it is there or not.
        """
        await self._vectors.clean(tombstone.slot)
        bar = (await self._records.bars([tombstone.slot])).get(tombstone.slot)
        said = await self._assertions.of_slot(tombstone.slot)
        gone = [one for one in said if is_barred(bar, one)]
        await self._answers.blank(sorted({one.extraction_id for one in gone if one.extraction_id}))
        await self._assertions.remove([one.assertion_id for one in gone])
        reached(CrashPoint.ASSERTIONS_REMOVED)

    async def _advanced(
        self, tombstone: Tombstone, state: TombstoneState, wait: timedelta
    ) -> Tombstone:
        await self._tombstones.advance(tombstone, state, due_ms=await self._in(wait))
        reached(CrashPoint.TOMBSTONE_ADVANCED)
        return tombstone.model_copy(update={"state": state})

    async def _in(self, wait: timedelta) -> int:
        return await self._server_time.now_ms() + wait // timedelta(milliseconds=1)
