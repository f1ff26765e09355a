"""How messages name what is to be embedded: a record by its change, a turn by its recording. Pure.

A message is told apart by its headers and key, too, for one that kills its process is not decoded.
"""

import re
from datetime import datetime
from typing import Final

from pipeline.embedding.ports import Owner
from pipeline.errors import MessageError
from pipeline.folding.refolding import changed_event
from pipeline.ids import OpaqueIds
from pipeline.messages import EVENT_ID_HEADER
from schemas.event import (
    Event,
    RecordChanged,
    SessionClosed,
    TurnRecorded,
    TurnRecordedData,
    event_id,
)
from schemas.failure import FailureClass
from schemas.message import IncomingMessage
from schemas.record import Record
from schemas.topics import RECORD_CHANGED, TURN_RECORDED, Topic

_RECORDED: Final = "turn.recorded"
_NAMED: Final = re.compile(rf"{re.escape(_RECORDED)}:(ses_[0-9a-f]{{32}}):([0-9]{{1,15}})")
"""The id of the event that a turn was recorded: its session and its seq."""


def owner_in(event: Event, ids: OpaqueIds) -> str | None:
    """Return the id of what an event is about; none where it wakes a session and names no turn.

    Raises:
        MessageError: Nothing of its kind is ever embedded.
    """
    match event:
        case RecordChanged():
            return event.data.record
        case TurnRecorded():
            seq = event.data.seq
            return None if seq is None else ids.turn(event.data.session, seq)
        case SessionClosed():
            return None
        case _:
            raise MessageError(FailureClass.UNDECODABLE, "unexpected_type")


def subject_of(message: IncomingMessage) -> str | None:
    """Return what names its owner, undecoded: of a turn the event's id, of a record its key."""
    named = message.header(EVENT_ID_HEADER)
    if named is not None and _NAMED.fullmatch(named):
        return named
    try:
        return None if message.key is None else message.key.decode()
    except UnicodeDecodeError:
        return None


def owner_named(message: IncomingMessage, ids: OpaqueIds) -> str | None:
    """Return the id of the owner that a message names, undecoded; none where it names none."""
    subject = subject_of(message)
    named = None if subject is None else _NAMED.fullmatch(subject)
    return subject if named is None else ids.turn(named[1], int(named[2]))


def subject_of_owner(owner: Owner) -> str:
    """Return the subject of the messages that name an owner."""
    if isinstance(owner, Record):
        return owner.record_id
    return event_id(_RECORDED, owner.session, owner.seq)


def wake_up(owner: Owner, now: datetime) -> tuple[Topic, Event]:
    """Return the news that wakes whoever embeds an owner, and its topic."""
    if isinstance(owner, Record):
        return RECORD_CHANGED, changed_event(owner, now)
    return TURN_RECORDED, TurnRecorded(
        id=subject_of_owner(owner),
        subject=owner.session,
        time=now,
        data=TurnRecordedData(session=owner.session, seq=owner.seq),
    )
