"""Events to and from bytes, and a message on its way to a retry tier or a dead topic.

Whatever lies on a topic, reading it either yields an event or raises `MessageError`. Headers are
UTF-8 strings, decimal integers and epoch milliseconds; ours are replaced, never appended.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final, NoReturn, TypeGuard, cast

from pydantic import TypeAdapter, ValidationError

from pipeline.errors import MessageError
from schemas.event import (
    Event,
    RecordChanged,
    SessionClosed,
    SnapshotReady,
    TurnRecorded,
)
from schemas.failure import Coordinates, Failure, FailureClass, Letter
from schemas.message import TICKET_HEADER, Headers, IncomingMessage, OutgoingMessage
from schemas.topics import Stage

MAXIMUM_EVENT_BYTES: Final = 4096
"""No event of ours is larger; what is larger is none of ours and is not parsed."""
MAXIMUM_HEADERS_BYTES: Final = 16_384
"""What is forwarded of headers that are not ours; a letter keeps them all."""
MAXIMUM_HEADERS: Final = 200
"""The same, as a count."""
MAXIMUM_CODE_BYTES: Final = 256
"""A reason or an exception's type in a header."""

EVENT_ID_HEADER: Final = "ce_id"
CONTENT_TYPE_HEADER: Final = "content-type"
CONTENT_TYPE: Final = "application/cloudevents+json"

ERRORS_PREFIX: Final = "afterturn.errors."
ORIGIN_HEADERS: Final = tuple(
    f"{ERRORS_PREFIX}{name}" for name in ("topic", "partition", "offset", "timestamp", "group")
)
"""Where a message failed first."""
FAILURE_HEADERS: Final = tuple(
    f"{ERRORS_PREFIX}{name}" for name in ("stage", "class", "reason", "exception")
)
"""How it failed last."""
LETTER_HEADER: Final = f"{ERRORS_PREFIX}letter"
"""Which letter a message was that is sent back: if it dies again, it is the same one."""
OMITTED_HEADER: Final = f"{ERRORS_PREFIX}omitted"
"""Why a message on a dead topic goes without its key, value and other headers."""

_LARGEST_INTEGER: Final = 2**63 - 1
_EVENT: Final[TypeAdapter[Event]] = TypeAdapter(Event)
_CURRENT: Final[Mapping[str, str]] = MappingProxyType(
    {
        str(model.model_fields["type"].default): str(model.model_fields["dataschema"].default)
        for model in (TurnRecorded, SessionClosed, SnapshotReady, RecordChanged)
    }
)
"""The version of each type that we write and understand."""

Document = dict[str, Any]
Upcast = Callable[[Document], Document]
"""Returns an event's document as the next version has it, with that version's `dataschema`."""
UPCASTS: Final[Mapping[str, Upcast]] = MappingProxyType({})
"""By the `dataschema` that is read. Every event is in its first version still."""


def encode(topic: str, event: Event, *, ticket: str | None = None) -> OutgoingMessage:
    """Return an event as the message that announces it.

    Raises:
        ValueError: It is larger than any event may be: somebody put words into it.
    """
    value = event.model_dump_json().encode()
    if len(value) > MAXIMUM_EVENT_BYTES:
        raise ValueError(f"an event has at most {MAXIMUM_EVENT_BYTES} bytes, not {len(value)}")
    names = {
        EVENT_ID_HEADER: event.id,
        "ce_type": event.type,
        "ce_source": event.source,
        "ce_specversion": event.specversion,
        "ce_time": cast("str", event.model_dump(mode="json", include={"time"})["time"]),
        CONTENT_TYPE_HEADER: CONTENT_TYPE,
    }
    if ticket is not None:
        names[TICKET_HEADER] = ticket
    return OutgoingMessage(
        topic=topic,
        key=event.subject.encode(),
        value=value,
        headers=tuple((name, text.encode()) for name, text in names.items()),
    )


def decode(message: IncomingMessage, *, upcasts: Mapping[str, Upcast] = UPCASTS) -> Event:
    """Return the event a message carries, in its present version.

    Raises:
        MessageError: There is none. Its reason is a stable code and holds nothing of the message.
    """
    document = _parse(message.value)
    for _ in range(len(upcasts)):
        upcast = upcasts.get(_text(document, "dataschema"))
        if upcast is None:
            break
        document = _upcast(upcast, document)
    current = _CURRENT.get(_text(document, "type"))
    if current is None:
        raise _undecodable("unknown_type")
    if _text(document, "dataschema") != current:
        raise MessageError(FailureClass.UNKNOWN_VERSION, "unknown_version")
    return _validate(document)


def forward(
    message: IncomingMessage,
    *,
    topic: str,
    stage: Stage,
    ticket: str | None,
    failure: Failure | None,
) -> OutgoingMessage:
    """Return a message as it goes to a retry tier or dead topic: its very key and value.

    Args:
        message: What was read.
        topic: Where it goes.
        stage: Whose attempt it was.
        ticket: The new ticket; none leaves the one it has.
        failure: The last failure; none leaves what is said of an earlier one.

    Headers: where it failed first stays once it was said, else it is where it was read now; other
    headers are kept byte for byte, the first ones where they are too many or too large.
    """
    ours: dict[str, str] = {}
    kept_ticket = ticket if ticket is not None else message.header(TICKET_HEADER)
    if kept_ticket is not None:
        ours[TICKET_HEADER] = kept_ticket
    ours |= _origin_headers(origin(message) or message.at)
    ours |= _failure_headers(message, stage, failure)
    return OutgoingMessage(
        topic=topic,
        key=message.key,
        value=message.value,
        headers=(
            *_bounded(item for item in message.headers if not _is_ours(item[0])),
            *((name, _code(text)) for name, text in ours.items()),
        ),
    )


