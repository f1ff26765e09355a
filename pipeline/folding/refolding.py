"""Keeps records equal to the fold of their assertions, whoever else writes at the same time.

A writer marks its slots, changes the assertions, then folds. A fold reads the record's `rev` first
and stores only where it is unchanged; marks and folds raise it. So of two folds the one that read
later stands, and whoever changed an assertion folds after that. A mark stays until its own writer
has folded, or so long that its writer must be dead: other folds leave it alone. So a writer may
die anywhere, and the sweep finds what it left.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime

import structlog

from pipeline.crash_points import CrashPoint, reached
from pipeline.errors import BrokerUnavailableError
from pipeline.folding.folder import fold, in_source_order
from pipeline.folding.slots import slot_of, slots_of
from pipeline.forgetting.barring import Bars, bar_after, standing
from pipeline.messages import encode
from pipeline.metrics import NO_METRICS, Metrics
from pipeline.ports.clocks import Clock
from pipeline.ports.publisher import Publisher
from pipeline.ports.records import Assertions, Records, SlotKey
from pipeline.sweeping import mend_each
from schemas.assertion import Assertion
from schemas.event import RecordChanged, RecordChangedData, event_id
from schemas.record import Record
from schemas.tombstone import Tombstone
from schemas.topics import RECORD_CHANGED

log = structlog.get_logger()


class Folder:
    """Writes and removes assertions, folds the slots they touch, announces what changed.

    Idempotent: every method may be cut anywhere and called again.
    Concurrency: any number of them may work on the same slots, in any number of processes.
    """

    def __init__(
        self,
        assertions: Assertions,
        records: Records,
        publisher: Publisher,
        clock: Clock,
        metrics: Metrics = NO_METRICS,
    ) -> None:
        self._assertions = assertions
        self._records = records
        self._publisher = publisher
        self._clock = clock
        self._metrics = metrics

    async def assert_all(self, assertions: Sequence[Assertion]) -> list[Record]:
        """Write assertions; return the records that changed by it, for `announce`."""
        slots = slots_of(assertions)
        if not slots:
            return []
        await self._records.mark_dirty(slots)
        reached(CrashPoint.SLOTS_MARKED)
        await self._assertions.write(assertions)
        reached(CrashPoint.ASSERTIONS_WRITTEN)
        return await self._fold_marked(slots)

    async def remove_run(
        self, extraction_id: str, *, but: Sequence[Assertion] = ()
    ) -> list[Record]:
        """Remove the assertions of an extraction; return the records that changed by it.

        Those of `but` stay where they are.
        """
        kept = {assertion.assertion_id for assertion in but}
        written = await self._assertions.of_extraction(extraction_id)
        return await self.remove([one for one in written if one.assertion_id not in kept])

    async def bars(self, assertions: Sequence[Assertion]) -> Bars:
        """Return what the slots of assertions may not hold any more."""
        return await self._records.bars(sorted({assertion.slot for assertion in assertions}))

    async def bar(self, tombstone: Tombstone) -> list[Record]:
        """Let a slot hold nothing any more that is forgotten; return the record if that changed it.

        What stays is decided on the very revision that is barred: who saved something beside it,
        and was told so, either is spared or comes later.
        """
        while True:
            record = await self._records.get(tombstone.slot)
            if record is None:
                return []
            slot = slot_of(record)
            assertions = await self._assertions.of_slot(tombstone.slot)
            bar = bar_after(tombstone, slot, record.bar, assertions)
            is_barred_now = await self._records.bar(tombstone.slot, bar, read_rev=record.rev)
            reached(CrashPoint.SLOT_BARRED)
            if is_barred_now:
                return await self._fold_marked([slot])
            await asyncio.sleep(0)

    async def remove(self, assertions: Sequence[Assertion]) -> list[Record]:
        """Remove assertions; return the records that changed by it."""
        slots = slots_of(assertions)
        if not slots:
            return []
        await self._records.mark_dirty(slots)
        reached(CrashPoint.SLOTS_MARKED)
        await self._assertions.remove([assertion.assertion_id for assertion in assertions])
        reached(CrashPoint.ASSERTIONS_REMOVED)
        return await self._fold_marked(slots)

    async def fold_slot(self, slot: str) -> Record | None:
        """Fold a slot; return its record if that changed it. Others' marks stay."""
        return await self._fold(slot, ends_mark=False)

    async def announce(self, records: Sequence[Record]) -> int:
        """Publish that records changed; return how many were acknowledged.

        Without a broker the rest stays unannounced, and the sweep sends it later.
        """
        for announced, record in enumerate(records):
            try:
                await self._announce(record)
            except BrokerUnavailableError:
                log.warning("records_not_announced", records=len(records) - announced)
                return announced
        return len(records)

    async def sweep_dirty(self, limit: int) -> int:
        """Fold slots that are marked, the oldest marks first; return how many it folded."""
        slots = await self._records.dirty(limit)
        return await mend_each(slots, self.fold_slot, sweep="dirty_slots", metrics=self._metrics)

    async def sweep_unannounced(self, limit: int) -> int:
        """Announce records whose event was not acknowledged, the oldest first; return how many.

        Raises:
            BrokerUnavailableError: Kafka is gone; the next sweep tries again.
        """
        records = await self._records.unannounced(limit)
        return await mend_each(
            records, self._announce, sweep="unannounced_records", metrics=self._metrics
        )

    async def _announce(self, record: Record) -> None:
        event = changed_event(record, self._clock.now())
        await self._publisher.publish(encode(RECORD_CHANGED.name, event))
        reached(CrashPoint.RECORD_PUBLISHED)
        await self._records.mark_announced(record.record_id, record.rev)
        reached(CrashPoint.RECORD_ANNOUNCED)

    async def _fold_marked(self, slots: Sequence[SlotKey]) -> list[Record]:
        folded = [await self._fold(slot.slot, ends_mark=True) for slot in slots]
        return [record for record in folded if record is not None]

    async def _fold(self, slot: str, *, ends_mark: bool) -> Record | None:
        """Fold until nobody was faster: each time somebody was, his work got on."""
        while True:
            # The record first: what is asserted after this line raises a rev we have read.
            record = await self._records.get(slot)
            if record is None:
                return None
            found = await self._assertions.of_slot(slot)
            assertions = standing(record.bar, in_source_order(found))
            folded = _folded(record, assertions)
            changed = folded.runs != record.runs
            stored = await self._records.store(
                folded, read_rev=record.rev, changed=changed, ends_mark=ends_mark
            )
            reached(CrashPoint.RECORD_FOLDED)
            if stored:
                return folded if changed else None
            await asyncio.sleep(0)


def changed_event(record: Record, now: datetime) -> RecordChanged:
    """Return the news that a record changed."""
    return RecordChanged(
        id=event_id("record.changed", record.record_id, record.rev),
        subject=record.record_id,
        time=now,
        data=RecordChangedData(record=record.record_id, rev=record.rev, kind=record.kind.value),
    )


def _folded(record: Record, assertions: Sequence[Assertion]) -> Record:
    """Return a record as its assertions, in source order, make it: the next revision.

    The subject is written as the first of them writes it; slots compare it normalized. A shell
    whose content was forgotten keeps neither that nor the key.
    """
    runs = fold(slot_of(record), assertions)
    key, subject = record.key, record.subject
    if assertions:
        key, subject = assertions[0].key, assertions[0].subject
    if record.bar is not None and not runs:
        key, subject = "", ""
    return record.model_copy(
        update={"key": key, "subject": subject, "runs": runs, "rev": record.rev + 1}
    )
