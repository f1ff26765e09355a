"""What the steps need of the store of turns and their sessions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from schemas.identity import DEFAULT_PROJECT, SessionIdentity
from schemas.turn import Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """What turns can't say of a session."""

    identity: SessionIdentity
    """As it was when the session was new."""
    session: str
    incarnation: int
    gaps: Mapping[int, int]
    """Seqs that were found missing, and the server time of the first look, in ms."""
    is_new: bool = False
    """This very call has made it, so it has no turns yet."""


class Sessions(Protocol):
    """Sessions by identity and by opaque key."""

    async def open(self, identity: SessionIdentity) -> SessionState:
        """Return the session, made where it is new. Idempotent; several commands."""
        ...

    async def by_key(self, session: str) -> SessionState | None:
        """Return the session of an opaque key, if it is the present incarnation."""
        ...

    async def note_gap(self, session: str, seqs: Sequence[int], now_ms: int) -> None:
        """Remember since when turns are missing; the first note of each stands. Idempotent."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestTurn:
    """What the turn after it needs of the newest one of a session."""

    seq: int
    effective_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTurn:
    """What cutting needs of an open turn; its words stay where they are."""

    seq: int
    tokens: int
    recorded_at: datetime
    closes: bool = False
    """The session was closed when this was its newest turn."""
    project_id: str = DEFAULT_PROJECT


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSession:
    """The open turns of one session, in numbers."""

    session: str
    turns: int
    tokens: int
    oldest_seq: int
    newest_seq: int
    oldest_recorded_at: datetime
    newest_recorded_at: datetime
    is_closed: bool
    """One of them closes the session."""
    project_id: str = DEFAULT_PROJECT


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyKey:
    """The caller's name for one turn of a session, and a keyed hash of what that turn said."""

    key: str
    body: str


class Turns(Protocol):
    """The turns, and which of them are open."""

    async def insert(
        self, turn: Turn, *, idempotency: IdempotencyKey | None, to_embed: bool = False
    ) -> None:
        """Store it as open, and as pending for its embedding if it is to be embedded.

        Raises:
            pymongo.errors.DuplicateKeyError: `keyPattern` names the idempotency key, or else the
                place is taken.
        """
        ...

    async def newest(self, session: str) -> NewestTurn | None:
        """Return where the newest turn stands, by majority read; none where there is none."""
        ...

    async def by_idempotency_key(self, session: str, key: str) -> tuple[Turn, str] | None:
        """Return the turn recorded under a key, by majority read, and the hash of its body."""
        ...

    async def read(self, session: str, first_seq: int, last_seq: int) -> list[Turn]:
        """Return the turns of a range, by seq; missing ones are missing."""
        ...

    async def open_turns(self, session: str) -> list[OpenTurn]:
        """Return the open turns of a session, by seq."""
        ...

    async def mark_closing(self, session: str, seq: int) -> None:
        """Mark a turn as the last of what was said: if it is open, all that is open is due.

        Idempotent. A later turn needs no mark taken away: once this one is cut, it is cut.
        """
        ...

    async def clear_open(self, session: str, first_seq: int, last_seq: int) -> int:
        """Clear the mark of a range; return how many had it. Idempotent."""
        ...

    async def open_sessions(self) -> list[OpenSession]:
        """Return every session that has open turns."""
        ...
