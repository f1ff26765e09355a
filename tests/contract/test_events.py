"""Every event reads and writes exactly the bytes of its golden file, and no schema drifts."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast, get_args

import pytest
from pydantic import TypeAdapter

from pipeline.messages import MAXIMUM_EVENT_BYTES, decode, encode
from schemas.event import (
    Event,
    RecordChanged,
    RecordChangedData,
    SessionClosed,
    SessionClosedData,
    SnapshotReady,
    SnapshotReadyData,
    TurnRecorded,
    TurnRecordedData,
)
from schemas.failure import Coordinates
from schemas.message import Headers, IncomingMessage

EVENTS: Final = Path(__file__).with_name("events")
SESSION: Final = "ses_0123456789abcdef0123456789abcdef"
SNAPSHOT: Final = "snp_0123456789abcdef0123456789abcdef"
RECORD: Final = "rec_0123456789abcdef0123456789abcdef"
TIME: Final = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)

GOLDEN: Final[dict[str, Event]] = {
    "afterturn.turn.recorded.v1": TurnRecorded(
        id=f"{SESSION}:7",
        subject=SESSION,
        time=TIME,
        data=TurnRecordedData(session=SESSION, seq=7),
    ),
    "afterturn.session.closed.v1": SessionClosed(
        id=f"{SESSION}:closed", subject=SESSION, time=TIME, data=SessionClosedData(session=SESSION)
    ),
    "afterturn.snapshot.ready.v1": SnapshotReady(
        id=f"{SNAPSHOT}:0",
        subject=SESSION,
        time=TIME,
        data=SnapshotReadyData(session=SESSION, snapshot=SNAPSHOT, first_seq=1, last_seq=20, run=0),
    ),
    "afterturn.record.changed.v1": RecordChanged(
        id=f"{RECORD}:3",
        subject=RECORD,
        time=TIME,
        data=RecordChangedData(record=RECORD, rev=3, kind="semantic"),
    ),
}


def test_every_event_has_a_golden_file() -> None:
    """A new event, or a new version of one, brings its golden file."""
    models = get_args(get_args(Event)[0])
    versions = {model.model_fields["dataschema"].default for model in models}

    assert versions == set(GOLDEN)
    assert {path.stem for path in EVENTS.glob("*.json")} >= versions


@pytest.mark.parametrize("name", GOLDEN)
def test_an_event_is_written_as_its_golden_file(name: str) -> None:
    """Key, headers and value are frozen byte for byte."""
    message = encode("a.topic", GOLDEN[name], ticket="t-1")
    written = {
        "key": (message.key or b"").decode(),
        "headers": [[key, (value or b"").decode()] for key, value in message.headers],
        "value": json.loads(message.value or b""),
    }

    assert written == json.loads((EVENTS / f"{name}.json").read_text())
    assert len(message.value or b"") < MAXIMUM_EVENT_BYTES


@pytest.mark.parametrize("name", sorted(path.stem for path in EVENTS.glob("*.json")))
def test_a_golden_file_is_read_as_its_event(name: str) -> None:
    """What any release wrote is read by this one."""
    golden = json.loads((EVENTS / f"{name}.json").read_text())
    message = incoming(json.dumps(golden["value"]).encode())

    event = decode(message)

    assert event == GOLDEN[event.dataschema]


def test_no_schema_drifts() -> None:
    """A field added, removed or retyped is a new version, not an edit of this one."""
    schema = without_descriptions(TypeAdapter[Event](Event).json_schema())

    assert json.loads((EVENTS / "schema" / "events.json").read_text()) == schema


def without_descriptions(schema: Any) -> Any:
    """Return a schema without its prose, which may change."""
    if isinstance(schema, dict):
        fields = cast("dict[str, Any]", schema).items()
        return {key: without_descriptions(value) for key, value in fields if key != "description"}
    if isinstance(schema, list):
        return [without_descriptions(item) for item in cast("list[Any]", schema)]
    return schema


def incoming(value: bytes | None, *, headers: Headers = ()) -> IncomingMessage:
    """Return a message as a broker delivers it."""
    at = Coordinates(
        topic="a.topic", partition=2, offset=5, timestamp_ms=1_700_000_000_000, group="g"
    )
    return IncomingMessage(at=at, key=b"key", value=value, headers=headers)
