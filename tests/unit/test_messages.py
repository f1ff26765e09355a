"""Whatever lies on a topic is an event or a `MessageError`, and a forward keeps what it must."""

import json
import traceback
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import MessageError
from pipeline.messages import (
    FAILURE_HEADERS,
    MAXIMUM_EVENT_BYTES,
    MAXIMUM_HEADERS,
    MAXIMUM_HEADERS_BYTES,
    ORIGIN_HEADERS,
    decode,
    encode,
    forward,
    origin,
)
from schemas.event import SnapshotReady
from schemas.failure import Coordinates, Failure, FailureClass
from schemas.message import TICKET_HEADER, Headers, IncomingMessage, OutgoingMessage
from schemas.topics import Stage
from tests.contract.test_events import GOLDEN, incoming

EVENT: Final = GOLDEN["afterturn.snapshot.ready.v1"]
DOCUMENT: Final[dict[str, Any]] = json.loads(encode("a.topic", EVENT).value or b"")
FAILURE: Final = Failure(
    failure_class=FailureClass.RATE_LIMITED, reason="http_429", exception="openai.RateLimitError"
)
SECRET: Final = "the-words-of-a-person"
PRESENT: Final = "afterturn.snapshot.ready.v1"
OLDER: Final = "afterturn.snapshot.ready.v0"
OLDEST: Final = "afterturn.snapshot.ready.v-1"

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
header_names = st.sampled_from(
    (*ORIGIN_HEADERS, *FAILURE_HEADERS, TICKET_HEADER, "ce_id")
) | st.text(max_size=20)
headers = st.lists(
    st.tuples(header_names, st.none() | st.binary(max_size=40) | st.just(b"7")), max_size=30
).map(tuple)


def test_an_event_comes_back_as_it_was_sent() -> None:
    """Encoding and decoding are inverse."""
    message = encode("a.topic", EVENT, ticket="t-1")

    assert decode(received(message)) == EVENT
    assert received(message).header(TICKET_HEADER) == "t-1"
    assert message.key == EVENT.subject.encode()


def test_no_event_is_larger_than_the_limit() -> None:
    """An event into which somebody put words is refused where it is made."""
    with pytest.raises(ValueError, match="4096"):
        encode("a.topic", EVENT.model_copy(update={"id": "x" * MAXIMUM_EVENT_BYTES}))


@pytest.mark.parametrize(
    ("value", "failure_class", "reason"),
    [
        (None, FailureClass.UNDECODABLE, "tombstone"),
        (b"", FailureClass.UNDECODABLE, "empty"),
        (b"\xff\x00", FailureClass.UNDECODABLE, "not_utf8"),
        (b"{", FailureClass.UNDECODABLE, "not_json"),
        (b"\xef\xbb\xbf{}", FailureClass.UNDECODABLE, "not_json"),
        (b"NaN", FailureClass.UNDECODABLE, "not_json"),
        (b"[" * 4000, FailureClass.UNDECODABLE, "not_json"),
        (b"[]", FailureClass.UNDECODABLE, "not_an_object"),
        (b'"text"', FailureClass.UNDECODABLE, "not_an_object"),
        (b'{"a":1,"a":1}', FailureClass.UNDECODABLE, "duplicate_key"),
        (b'{"a":[{"b":1,"b":2}]}', FailureClass.UNDECODABLE, "duplicate_key"),
        (b"{}", FailureClass.UNDECODABLE, "missing_field"),
        (b" " * MAXIMUM_EVENT_BYTES + b"{}", FailureClass.UNDECODABLE, "too_large"),
        (b'{"a":9223372036854775808}', FailureClass.UNDECODABLE, "invalid_field"),
        (b'{"a":' + b"9" * 4000 + b"}", FailureClass.UNDECODABLE, "invalid_field"),
    ],
)
def test_what_is_no_event_has_a_reason(
    value: bytes | None, failure_class: FailureClass, reason: str
) -> None:
    """Each way of being unreadable has a stable code of its own."""
    with pytest.raises(MessageError) as caught:
        decode(incoming(value))

    assert (caught.value.failure_class, caught.value.reason) == (failure_class, reason)


