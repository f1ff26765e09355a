"""What the steps need from the outside: clocks, stores, the model, the broker.

All stores: datetimes are aware UTC cut to milliseconds; `*_ms` is the database server's time in
epoch milliseconds; reads that decide are from the primary; each method is one atomic command
unless it says otherwise, and may raise `pymongo.errors.PyMongoError`.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, Protocol

from schemas.access import ServiceAccount
from schemas.assertion import Assertion
from schemas.breaker import Breaker
from schemas.extraction import (
    Difference,
    Extraction,
    NextMessage,
    Outcome,
    Part,
    Reply,
    SetAside,
)
from schemas.failure import Attempt, FailureClass, Letter, LetterState
from schemas.guard import Guard
from schemas.identity import DEFAULT_PROJECT, ReadScope, Scope, SessionIdentity
from schemas.job import Job, Selection
from schemas.memory import Kind, RecordKind
from schemas.message import IncomingMessage, OutgoingMessage
from schemas.operator_action import OperatorAction
from schemas.project import NO_INSTRUCTIONS, Instructions, Revision
from schemas.record import Record
from schemas.snapshot import Snapshot
from schemas.tombstone import Bar
from schemas.topics import Stage
from schemas.turn import Turn


class Clock(Protocol):
    """This process's idea of time; never used for leases or due times."""

    def now(self) -> datetime:
        """Return the aware UTC time, cut to milliseconds."""
        ...


class ServerTime(Protocol):
    """The database server's time, the one clock that all processes share."""

    async def now_ms(self) -> int:
        """Return it in epoch milliseconds; an offset measured at most half a minute ago."""
        ...


class Publisher(Protocol):
    """The one way to Kafka."""

    async def publish(self, message: OutgoingMessage) -> None:
        """Return once every in-sync replica has it.

        Raises:
            BrokerUnavailableError: It was not acknowledged in time; it may be there all the same.
            MessageTooLargeError: It is larger than the topic takes.
        """
        ...


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

    async def insert(self, turn: Turn, *, idempotency: IdempotencyKey | None) -> None:
        """Store it as open.

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


class Snapshots(Protocol):
    """The snapshots, and which of them are unsettled."""

    async def insert(self, snapshot: Snapshot, *, wake_at_ms: int) -> None:
        """Store it as unsettled.

        Raises:
            pymongo.errors.DuplicateKeyError: Another cutter made one that starts at the same turn.
        """
        ...

    async def last(self, session: str) -> Snapshot | None:
        """Return the one that ends a session's tiling so far."""
        ...

    async def covering(self, session: str, seq: int) -> list[Snapshot]:
        """Return those that end at `seq` or later, in the order of the session."""
        ...

    async def get(self, snapshot_id: str) -> Snapshot | None:
        """Return one."""
        ...

    async def settle(self, snapshot_id: str, *, run: int, summary: str | None) -> None:
        """Mark it settled and keep its summary, if `run` is its active one. Idempotent."""
        ...

    async def unsettled_due(self, now_ms: int, limit: int) -> list[Snapshot]:
        """Return unsettled ones whose `wake_at` is at or before now, oldest first."""
        ...

    async def activate(self, snapshot_id: str, *, run: int, replacing: int) -> bool:
        """Let another run count, where the one to be replaced does; return whether it counts now.

        Idempotent. Settled or not, it stays.
        """
        ...

    async def selected(
        self, selection: Selection, *, after: str | None, limit: int
    ) -> list[Snapshot]:
        """Return settled snapshots of a selection by their ids, from beyond one on."""
        ...

    async def reopen(self, snapshot_id: str, *, run: int, wake_at_ms: int) -> None:
        """Mark a settled one unsettled, if `run` is its active one. Idempotent."""
        ...

    async def wake_later(self, snapshot_id: str, wake_at_ms: int) -> None:
        """Look at an unsettled one again at `wake_at_ms`."""
        ...


