"""Named places between the steps of our protocols where a process may die.

Tests arm one of them, so that a process kills itself there with SIGKILL, and show that whoever
comes next finishes the work. A protocol step without a point after it fails a test.
"""

import os
import signal
from enum import StrEnum


class CrashPoint(StrEnum):
    """Every point, in the order a turn passes them."""

    TURN_INSERTED = "record.turn_inserted"
    TURN_ANNOUNCED = "record.turn_announced"
    SESSION_CLOSED = "record.session_closed"
    GAP_NOTED = "snapshot.gap_noted"
    SNAPSHOT_INSERTED = "snapshot.inserted"
    SNAPSHOT_PUBLISHED = "snapshot.published"
    SNAPSHOT_OPEN_CLEARED = "snapshot.open_cleared"
    EXTRACTION_ENSURED = "extraction.ensured"
    EXTRACTION_HELD = "extraction.held"
    EXTRACTION_CLAIMED = "extraction.claimed"
    MODEL_ANSWERED = "extraction.model_answered"
    ANSWER_STORED = "extraction.answer_stored"
    PART_ENLARGED = "extraction.part_enlarged"
    PART_SPLIT = "extraction.part_split"
    PART_BURIED = "extraction.part_buried"
    SLOTS_MARKED = "fold.slots_marked"
    ASSERTIONS_WRITTEN = "fold.assertions_written"
    ASSERTIONS_REMOVED = "fold.assertions_removed"
    RECORD_FOLDED = "fold.record_folded"
    RECORD_PUBLISHED = "fold.record_published"
    RECORD_ANNOUNCED = "fold.record_announced"
    EMBEDDER_ANSWERED = "embedding.answered"
    EMBEDDING_BEGUN = "embedding.begun"
    VECTORS_PUT = "embedding.vectors_put"
    VECTORS_CLEANED = "embedding.vectors_cleaned"
    EMBEDDING_ENDED = "embedding.ended"
    EMBEDDING_WAITS = "embedding.waits"
    EMBEDDING_DEAD = "embedding.dead"
    EMBEDDING_RENEWED = "embedding.renewed"
    CLEANER_NOTED = "embedding.cleaner_noted"
    EMBEDDING_WOKEN = "waker.embedding_woken"
    EMBEDDING_POSTPONED = "waker.embedding_postponed"
    TOMBSTONE_WRITTEN = "forget.tombstone_written"
    SLOT_BARRED = "forget.slot_barred"
    ANSWER_BLANKED = "forget.answer_blanked"
    SUMMARY_BLANKED = "forget.summary_blanked"
    TOMBSTONE_ADVANCED = "forget.tombstone_advanced"
    EXTRACTION_SETTLED = "extraction.settled"
    SNAPSHOT_SETTLED = "extraction.snapshot_settled"
    RUN_ACTIVATED = "replay.run_activated"
    RUN_BEGUN = "replay.run_begun"
    JOB_STORED = "replay.job_stored"
    RUN_COMPARED = "replay.run_compared"
    ANSWERS_DROPPED = "replay.answers_dropped"
    EARLIER_RUNS_ENDED = "replay.earlier_runs_ended"
    SESSION_WOKEN = "waker.session_woken"
    SNAPSHOT_WOKEN = "waker.snapshot_woken"
    FATE_WRITTEN = "failure.fate_written"
    FATE_PUBLISHED = "failure.fate_published"
    FATE_MARKED_SENT = "failure.fate_marked_sent"
    LETTER_STORED = "failure.letter_stored"
    LETTER_MOVED = "failure.letter_moved"
    LETTER_PUBLISHED = "failure.letter_published"
    LETTER_MARKED_SENT = "failure.letter_marked_sent"
    SNAPSHOT_REOPENED = "redrive.snapshot_reopened"
    PART_OPENED = "redrive.part_opened"
    LETTER_CHANGED = "redrive.letter_changed"
    MESSAGE_SENT_BACK = "redrive.message_sent_back"
    BEFORE_COMMIT = "consumer.before_commit"


class _Armed:
    point: CrashPoint | None = None
    passes_left: int = 0


def arm(point: CrashPoint | None, *, passes: int = 0) -> None:
    """Make this process die at `point`, after having passed it `passes` times. For tests.

    None: it dies nowhere.
    """
    _Armed.point = point
    _Armed.passes_left = passes


def armed() -> CrashPoint | None:
    """Return where this process would die."""
    return _Armed.point


def reached(point: CrashPoint) -> None:
    """Die here if armed for this point; otherwise do nothing."""
    if _Armed.point is not point:
        return
    if _Armed.passes_left > 0:
        _Armed.passes_left -= 1
        return
    os.kill(os.getpid(), signal.SIGKILL)
