"""One accepted item of an extraction, or one direct save: immutable, with its source."""

from datetime import datetime

from schemas.base import Frozen
from schemas.identity import Scope
from schemas.memory import (
    EpisodicContent,
    Kind,
    ProceduralContent,
    Relation,
    SemanticContent,
    TaxonomicContent,
)


class Evidence(Frozen):
    """What an assertion rests on: turns of a session and the words quoted from one of them."""

    session: str
    seqs: tuple[int, ...]
    quote: str


class SourcePosition(Frozen):
    """Where an assertion stands among all others; fold sorts by it, never by arrival."""

    effective_at: datetime
    session: str
    seq: int
    item: int

    def key(self) -> tuple[datetime, str, int, int]:
        """Return what to sort by; the assertion's id breaks what ties are left."""
        return (self.effective_at, self.session, self.seq, self.item)


class Assertion(Frozen):
    """Something said, once; removed only by forgetting or by a replay that replaces it."""

    assertion_id: str
    slot: str
    """The opaque id of scope + kind + key; also the id of the record it is folded into."""
    scope: Scope
    kind: Kind
    key: str
    """The slot's normalized key in plain words, e.g. `user/home`."""
    subject: str
    content: SemanticContent | EpisodicContent | ProceduralContent | TaxonomicContent
    relation: Relation
    holds_now: bool
    """False for a statement about a time that is over."""
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    is_time_assumed: bool = False
    """True where a time was given that is no date, so that the turn's own time stands."""
    confidence: float = 1.0
    evidence: Evidence | None
    position: SourcePosition
    extraction_id: str | None
    snapshot_id: str | None
    run: int | None
    part: int | None
    session: str | None
    agent_id: str | None = None
    model: str | None = None
    version: str | None = None
    """The extractor's version."""
