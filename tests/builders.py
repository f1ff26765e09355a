"""Values for tests: sensible defaults, and what a test cares about as arguments."""

from datetime import UTC, datetime, timedelta
from typing import Any

from schemas.extraction import Extraction, NextMessage, Part
from schemas.identity import SessionIdentity
from schemas.memory import Kind
from schemas.snapshot import CutReason, Snapshot
from schemas.turn import Role, Turn

SESSION = "ses_" + "a" * 32
SNAPSHOT = "snp_" + "b" * 32
SAID_AT = datetime(2026, 3, 1, 10, tzinfo=UTC)
IDENTITY = SessionIdentity(user_id="ana", session_id="s1")


def turn(seq: int, content: str = "I live in Porto.", **fields: Any) -> Turn:
    said_at = SAID_AT + timedelta(minutes=seq)
    return Turn.model_validate(
        {
            "turn_id": f"trn_{seq:032x}",
            "session": SESSION,
            "identity": IDENTITY,
            "incarnation": 1,
            "seq": seq,
            "role": Role.USER,
            "content": content,
            "created_at": said_at,
            "recorded_at": said_at,
            "effective_at": said_at,
            "tokens": 5,
        }
        | fields
    )


def snapshot(first_seq: int = 1, last_seq: int = 4, **fields: Any) -> Snapshot:
    return Snapshot.model_validate(
        {
            "snapshot_id": SNAPSHOT,
            "session": SESSION,
            "identity": IDENTITY,
            "incarnation": 1,
            "first_seq": first_seq,
            "last_seq": last_seq,
            "reason": CutReason.CLOSED,
            "created_at": SAID_AT,
        }
        | fields
    )


def part(first_seq: int = 1, last_seq: int = 4, **fields: Any) -> Part:
    return Part.model_validate(
        {"first_seq": first_seq, "last_seq": last_seq, "kinds": tuple(Kind)} | fields
    )


def extraction(*parts: Part, **fields: Any) -> Extraction:
    return Extraction.model_validate(
        {
            "extraction_id": f"{SNAPSHOT}:0",
            "snapshot_id": SNAPSHOT,
            "session": SESSION,
            "run": 0,
            "parts": parts,
            "first_seen_ms": 0,
            "next": NextMessage(ticket="0", topic="t", scheduled_ms=0, due_ms=0, sent=True),
        }
        | fields
    )
