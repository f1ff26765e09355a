"""Conversations with a model record themselves in an Afterturn memory server.

client = afterturn.recorded(OpenAI())
with afterturn.conversation(session_id="monday", user_id="ana"):
    client.chat.completions.create(...)
"""

from afterturn.buffering import Bound
from afterturn.default import recorded
from afterturn.preparing import Redact
from afterturn.recorder import Counts, Recorder
from afterturn.scopes import Conversation, conversation, recording
from afterturn.wires.routes import Route

__all__ = [
    "Bound",
    "Conversation",
    "Counts",
    "Recorder",
    "Redact",
    "Route",
    "conversation",
    "recorded",
    "recording",
]
