"""Whose conversation it is, and whether it is recorded: said around calls, or bound to a client."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """Names of a conversation; what is blank counts as not given."""

    session_id: str | None = None
    """The conversation."""
    user_id: str | None = None
    """Whose memory it makes."""
    agent_id: str | None = None
    """The agent, where several share a user."""

    @property
    def is_named(self) -> bool:
        """Whether it says enough to record by."""
        return bool(self.session_id and self.user_id)

    def over(self, other: "Conversation") -> "Conversation":
        """Return this conversation, and the other's names where this one has none."""
        return Conversation(
            session_id=_given(self.session_id) or _given(other.session_id),
            user_id=_given(self.user_id) or _given(other.user_id),
            agent_id=_given(self.agent_id) or _given(other.agent_id),
        )


_NOBODY: Final = Conversation()
_ambient: ContextVar[Conversation] = ContextVar("afterturn_conversation", default=_NOBODY)
_wished: ContextVar[bool | None] = ContextVar("afterturn_recording", default=None)


def ambient() -> Conversation:
    """Return whose conversation the code around says it is."""
    return _ambient.get()


def wished() -> bool | None:
    """Return whether the code around says that calls are recorded; None where it says nothing."""
    return _wished.get()


@contextmanager
def conversation(
    *, session_id: str | None = None, user_id: str | None = None, agent_id: str | None = None
) -> Generator[Conversation]:
    """Say whose conversation the calls inside belong to; what is left out stays as it was.

    Concurrency: it holds for this thread or task and the tasks it starts, for nobody else. A
    thread pool starts with an empty context: enter it there.
    """
    inner = Conversation(session_id=session_id, user_id=user_id, agent_id=agent_id)
    token = _ambient.set(inner.over(_ambient.get()))
    try:
        yield _ambient.get()
    finally:
        _ambient.reset(token)


@contextmanager
def recording(is_on: bool) -> Generator[None]:
    """Record the calls inside, or leave them alone, whatever their client does by default."""
    token = _wished.set(is_on)
    try:
        yield
    finally:
        _wished.reset(token)


def _given(value: str | None) -> str | None:
    return value if value is not None and value.strip() else None
