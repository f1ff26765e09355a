"""Work of operators that takes long: what is to be done, how far it is, who runs it.

A kind of job is a class here, with its runner in the table of `consumers/operating.py`.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from schemas.base import Frozen
from schemas.extraction import Outcome
from schemas.failure import LetterQuery
from schemas.identity import Name


class JobState(StrEnum):
    """How a job stands."""

    OPEN = "open"
    """To be run, or being run."""
    PAUSED = "paused"
    """An operator or a limit of its own stopped it; it goes on when it is resumed."""
    CANCELLED = "cancelled"
    DONE = "done"


class Messages(Frozen):
    """Which messages of a topic; nothing given but the topic is all that it has had."""

    topic: str
    partition: int | None = None
    first_offset: int | None = None
    end_offset: int | None = None
    """The first one beyond."""
    since: datetime | None = None
    """Appended then or later."""
    until: datetime | None = None
    """Appended before then."""


class Lost(Frozen):
    """What a topic does not have any more of what was asked for, and what is taken instead."""

    partition: int
    offsets: int | None
    """How many; none where times were asked for."""
    until: datetime | None
    """Snapshots that were cut before then are taken from MongoDB; none: all there are."""


class Selection(Frozen):
    """Which snapshots: what is given must be so; nothing given is everything."""

    project_id: Name | None = None
    user_id: Name | None = None
    session_id: Name | None = None
    since: datetime | None = None
    """Cut then or later."""
    until: datetime | None = None
    """Cut before then."""
    version: str | None = None
    """What counts of them was extracted by this version."""
    outcomes: tuple[Outcome, ...] = ()
    """What counts of them came to one of these; none: to whatever."""
    letters: LetterQuery | None = None
    """Letters that match are about them when it is started."""
    messages: Messages | None = None
    """These messages are about them."""

    @property
    def is_listed(self) -> bool:
        """Whether they are found once, when it is started, and then kept as a list."""
        return self.letters is not None or self.messages is not None


class Replay(Frozen):
    """How a replay is done."""

    selection: Selection
    is_forced: bool = False
    """Also where the version that extracts now is the one that did."""
    token_budget: int | None = None
    """So many tokens of turns at most; then it pauses."""
    stops_at_letter: bool = False
    """Pause as soon as one of its runs makes a letter."""


class Change(Frozen):
    """What is to be otherwise when a part is tried again; by default nothing."""

    max_tokens: int | None = None
    """The limit of the answer."""
    leave_out: tuple[int, ...] = ()
    """Turns that the model is not to be shown, by their seq."""
    split: bool = False
    """Ask for its two halves instead."""

    @property
    def is_none(self) -> bool:
        """Whether all is to be as it was."""
        return self == Change()


class Redrive(Frozen):
    """Which letters are sent back, and how carefully."""

    letter_ids: tuple[str, ...] = ()
    """These, in this order; none: those that match."""
    letters: LetterQuery = LetterQuery()
    change: Change = Change()
    """For each of them."""
    per_second: float = 10.0
    canary: int = 1
    """So many first, and no more before all of these have ended; any that dies again stops it."""
    stop_above: float = 0.2
    """The share of those that ended which may have died again."""


class Reembed(Frozen):
    """To which vectors it goes over."""

    model: str
    """As its embedder names it: only who has that one can run it."""
    project_id: Name | None = None
    """Only build those of this project, and switch nothing."""


class Preview(Frozen):
    """What is tried on a sample, of which nothing counts."""

    selection: Selection
    sample: int
    """So many snapshots at most."""
    seed: int
    """The same seed draws the same sample of the same snapshots."""


class Previewed(Frozen):
    """What extracting a snapshot again would change, in ids of records: no word of anybody."""

    snapshot_id: str
    failure: str | None = None
    """Why there is nothing to compare: a stable code."""
    added: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    changed_content: tuple[str, ...] = ()
    changed_evidence: tuple[str, ...] = ()
    """They say the same, and rest on other words."""
    kept: int = 0
    turn_tokens: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


class JobLease(Frozen):
    """Who runs a job, and until when it is his."""

    owner: str
    until_ms: int
    """Server time."""


class Job(Frozen):
    """What jobs of all kinds have."""

    job_id: str
    by: str
    """Who asked for it."""
    created_at: datetime
    state: JobState = JobState.OPEN
    reason: str | None = None
    """Why it is paused."""
    lease: JobLease | None = None
    ended_at: datetime | None = None
    rev: int = 0


class ReplayJob(Job):
    """A replay, and how far it is."""

    kind: Literal["replay"] = "replay"
    replay: Replay
    cursor: str | None = None
    """The last snapshot that was looked at."""
    begun: int = 0
    """Runs that were begun."""
    skipped: int = 0
    """Snapshots that need none: the same version, or nothing to extract."""
    tokens: int = 0
    """Of the turns of the runs that were begun."""
    lost: tuple[Lost, ...] = ()
    """What its topic does not have any more."""


class Sending(Frozen):
    """A letter that is being sent back: written before it is."""

    letter_id: str
    deaths: int
    """How often it had died by then."""


class RedriveJob(Job):
    """Letters that are sent back, and how far that is."""

    kind: Literal["redrive"] = "redrive"
    redrive: Redrive
    of: int
    """How many there were when it was started."""
    passed: int = 0
    """Letters it is done with."""
    cursor: tuple[datetime, str] | None = None
    """Of the last of these, when it died first, and its id."""
    sending: Sending | None = None
    sent: int = 0
    refused: int = 0
    """They were not dead any more, or can't be tried like this."""
    refusals: tuple[str, ...] = ()
    """Why, each once."""
    is_past_canaries: bool = False


class ReembedJob(Job):
    """Going over to another model's vectors, and how far that is."""

    kind: Literal["reembed"] = "reembed"
    reembed: Reembed
    before: str | None
    """Whose vectors were searched when it was started."""
    records: int = 0
    """Looked at; each once a pass."""
    embedded: int = 0
    refused: int = 0
    """Texts that the model won't take."""
    deleted: int = 0
    """Vectors of other models that are gone."""


class PreviewJob(Job):
    """A preview, and what it found so far; nothing else of it is stored."""

    kind: Literal["preview"] = "preview"
    preview: Preview
    snapshot_ids: tuple[str, ...]
    """The sample."""
    snapshots: int
    """Of the whole selection."""
    tokens: int
    """Of the turns of the whole selection."""
    lost: tuple[Lost, ...] = ()
    previewed: tuple[Previewed, ...] = ()


AnyJob = Annotated[ReplayJob | PreviewJob | RedriveJob | ReembedJob, Field(discriminator="kind")]
"""A job of any kind."""