@pytest.mark.parametrize(
    ("change", "failure_class", "reason"),
    [
        (
            {"dataschema": "afterturn.snapshot.ready.v9"},
            FailureClass.UNKNOWN_VERSION,
            "unknown_version",
        ),
        ({"dataschema": 1}, FailureClass.UNDECODABLE, "invalid_field"),
        ({"dataschema": None}, FailureClass.UNDECODABLE, "missing_field"),
        ({"type": "afterturn.unheard.of"}, FailureClass.UNDECODABLE, "unknown_type"),
        ({"type": "afterturn.turn.recorded"}, FailureClass.UNKNOWN_VERSION, "unknown_version"),
        ({"time": "2026-01-02T03:04:05"}, FailureClass.UNDECODABLE, "invalid_field"),
        ({"time": 5}, FailureClass.UNDECODABLE, "invalid_field"),
        ({"subject": "\ud800"}, FailureClass.UNDECODABLE, "invalid_field"),
        ({"more": 1}, FailureClass.UNDECODABLE, "unknown_field"),
        ({"data": {}}, FailureClass.UNDECODABLE, "missing_field"),
        ({"data": DOCUMENT["data"] | {"run": "0"}}, FailureClass.UNDECODABLE, "invalid_field"),
        ({"data": DOCUMENT["data"] | {"session": "me"}}, FailureClass.UNDECODABLE, "invalid_field"),
    ],
)
def test_an_event_with_a_flaw_has_a_reason(
    change: dict[str, Any], failure_class: FailureClass, reason: str
) -> None:
    """A version we don't know is told apart from what no version could read."""
    with pytest.raises(MessageError) as caught:
        decode(incoming(json.dumps(DOCUMENT | change).encode()))

    assert (caught.value.failure_class, caught.value.reason) == (failure_class, reason)


@given(value=st.none() | st.binary() | json_values.map(lambda value: json.dumps(value).encode()))
def test_no_bytes_escape_as_anything_else(value: bytes | None) -> None:
    """Reading is total."""
    with pytest.raises(MessageError):
        decode(incoming(value))


@given(
    field=st.sampled_from(sorted(DOCUMENT)) | st.text(),
    inner=st.sampled_from(sorted(DOCUMENT["data"])) | st.text(),
    value=json_values,
)
def test_no_altered_event_escapes_as_anything_else(field: str, inner: str, value: object) -> None:
    """Reading is total close to what is readable, too."""
    for changed in ({field: value}, {"data": DOCUMENT["data"] | {inner: value}}):
        try:
            event = decode(incoming(json.dumps(DOCUMENT | changed).encode()))
        except MessageError:
            continue
        assert isinstance(event, SnapshotReady)


@pytest.mark.parametrize(
    "value",
    [
        f'{{"{SECRET}": 1}}'.encode(),
        json.dumps(DOCUMENT | {SECRET: 1}).encode(),
        json.dumps(DOCUMENT | {"time": SECRET}).encode(),
        f'{{"a": {SECRET}'.encode(),
        f'{{"{SECRET}": 1, "{SECRET}": 2}}'.encode(),
        f'{{"{SECRET}": NaN}}'.encode(),
        SECRET.encode() + b"\xff",
    ],
)
def test_an_error_says_nothing_of_the_content(value: bytes) -> None:
    """Neither its text nor its causes hold a word of the message."""
    with pytest.raises(MessageError) as caught:
        decode(incoming(value))

    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_an_old_version_is_upcast_step_by_step() -> None:
    """Each upcast leads to the next version, the last to the present one."""
    oldest = DOCUMENT | {"dataschema": OLDEST, "data": {"snap": DOCUMENT["data"]["snapshot"]}}

    def to_older(document: dict[str, Any]) -> dict[str, Any]:
        data = {"snapshot": document["data"]["snap"], "range": [1, 20]}
        return document | {"dataschema": OLDER, "data": data}

    def to_present(document: dict[str, Any]) -> dict[str, Any]:
        first, last = document["data"].pop("range")
        data = document["data"] | {
            "session": DOCUMENT["data"]["session"],
            "first_seq": first,
            "last_seq": last,
        }
        return document | {"dataschema": PRESENT, "data": data}

    upcasts = {OLDEST: to_older, OLDER: to_present}
    message = incoming(json.dumps(oldest).encode())

    assert decode(message, upcasts=upcasts) == EVENT
    with pytest.raises(MessageError, match="unknown_version"):
        decode(message, upcasts={OLDEST: to_older})
    with pytest.raises(MessageError, match="unknown_version"):
        decode(message)


def test_an_upcast_that_cannot_read_its_version_is_a_message_error() -> None:
    """A broken document of an old version is undecodable, not a bug that holds the partition."""
    message = incoming(json.dumps(DOCUMENT | {"dataschema": OLDER}).encode())

    def failing(document: dict[str, Any]) -> dict[str, Any]:
        return document["nothing"]

    with pytest.raises(MessageError, match="invalid_field"):
        decode(message, upcasts={OLDER: failing})
    with pytest.raises(MessageError, match="unknown_version"):
        decode(message, upcasts={OLDER: lambda document: document})