class Extractions(Protocol):
    """The ledger of extraction: who works on what, what was answered, what became of it.

    Every change is conditional on what it was decided from, so that of two workers one at most
    gets through; false or none says that this one did not.
    """

    async def ensure(self, new: Extraction) -> Extraction:
        """Return the extraction of this id, made as given where there is none."""
        ...

    async def get(self, extraction_id: str) -> Extraction | None:
        """Return one."""
        ...

    async def claim(
        self, extraction: Extraction, *, owner: str, message: str, now_ms: int, lease: timedelta
    ) -> Extraction | None:
        """Take it, if it is as it was read and nobody else holds it: the fence rises by one.

        The lease begins now, in server time. A lease of somebody else that had run out without a
        recorded end counts as a crash. A claim of this owner on this very message is taken over.
        """
        ...

    async def store_reply(
        self,
        extraction: Extraction,
        part: int,
        reply: Reply,
        *,
        version: str,
        revision: int = 0,
        kinds: Sequence[Kind] = tuple(Kind),
    ) -> Extraction:
        """Keep an answer where that part has none, whoever's fence, and what it was asked for.

        The version, and the revision of its project's settings, are fixed with the first.

        Returns the extraction as it stands afterwards, with this reply or the one before it.
        """
        ...

    async def enlarge(self, extraction: Extraction, part: int, max_tokens: int) -> bool:
        """Give a waiting part another limit for its answer."""
        ...

    async def split(self, extraction: Extraction, part: int, halves: tuple[Part, Part]) -> bool:
        """Replace a waiting part by two, appended."""
        ...

    async def bury(
        self, extraction: Extraction, letters: Mapping[int, Letter], attempt: Attempt
    ) -> bool:
        """Mark parts dead, keep a letter of each as unsent and the attempt that was their last."""
        ...

    async def schedule(
        self,
        extraction: Extraction,
        following: NextMessage,
        *,
        attempt: Attempt | None,
        ends_claim: bool,
        waits_free: bool = False,
    ) -> bool:
        """Replace the live message by another, as unsent; keep the failed attempt if there was one.

        What it waits is part of its age, unless it `waits_free`.

        A deferral, which leaves the claim to its holder, is conditional on the ticket too: what was
        scheduled by somebody else is never overwritten by it.
        """
        ...

    async def settle(
        self,
        extraction: Extraction,
        outcome: Outcome,
        *,
        set_aside: Mapping[int, Sequence[SetAside]],
        settled_at: datetime,
    ) -> bool:
        """Fix the outcome, and by part what was set aside; end the claim."""
        ...

    async def blank(
        self, extraction_id: str, items: Mapping[int, Sequence[SetAside]]
    ) -> Extraction | None:
        """Take items, and the summaries beside them, out of the stored answers of parts.

        Idempotent. Returns the extraction as it stands then.
        """
        ...

    async def release(self, extraction: Extraction) -> None:
        """Give a claim back as if it had not been taken: no crash, no attempt."""
        ...

    async def hold(self, extraction_id: str, *, since_ms: int) -> None:
        """Let its age stand still from a moment on, until the next claim. Idempotent."""
        ...

    async def mark_sent(self, extraction_id: str, ticket: str) -> None:
        """The message of this ticket is acknowledged. Idempotent."""
        ...

    async def redrive(
        self,
        extraction: Extraction,
        part: int,
        replacement: Sequence[Part],
        following: NextMessage,
    ) -> bool:
        """Open it again: a dead part is replaced, the others of the replacement are appended.

        Whoever works on the others loses his claim; ladders and age begin anew.
        """
        ...

    async def runs_of(self, snapshot_id: str) -> list[Extraction]:
        """Return all runs over a snapshot, the live one first."""
        ...

    async def compare(self, extraction_id: str, difference: Difference) -> None:
        """Keep what it makes otherwise, where that is not known yet. Idempotent."""
        ...

    async def take_over(self, extraction_id: str) -> None:
        """It counts now. Idempotent."""
        ...

    async def drop_answers(self, extraction_id: str) -> None:
        """Keep of its answers what they cost, and no words. Idempotent."""
        ...

    async def of_job(self, job_id: str, *, is_open: bool | None = None) -> list[Extraction]:
        """Return the runs that a replay began, without their answers.

        Args:
            job_id: The replay.
            is_open: Only those without an outcome, or only those with one; none: all.
        """
        ...

    async def drop_letters(self, extraction_id: str, letter_ids: Sequence[str]) -> None:
        """These letters are safe in their own collection. Idempotent."""
        ...

    async def unsent(self, before_ms: int, limit: int) -> list[Extraction]:
        """Return extractions with a message or letter unsent since before then, oldest first."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterQuery:
    """Which letters: what is given must be so, what is none may be anything."""

    letter_id: str | None = None
    state: LetterState | None = None
    stage: Stage | None = None
    failure_class: FailureClass | None = None
    reason: str | None = None
    fingerprint: str | None = None
    disposition: Literal["content", "exhausted"] | None = None
    project_id: str | None = None
    session: str | None = None
    """The opaque key of one."""
    model: str | None = None
    topic: str | None = None
    """Where the message lay that failed."""
    since: datetime | None = None
    """It died first then or later."""
    until: datetime | None = None
    """It died first before then."""
    deaths: int | None = None
    """It died at least so often."""


class Letters(Protocol):
    """The dead letters."""

    async def put(self, letter: Letter) -> None:
        """Store a death that is not stored yet, as not on its topic. Idempotent by id and death."""
        ...

    async def get(self, letter_id: str) -> Letter | None:
        """Return one."""
        ...

    async def matching(self, wanted: LetterQuery, limit: int | None = None) -> list[Letter]:
        """Return those that match without key, value and headers, the one that died first last."""
        ...

    async def change(
        self,
        letter_id: str,
        *,
        deaths: int,
        states: Collection[LetterState],
        to: LetterState,
        discarded_for: str | None = None,
    ) -> bool:
        """Change a state, where it died so often and is in one of these; false where it is not."""
        ...

    async def mark_sent(self, letter_id: str) -> None:
        """It is on the dead topic. Idempotent."""
        ...

    async def unsent(self, before_ms: int, limit: int) -> list[Letter]:
        """Return those that are not, though stored before then (server time)."""
        ...

    async def count(self) -> int:
        """Return how many there are."""
        ...


class Deliveries(Protocol):
    """How often what a message is about was begun, in a row, without an end.

    A process that counts a start and dies leaves the count; one that ends takes it away. So what
    is here is under way, or its process died, or it is set aside for good. A partition that is in
    somebody's hands is such a start, too.
    """

    async def unended(self, stage: Stage) -> set[str]:
        """Return what was begun at a stage and has no end."""
        ...

    async def starts(self, stage: Stage, subject: str) -> int:
        """Return how many starts in a row have no end; 0 for what ended or was never begun."""
        ...

    async def put(self, stage: Stage, subject: str, starts: int) -> None:
        """Say so. Idempotent: a start is counted once, however often this is sent."""
        ...

    async def remove(self, stage: Stage, subject: str) -> None:
        """It ended; or an operator lets what was set aside be tried again. Idempotent."""
        ...


class Assertions(Protocol):
    """The assertions."""

    async def write(self, assertions: Sequence[Assertion]) -> None:
        """Store those that are new; not atomic over several. Idempotent by their ids."""
        ...

    async def of_slot(self, slot: str) -> list[Assertion]:
        """Return all assertions of a slot, from the primary."""
        ...

    async def of_extraction(self, extraction_id: str) -> list[Assertion]:
        """Return all assertions of a run."""
        ...

    async def remove(self, assertion_ids: Sequence[str]) -> None:
        """Remove them. Idempotent."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotKey:
    """A slot in plain words, needed to make its record where there is none."""

    slot: str
    scope: Scope
    kind: RecordKind
    key: str
    subject: str


