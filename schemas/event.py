"""The events on Kafka: thin, CloudEvents-named, versioned, without a word anybody said."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from schemas.base import Frozen

SOURCE = "afterturn"
_OPAQUE = r"^[a-z]{3}_[0-9a-f]{32}$"
OpaqueId = Annotated[str, Field(pattern=_OPAQUE)]
"""A keyed hash with a three-letter prefix; nothing can be guessed from it."""


class _Event(Frozen):
    id: str
    """Deterministic: the same happening has the same id, however often it is announced."""
    source: Literal["afterturn"] = SOURCE
    subject: str
    """The message's key: the opaque id of the session or record."""
    time: AwareDatetime
    specversion: Literal["1.0"] = "1.0"


class TurnRecordedData(Frozen):
    """Which session has open turns; `seq` is the newest known, none from the waker."""

    session: OpaqueId
    seq: int | None = None


class TurnRecorded(_Event):
    """A session has turns that may be ready to be cut."""

    type: Literal["afterturn.turn.recorded"] = "afterturn.turn.recorded"
    dataschema: Literal["afterturn.turn.recorded.v1"] = "afterturn.turn.recorded.v1"
    data: TurnRecordedData


class SessionClosedData(Frozen):
    """Which session was closed."""

    session: OpaqueId


class SessionClosed(_Event):
    """A session is over: what is open in it is cut now."""

    type: Literal["afterturn.session.closed"] = "afterturn.session.closed"
    dataschema: Literal["afterturn.session.closed.v1"] = "afterturn.session.closed.v1"
    data: SessionClosedData


class SnapshotReadyData(Frozen):
    """Which snapshot is to be extracted, in which run."""

    session: OpaqueId
    snapshot: OpaqueId
    first_seq: int = Field(ge=1)
    last_seq: int = Field(ge=1)
    run: int = Field(default=0, ge=0)


class SnapshotReady(_Event):
    """A snapshot waits for its extraction; also what the retry tiers and dead topics carry."""

    type: Literal["afterturn.snapshot.ready"] = "afterturn.snapshot.ready"
    dataschema: Literal["afterturn.snapshot.ready.v1"] = "afterturn.snapshot.ready.v1"
    data: SnapshotReadyData


class RecordChangedData(Frozen):
    """Which record changed, and to which revision."""

    record: OpaqueId
    rev: int
    kind: Literal["semantic", "episodic", "procedural", "taxonomic", "custom"]


class RecordChanged(_Event):
    """A record's fold changed."""

    type: Literal["afterturn.record.changed"] = "afterturn.record.changed"
    dataschema: Literal["afterturn.record.changed.v1"] = "afterturn.record.changed.v1"
    data: RecordChangedData


Event = Annotated[
    TurnRecorded | SessionClosed | SnapshotReady | RecordChanged, Field(discriminator="type")
]


def event_id(*parts: str | int) -> str:
    """Return a deterministic event id from what makes the happening one of its kind."""
    return ":".join(str(part) for part in parts)


def moment(now: datetime) -> datetime:
    """Return `now` cut to milliseconds, as every store and header keeps it."""
    return now.replace(microsecond=now.microsecond // 1000 * 1000)