def sent_back(letter: Letter) -> OutgoingMessage:
    """Return a letter's message as it was, for the topic on which it first failed.

    Raises:
        ValueError: It came from no topic.
    """
    if letter.original is None:
        raise ValueError("a letter without a message can't be sent back as one")
    message = IncomingMessage(
        at=letter.original, key=letter.key, value=letter.value, headers=letter.headers
    )
    return OutgoingMessage(
        topic=(origin(message) or letter.original).topic,
        key=letter.key,
        value=letter.value,
        headers=(
            *(item for item in letter.headers if not item[0].startswith(ERRORS_PREFIX)),
            (LETTER_HEADER, letter.letter_id.encode()),
        ),
    )


def by_reference(dead: OutgoingMessage) -> OutgoingMessage:
    """Return a forwarded message that is too large as what is said of it: the letter has it all."""
    return OutgoingMessage(
        topic=dead.topic,
        key=None,
        value=None,
        headers=(
            *(item for item in dead.headers if _is_ours(item[0])),
            (OMITTED_HEADER, b"too_large"),
        ),
    )


def origin(message: IncomingMessage) -> Coordinates | None:
    """Return where a forwarded message failed first; none where it does not say so readably."""
    topic, partition, offset, timestamp, group = map(message.header, ORIGIN_HEADERS)
    if not (topic and group and _is_count(partition) and _is_count(offset) and timestamp):
        return None
    if not _is_count(timestamp.removeprefix("-")):
        return None
    return Coordinates(
        topic=topic,
        partition=int(partition),
        offset=int(offset),
        timestamp_ms=int(timestamp),
        group=group,
    )


def _parse(value: bytes | None) -> Document:
    if value is None:
        raise _undecodable("tombstone")
    if not value:
        raise _undecodable("empty")
    if len(value) > MAXIMUM_EVENT_BYTES:
        raise _undecodable("too_large")
    parsed = _loaded(value)
    if isinstance(parsed, _Unusable):
        raise _undecodable(parsed.reason)
    if not isinstance(parsed, dict):
        raise _undecodable("not_an_object")
    return cast("Document", parsed)


class _Unusable(Exception):  # noqa: N818 (a reason that is returned, not raised to anybody)
    """Why a text is no document.

    It is handed on as a value: what the parsers raise quotes the message, and must become neither
    cause nor context of what we raise.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def _loaded(value: bytes) -> object:
    try:
        return json.loads(
            value.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_int=_storable,
            parse_constant=_refuse,
        )
    except _Unusable as unusable:
        return unusable
    except UnicodeDecodeError:
        return _Unusable("not_utf8")
    except (ValueError, RecursionError):
        return _Unusable("not_json")


def _unique(pairs: list[tuple[str, Any]]) -> Document:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise _Unusable("duplicate_key")
    return document


def _storable(digits: str) -> int:
    """Return an integer that every store can hold."""
    if len(digits) > len(str(-_LARGEST_INTEGER)) or abs(int(digits)) > _LARGEST_INTEGER:
        raise _Unusable("invalid_field")
    return int(digits)


def _refuse(_: str) -> NoReturn:
    raise _Unusable("not_json")


def _text(document: Document, name: str) -> str:
    text = document.get(name)
    if not isinstance(text, str):
        raise _undecodable("missing_field" if text is None else "invalid_field")
    return text


def _upcast(upcast: Upcast, document: Document) -> Document:
    with suppress(ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return upcast(document)
    raise _undecodable("invalid_field")


def _validate(document: Document) -> Event:
    broken: set[str] = set()
    try:
        return _EVENT.validate_json(json.dumps(document), strict=True)
    except ValidationError as error:
        broken = {problem["type"] for problem in error.errors(include_input=False)}
    except RecursionError:
        pass
    if "missing" in broken:
        raise _undecodable("missing_field")
    if "extra_forbidden" in broken:
        raise _undecodable("unknown_field")
    raise _undecodable("invalid_field")


def _undecodable(reason: str) -> MessageError:
    return MessageError(FailureClass.UNDECODABLE, reason)


def _origin_headers(at: Coordinates) -> dict[str, str]:
    values = (at.topic, str(at.partition), str(at.offset), str(at.timestamp_ms), at.group)
    return dict(zip(ORIGIN_HEADERS, values, strict=True))


def _failure_headers(
    message: IncomingMessage, stage: Stage, failure: Failure | None
) -> dict[str, str]:
    if failure is None:
        said = {name: message.header(name) for name in FAILURE_HEADERS}
        return {name: text for name, text in said.items() if text is not None}
    values = (stage.value, failure.failure_class.value, failure.reason, failure.exception)
    return dict(zip(FAILURE_HEADERS, values, strict=True))


def _is_ours(name: str) -> bool:
    return name == TICKET_HEADER or name.startswith(ERRORS_PREFIX)


def _bounded(headers: Iterable[tuple[str, bytes | None]]) -> Headers:
    kept: list[tuple[str, bytes | None]] = []
    size = 0
    for name, value in headers:
        size += len(name.encode("utf-8", "surrogatepass")) + len(value or b"")
        if len(kept) == MAXIMUM_HEADERS or size > MAXIMUM_HEADERS_BYTES:
            break
        kept.append((name, value))
    return tuple(kept)


def _code(text: str) -> bytes:
    """Return a code as UTF-8 of bounded size."""
    cut = text.encode("utf-8", "replace")[:MAXIMUM_CODE_BYTES]
    return cut.decode("utf-8", "ignore").encode()


def _is_count(text: str | None) -> TypeGuard[str]:
    return text is not None and text.isascii() and text.isdigit() and len(text) <= len("9" * 18)
