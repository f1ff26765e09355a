"""The composition of what takes turns and cuts them, and of the waker that finds what got lost."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from consumers.wiring import SWEEP_LIMIT, Installation
from pipeline.cutting import Cutter, SnapshotStep
from pipeline.embedding.step import PendingEmbeddings
from producers.recording import Recorder
from producers.waker import OpenTurnsSweep, Sweep, UnsettledSnapshotsSweep, Waker


@asynccontextmanager
async def recorder(parts: Installation) -> AsyncGenerator[Recorder]:
    """Record turns; at the end, the wake-ups on their way are given their time."""
    recording = Recorder(
        sessions=parts.sessions,
        turns=parts.turns,
        publisher=parts.publisher,
        ids=parts.ids,
        clock=parts.clock,
        to_embed=parts.embeds_turns.wants,
        patience=parts.settings.mongo.timeout,
    )
    try:
        yield recording
    finally:
        await recording.drain()
        await recording.stop()


def waker(parts: Installation) -> Waker:
    """Return what finds lost work of every stage."""
    settings = parts.settings
    return Waker(
        [
            Sweep(
                name="open_turns",
                run=OpenTurnsSweep(
                    turns=parts.turns,
                    publisher=parts.publisher,
                    server_time=parts.server_time,
                    settings=settings.snapshot,
                    lost_after=settings.waker.lost_after,
                    projects=parts.projects,
                    metrics=parts.metrics,
                ),
            ),
            Sweep(
                name="unsettled_snapshots",
                run=UnsettledSnapshotsSweep(
                    snapshots=parts.snapshots,
                    server_time=parts.server_time,
                    resend=parts.fates.resend,
                    metrics=parts.metrics,
                ),
            ),
            Sweep(name="unsent_fates", run=lambda: parts.fates.sweep_unsent(SWEEP_LIMIT)),
            Sweep(name="dirty_slots", run=lambda: parts.folder.sweep_dirty(SWEEP_LIMIT)),
            Sweep(
                name="unannounced_records",
                run=lambda: parts.folder.sweep_unannounced(SWEEP_LIMIT),
            ),
            Sweep(name="forgettings", run=lambda: parts.forgetter.sweep(SWEEP_LIMIT)),
            *_embedding_sweeps(parts),
        ],
        interval=settings.waker.interval,
    )


def _embedding_sweeps(parts: Installation) -> list[Sweep]:
    """Return none where nothing is embedded: all that is pending would be woken for ever."""
    if parts.settings.embedding.provider == "none":
        return []
    pending = PendingEmbeddings(
        ledger=parts.embeddings,
        publisher=parts.publisher,
        server_time=parts.server_time,
        clock=parts.clock,
        lost_after=parts.settings.waker.lost_after,
        metrics=parts.metrics,
    )
    return [Sweep(name="pending_embeddings", run=lambda: pending.sweep(SWEEP_LIMIT))]


def snapshot_step(parts: Installation) -> SnapshotStep:
    """Return the step of the snapshot consumers."""
    cutter = Cutter(
        sessions=parts.sessions,
        turns=parts.turns,
        snapshots=parts.snapshots,
        publisher=parts.publisher,
        server_time=parts.server_time,
        ids=parts.ids,
        settings=parts.settings.snapshot,
        wake_after=parts.settings.waker.lost_after,
        projects=parts.projects,
    )
    return SnapshotStep(cutter=cutter, undecodable=parts.dead_letters)