def test_a_forward_says_where_it_failed_first_and_how_it_failed_last() -> None:
    """Key and value are the very same; what was said before of the failure is replaced."""
    first = forwarded(received(encode("a.topic", EVENT, ticket="t-1")), ticket="t-2")
    later = FAILURE.model_copy(update={"reason": "http_503"})
    second = forwarded(received(first, partition=9), ticket="t-3", failure=later)

    assert (second.key, second.value) == (EVENT.subject.encode(), encode("a.topic", EVENT).value)
    assert texts(second) == {
        **texts(encode("a.topic", EVENT)),
        "afterturn.ticket": "t-3",
        "afterturn.errors.topic": "a.topic",
        "afterturn.errors.partition": "2",
        "afterturn.errors.offset": "5",
        "afterturn.errors.timestamp": "1700000000000",
        "afterturn.errors.group": "g",
        "afterturn.errors.stage": "extraction",
        "afterturn.errors.class": "env.rate_limited",
        "afterturn.errors.reason": "http_503",
        "afterturn.errors.exception": "openai.RateLimitError",
    }
    assert len(second.headers) == len(texts(second))


def test_a_deferral_keeps_what_was_said() -> None:
    """Without a new failure or ticket, those of before stand."""
    first = forwarded(received(encode("a.topic", EVENT)), ticket="t-2")
    again = forwarded(received(first), ticket=None, failure=None)

    assert texts(again) == texts(first)


@pytest.mark.parametrize(
    "unreadable", [None, b"", b"\xff", b"-1", b"1.5", b"x", "٣".encode(), b"9" * 40]
)
def test_an_unreadable_origin_is_where_it_is_now(unreadable: bytes | None) -> None:
    """A half-readable first failure is none."""
    said = dict.fromkeys(ORIGIN_HEADERS, b"7") | {"afterturn.errors.partition": unreadable}
    message = incoming(b"{}", headers=tuple(said.items()))

    assert origin(message) is None
    assert texts(forwarded(message))["afterturn.errors.partition"] == "2"


@given(headers=headers, key=st.none() | st.binary(), value=st.none() | st.binary())
def test_a_forward_appends_to_nothing(
    headers: Headers, key: bytes | None, value: bytes | None
) -> None:
    """Whatever the headers: ours are there once, as UTF-8; foreign ones byte for byte."""
    message = incoming(value, headers=headers).model_copy(update={"key": key})
    once = forwarded(message)
    twice = forwarded(received(once))
    names = [name for name, _ in once.headers if name.startswith("afterturn.")]

    assert (once.key, once.value) == (key, value)
    assert len(names) == len(set(names))
    assert [item for item in once.headers if not item[0].startswith("afterturn.")] == [
        item for item in headers if not item[0].startswith("afterturn.")
    ]
    assert None not in [readable(value) for name, value in once.headers if name in names]
    assert sorted(twice.headers, key=repr) == sorted(once.headers, key=repr)


def test_headers_are_bounded() -> None:
    """Neither many nor large foreign headers, nor a long reason, make a message too large."""
    many = tuple((f"h{index}", b"x") for index in range(1000))
    large = (("large", b"x" * MAXIMUM_HEADERS_BYTES), ("small", b"x"))
    long = FAILURE.model_copy(update={"reason": "ü" * 10_000})

    assert len(forwarded(incoming(b"{}", headers=many)).headers) < MAXIMUM_HEADERS + 20
    assert "large" not in texts(forwarded(incoming(b"{}", headers=large)))
    assert len(texts(forwarded(incoming(b"{}"), failure=long))["afterturn.errors.reason"]) == 128


def forwarded(
    message: IncomingMessage, *, ticket: str | None = "t-9", failure: Failure | None = FAILURE
) -> OutgoingMessage:
    """Return a message as it goes to a tier of the extraction stage."""
    return forward(message, topic="a.tier", stage=Stage.EXTRACTION, ticket=ticket, failure=failure)


def readable(value: bytes | None) -> str | None:
    """Return a header's text, none where it has none."""
    return incoming(None, headers=(("a", value),)).header("a")


def received(message: OutgoingMessage, *, partition: int = 2) -> IncomingMessage:
    """Return a message as the broker delivers it."""
    at = Coordinates(
        topic=message.topic,
        partition=partition,
        offset=5,
        timestamp_ms=1_700_000_000_000,
        group="g",
    )
    return IncomingMessage(at=at, key=message.key, value=message.value, headers=message.headers)


def texts(message: OutgoingMessage) -> dict[str, str]:
    """Return the headers as text."""
    return {name: (value or b"").decode() for name, value in message.headers}
