"""The laws I1 to I3, I8 and I9, checked on a live system.

What is in motion may look broken for a moment, so a finding counts as a violation only if it is
still there, word for word, each time it is looked at again.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from pipeline.embedding.ledger import texts_of
from pipeline.embedding.ports import Embedded
from pipeline.extracting.judging import judge_answers
from pipeline.folding.asserting import said_in
from pipeline.folding.folder import fold
from pipeline.folding.slots import slot_of
from pipeline.forgetting.barring import is_barred, standing
from pipeline.ids import OpaqueIds
from schemas.assertion import Assertion
from schemas.embedding import EmbeddingState
from schemas.extraction import Extraction, Outcome
from schemas.record import Record
from schemas.snapshot import Snapshot
from schemas.tombstone import Bar
from schemas.turn import Turn

PENDING: Final = "pending"
LOOKS: Final = 5
"""How often a finding is looked at again before it is a violation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A law that is broken, where, and how; opaque ids only."""

    law: str
    where: str
    finding: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnMark:
    """A turn's place and whether it is open."""

    seq: int
    is_open: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSnapshot:
    """A snapshot and whether the waker will find it if its message is lost."""

    snapshot: Snapshot
    is_listed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionView:
    """Everything of one session that I1 and I2 speak of, as it was read."""

    session: str
    turns: Sequence[TurnMark]
    snapshots: Sequence[ListedSnapshot]
    """By first seq."""
    extractions: dict[str, Extraction]
    """The active run of each snapshot that has one, by snapshot id."""
    gaps: frozenset[int]
    """Seqs that are known to be missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingView:
    """The embedding of a record or a turn and its vectors, as they were read."""

    found: Embedded | None
    """None where it is gone."""
    vectors: dict[str, frozenset[str]]
    """By model, the content hashes of those that are stored."""
    is_wanted: bool = True
    """Not of a turn whose project wants none embedded any more."""


class AuditReads(Protocol):
    """What an audit reads; nothing is locked and nothing is written."""

    def sessions(self) -> AsyncIterator[str]:
        """Yield the key of every session that has turns."""
        ...

    async def session(self, session: str) -> SessionView:
        """Return a session as it stands."""
        ...

    async def turns(self, session: str, first_seq: int, last_seq: int) -> list[Turn]:
        """Return the turns of a range."""
        ...

    async def assertions_of(self, extraction_id: str) -> list[Assertion]:
        """Return the assertions of a run."""
        ...

    def slots(self) -> AsyncIterator[str]:
        """Yield every slot that has a record or an assertion."""
        ...

    async def slot(self, slot: str) -> tuple[Record | None, list[Assertion]]:
        """Return its record and its assertions."""
        ...

    async def bars(self, slots: Sequence[str]) -> dict[str, Bar]:
        """Return what slots may not hold, of those of which anything was forgotten."""
        ...

    async def embedding(self, owner_id: str) -> EmbeddingView:
        """Return how a record or turn is embedded; the vectors are read before it."""
        ...

    def embedded_turns(self) -> AsyncIterator[str]:
        """Yield the id of every turn that has vectors, or of which it is known how far it is."""
        ...

    async def is_forgetting(self, slot: str) -> bool:
        """Return whether something of a slot is being forgotten and may not be removed yet."""
        ...


@dataclass(slots=True, kw_only=True)
class AuditReport:
    """What an audit found."""

    turns: int = 0
    in_snapshots: int = 0
    open: int = 0
    outcomes: Counter[str] = field(default_factory=Counter[str])
    """Snapshots by outcome; `pending` while there is none."""
    records: int = 0
    embedded_turns: int = 0
    """Turns that have vectors or are to have them."""
    violations: list[Violation] = field(default_factory=list[Violation])


class Audit:
    """Checks every session and every slot."""

    def __init__(self, reads: AuditReads, ids: OpaqueIds, *, pause_seconds: float = 1.0) -> None:
        self._reads = reads
        self._ids = ids
        self._pause_seconds = pause_seconds

    async def run(self, progress: Callable[[int, int], None]) -> AuditReport:
        """Return the report; `progress` is told how many sessions and slots are done."""
        report = AuditReport()
        sessions = slots = 0
        async for session in self._reads.sessions():
            await self._session(session, report)
            sessions += 1
            progress(sessions, slots)
        async for slot in self._reads.slots():
            report.violations.extend(await self._lasting(self._slot_findings, slot))
            report.records += 1
            slots += 1
            progress(sessions, slots)
        async for turn_id in self._reads.embedded_turns():
            report.violations.extend(await self._lasting(self._embedding_findings, turn_id))
            report.embedded_turns += 1
        return report

    async def _session(self, session: str, report: AuditReport) -> None:
        view = await self._reads.session(session)
        cut = cut_of(view)
        report.turns += len(view.turns)
        report.in_snapshots += sum(turn.seq <= cut for turn in view.turns)
        report.open += sum(turn.seq > cut for turn in view.turns)
        for listed in view.snapshots:
            extraction = view.extractions.get(listed.snapshot.snapshot_id)
            outcome: Outcome | None = extraction.outcome if extraction else None
            report.outcomes[outcome or PENDING] += 1
        report.violations.extend(await self._lasting(self._session_findings, session))

    async def _lasting(
        self, findings_of: Callable[[str], Awaitable[set[Violation]]], where: str
    ) -> list[Violation]:
        found = await findings_of(where)
        for _ in range(LOOKS):
            if not found:
                break
            await asyncio.sleep(self._pause_seconds)
            found &= await findings_of(where)
        return sorted(found, key=lambda violation: (violation.law, violation.finding))

    async def _session_findings(self, session: str) -> set[Violation]:
        view = await self._reads.session(session)
        found = {
            Violation(law=law, where=session, finding=finding)
            for law, finding in session_findings(view)
        }
        for listed in view.snapshots:
            extraction = view.extractions.get(listed.snapshot.snapshot_id)
            if extraction is not None and extraction.outcome is not None:
                found |= await self._extraction_findings(listed.snapshot, extraction)
        return found

    async def _extraction_findings(
        self, snapshot: Snapshot, extraction: Extraction
    ) -> set[Violation]:
        """I3: the assertions of a settled run are just those its stored answers give."""
        turns = await self._reads.turns(snapshot.session, snapshot.first_seq, snapshot.last_seq)
        written = await self._reads.assertions_of(extraction.extraction_id)
        judged = said_in(judge_answers(extraction, snapshot, turns, self._ids))
        # What is forgotten is looked for by slot, and neither due nor missing here.
        bars = await self._reads.bars(sorted({one.slot for one in (*written, *judged)}))
        if bars:
            judged = said_in(judge_answers(extraction, snapshot, turns, self._ids, bars))
        due = {one.assertion_id: one for one in judged}
        stored = {
            one.assertion_id: one for one in written if not is_barred(bars.get(one.slot), one)
        }
        findings: set[str] = set()
        findings |= {f"assertion missing: {one}" for one in due.keys() - stored.keys()}
        findings |= {f"assertion without an answer: {one}" for one in stored.keys() - due.keys()}
        findings |= {
            f"assertion differs from its answer: {one}"
            for one in stored.keys() & due.keys()
            if stored[one] != due[one]
        }
        return {
            Violation(law="I3", where=extraction.extraction_id, finding=finding)
            for finding in findings
        }

    async def _slot_findings(self, slot: str) -> set[Violation]:
        """I3: a record is the fold of its assertions. I8: nothing is left of what was forgotten.

        I9: what has no vector is known to be refused.
        """
        record, assertions = await self._reads.slot(slot)
        if record is None:
            return {Violation(law="I3", where=slot, finding="assertions without a record")}
        found: set[Violation] = set()
        held = standing(record.bar, assertions)
        if record.runs != fold(slot_of(record), held):
            finding = f"record differs from the fold of its assertions since rev {record.rev}"
            found.add(Violation(law="I3", where=slot, finding=finding))
        if len(held) < len(assertions) and not await self._reads.is_forgetting(slot):
            finding = f"forgotten assertions are there: {len(assertions) - len(held)}"
            found.add(Violation(law="I8", where=slot, finding=finding))
        return found | await self._embedding_findings(slot)

    async def _embedding_findings(self, owner_id: str) -> set[Violation]:
        view = await self._reads.embedding(owner_id)
        return {
            Violation(law=law, where=owner_id, finding=finding)
            for law, finding in embedding_findings(view)
        }


def embedding_findings(view: EmbeddingView) -> Iterable[tuple[str, str]]:
    """Yield law and finding of whatever is wrong with the vectors of a record or turn.

    While its embedding is pending they are in motion.
    """
    stored = frozenset[str]().union(*view.vectors.values())
    if view.found is None:
        if stored:
            yield "I8", f"vectors of what is gone: {len(stored)}"
        return
    embedding = view.found.embedding
    if embedding.state is EmbeddingState.PENDING:
        return
    texts = texts_of(view.found.owner).keys()
    if stored - texts:
        named = "record" if isinstance(view.found.owner, Record) else "turn"
        yield "I8", f"vectors of what the {named} does not say: {len(stored - texts)}"
    if embedding.state is EmbeddingState.DEAD or embedding.model is None or not view.is_wanted:
        return
    wanting = texts - set(embedding.refused) - view.vectors.get(embedding.model, frozenset())
    if wanting:
        yield "I9", f"texts without a vector, and not refused: {len(wanting)}"


def cut_of(view: SessionView) -> int:
    """Return the last seq that a snapshot covers, 0 where there is none."""
    return max((listed.snapshot.last_seq for listed in view.snapshots), default=0)


def session_findings(view: SessionView) -> Iterable[tuple[str, str]]:
    """Yield law and finding of whatever is wrong with I1 and I2 in a session as it was read."""
    seqs = [turn.seq for turn in view.turns]
    for seq in sorted(set(range(1, max(seqs, default=0) + 1)) - set(seqs) - view.gaps):
        yield "I1", f"turn {seq} is missing"
    expected = 1
    for listed in view.snapshots:
        snapshot = listed.snapshot
        if snapshot.first_seq != expected:
            kind = "overlap" if snapshot.first_seq < expected else "gap"
            yield "I1", f"{kind} before the snapshot at {snapshot.first_seq}"
        expected = snapshot.last_seq + 1
    cut = cut_of(view)
    if seqs and cut > max(seqs):
        yield "I1", f"the snapshots end at {cut}, the turns at {max(seqs)}"
    for turn in view.turns:
        if turn.seq > cut and not turn.is_open:
            yield "I1", f"turn {turn.seq} is after the cut and not open"
    yield from _pending_findings(view)


def _pending_findings(view: SessionView) -> Iterable[tuple[str, str]]:
    for listed in view.snapshots:
        snapshot = listed.snapshot
        extraction = view.extractions.get(snapshot.snapshot_id)
        has_outcome = extraction is not None and extraction.outcome is not None
        if snapshot.settled and not has_outcome:
            yield "I2", f"the snapshot at {snapshot.first_seq} is settled without an outcome"
        if not snapshot.settled and not listed.is_listed:
            yield "I2", f"the snapshot at {snapshot.first_seq} is pending and nowhere listed"
        if has_outcome and not snapshot.settled:
            yield "I2", f"the snapshot at {snapshot.first_seq} has an outcome and is not settled"