class Records(Protocol):
    """The records, and which of them are dirty or unannounced."""

    async def mark_dirty(self, slots: Sequence[SlotKey]) -> None:
        """Raise each `rev` and mark it to be folded; makes shells where there is none.

        Because the mark raises `rev`, a fold that read before it can't store after it. Each slot
        at most once; not atomic over several.
        """
        ...

    async def get(self, slot: str) -> Record | None:
        """Return one, from the primary."""
        ...

    async def store(self, record: Record, *, read_rev: int, changed: bool, ends_mark: bool) -> bool:
        """Store a fold where `rev` is still `read_rev`, and raise it; false if somebody was faster.

        Args:
            record: Its key, subject and runs are stored; what else it has belongs to its slot.
            read_rev: What `rev` was before the assertions were read.
            changed: Whether it is to be announced and embedded anew.
            ends_mark: Whether the caller marked the slot and has done what it marked it for. The
                slot is clean with the last mark ended. Marks so old that their writers must be
                dead are ended by any fold.
        """
        ...

    async def bar(self, record_id: str, bar: Bar, *, read_rev: int) -> bool:
        """Store what its slot may not hold any more where `rev` is still `read_rev`; mark it.

        As a mark does, it raises `rev`: a fold that read before it can't store after it.
        """
        ...

    async def bars(self, slots: Sequence[str]) -> dict[str, Bar]:
        """Return what slots may not hold, of those of which anything was forgotten."""
        ...

    async def dirty(self, limit: int) -> list[str]:
        """Return marked slots, the oldest marks first."""
        ...

    async def unannounced(self, limit: int) -> list[Record]:
        """Return changed records whose event is not acknowledged yet, the oldest first."""
        ...

    async def mark_announced(self, record_id: str, rev: int) -> None:
        """The event of this revision is acknowledged; a later change stays unannounced."""
        ...

    def of_scope(
        self, scope: ReadScope, *, kinds: Sequence[RecordKind] = ()
    ) -> AsyncIterator[Record]:
        """Yield the records of a scope, shells too, of all kinds where none is named.

        Each field of the scope that is given is an equality in the query. Agent and session are
        those of any run.
        """
        ...

    async def of_memory(self, memory_id: str, scope: ReadScope) -> list[Record]:
        """Return the records of a scope that have a memory's runs; from the primary.

        They are several where the memory was given another reach.
        """
        ...


