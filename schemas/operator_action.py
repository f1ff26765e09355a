"""The audit trail: who did what to which, written before it is done."""

from datetime import datetime
from enum import StrEnum

from schemas.base import Frozen


class Act(StrEnum):
    """What is done."""

    LOGIN = "login"
    LOGIN_REFUSED = "login.refused"
    """With no secret, or a wrong one. What was sent is not kept."""
    ACCOUNT_CREATE = "account.create"
    ACCOUNT_ROTATE = "account.rotate"
    ACCOUNT_RETIRE = "account.retire"
    ACCOUNT_REVOKE = "account.revoke"
    PROJECT_CONFIGURE = "project.configure"
    PROJECT_APPLY = "project.apply"
    REPLAY_START = "replay.start"
    REPLAY_PAUSE = "replay.pause"
    REPLAY_RESUME = "replay.resume"
    REPLAY_CANCEL = "replay.cancel"
    PREVIEW_START = "preview.start"
    PREVIEW_PAUSE = "preview.pause"
    PREVIEW_RESUME = "preview.resume"
    PREVIEW_CANCEL = "preview.cancel"
    REDRIVE_START = "redrive.start"
    REDRIVE_PAUSE = "redrive.pause"
    REDRIVE_RESUME = "redrive.resume"
    REDRIVE_CANCEL = "redrive.cancel"
    REEMBED_START = "reembed.start"
    REEMBED_PAUSE = "reembed.pause"
    REEMBED_RESUME = "reembed.resume"
    REEMBED_CANCEL = "reembed.cancel"
    LETTER_REDRIVE = "letter.redrive"
    LETTER_DISCARD = "letter.discard"
    LETTER_RESTORE = "letter.restore"
    BREAKER_RESUME = "breaker.resume"
    GUARD_RESUME = "guard.resume"


class OperatorAction(Frozen):
    """One act. That it is here means that it was about to be done, not that it was."""

    action_id: str
    at: datetime
    """The database server's time."""
    by: str
    """A service account's id, or who called a command."""
    act: Act
    target: str
    """The id of what it is done to; `unknown` where nobody has the id that was sent."""
    project_id: str | None = None