class Projects(Protocol):
    """The settings of projects."""

    async def applied(self, project_id: str) -> Revision:
        """Return the settings that count now, as they were at most a second ago.

        Raises:
            SettingsUnreadableError: They are not as we stored them.
        """
        ...

    async def revision(self, project_id: str, number: int) -> Revision | None:
        """Return the settings that were stored as a revision.

        Raises:
            SettingsUnreadableError: They are not as we stored them.
        """
        ...


class Breakers(Protocol):
    """The shared state of each target."""

    async def get(self, name: str) -> Breaker:
        """Return a state; a fresh one where none is stored."""
        ...

    async def swap(self, before: Breaker, after: Breaker) -> bool:
        """Store a state where the one it was made from still stands; return whether it did."""
        ...


class Guards(Protocol):
    """The shared state of each mass guard."""

    async def get(self, name: str) -> Guard:
        """Return a state; a fresh one where none is stored."""
        ...

    async def swap(self, before: Guard, after: Guard) -> bool:
        """Store a state where the one it was made from still stands; return whether it did."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One part to be extracted: a pure function of snapshot, tail and extractor version."""

    turns: tuple[Turn, ...]
    context: tuple[Turn, ...]
    """A bounded tail of the turns before; not to be extracted from."""
    kinds: tuple[Kind, ...]
    max_tokens: int | None
    """None for the configured limit."""
    instructions: Instructions = NO_INSTRUCTIONS
    """The project's own."""


class Model(Protocol):
    """A model behind instructor, with the prompt that all projects share."""

    @property
    def name(self) -> str:
        """The vendor's name of the model, as configured."""
        ...

    @property
    def version(self) -> str:
        """The extractor version where a project adds nothing.

        A hash of prompt, schema, model and parameters.
        """
        ...

    @property
    def max_tokens(self) -> int:
        """The configured limit of an answer."""
        ...

    async def answer(self, request: ModelRequest) -> Reply:
        """Return a checked answer with secrets taken out. Re-asks are inside; nothing else is.

        Raises:
            AnswerError: The answer is truncated, refused, filtered or stayed invalid.
            Exception: What the vendor's client raised; `pipeline.failures` classifies it.
        """
        ...


class Step(Protocol):
    """What a consumer does with a message."""

    async def __call__(self, message: IncomingMessage) -> None:
        """Return once a durable record says what became of the message.

        Idempotent: a message may come again at any time. An exception means that its fate could
        not be written; the message is then held in place and tried again.
        """
        ...


class Accounts(Protocol):
    """The service accounts."""

    async def by_id(self, account_id: str) -> ServiceAccount | None:
        """Return the account of a client id."""
        ...

    async def by_name(self, name: str) -> ServiceAccount | None:
        """Return the account that operators call so."""
        ...

    async def add(self, account: ServiceAccount) -> bool:
        """Store a new one; return whether its name was free."""
        ...

    async def swap(self, before: ServiceAccount, after: ServiceAccount) -> bool:
        """Store an account where the one it was made from still stands; return whether it did."""
        ...


class OperatorActions(Protocol):
    """The audit trail."""

    async def write(self, action: OperatorAction) -> None:
        """Store an act, before it is done."""
        ...


class Usage(Protocol):
    """What each project stored in a day, counted from 1970-01-01."""

    async def of(self, project_id: str, day: int) -> int:
        """Return what all processes have added for a day."""
        ...

    async def add(self, project_id: str, day: int, used: int) -> None:
        """Add to a day. Several commands."""
        ...


class Jobs(Protocol):
    """Work of operators that takes long: each run by one process at a time."""

    async def insert(self, job: Job) -> None:
        """Store a new one."""
        ...

    async def get(self, job_id: str) -> Job | None:
        """Return one."""
        ...

    async def all(self) -> list[Job]:
        """Return all, the newest first."""
        ...

    async def swap(self, before: Job, after: Job) -> bool:
        """Store it where it is as it was read; false where it has changed."""
        ...
