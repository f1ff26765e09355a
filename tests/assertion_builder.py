"""Assertions for tests of the fold: defaults, and whatever a test is about."""

from datetime import UTC, datetime, timedelta
from typing import Any

from pipeline.folding.folder import fold
from pipeline.folding.slots import slot_key, slots_of
from pipeline.ids import OpaqueIds
from schemas.assertion import Assertion, Evidence, SourcePosition
from schemas.identity import Scope, Visibility
from schemas.memory import Content, Kind, SemanticContent
from schemas.record import ContentRun

SCOPE = Scope(project_id="p", owner="ade", visibility=Visibility.PRIVATE)
START = datetime(2026, 1, 1, tzinfo=UTC)
IDS = OpaqueIds(b"k" * 32)


def day(number: int) -> datetime:
    """Return a day of January 2026 and after, from 0."""
    return START + timedelta(days=number)


def home(text: str) -> SemanticContent:
    """Return a fact about where somebody lives."""
    return SemanticContent(attribute="home", label=text, text=text)


def assertion(content: Content | str, *, on: int = 0, item: int = 0, **fields: Any) -> Assertion:
    """Return what was said on a day; a text is where the user lives.

    Its id is a function of the run it belongs to and of where it was said, as in the product.
    """
    said = home(content) if isinstance(content, str) else content
    kind: Kind = fields.pop("kind", Kind.SEMANTIC)
    subject: str = fields.pop("subject", "user")
    extraction_id: str | None = fields.pop("extraction_id", f"snapshot-{on}:0")
    snapshot_id = None if extraction_id is None else extraction_id.partition(":")[0]
    key = slot_key(kind, subject, said, snapshot_id)
    session: str = fields.pop("session", "s1")
    defaults: dict[str, Any] = {
        "assertion_id": IDS.assertion(f"{extraction_id}/{session}", on, kind, item),
        "slot": IDS.slot(SCOPE, kind, key),
        "scope": SCOPE,
        "kind": kind,
        "key": key,
        "subject": subject,
        "content": said,
        "relation": "adds",
        "holds_now": True,
        "evidence": Evidence(session=session, seqs=(on + 1,), quote="so it is"),
        "position": SourcePosition(effective_at=day(on), session=session, seq=on + 1, item=item),
        "extraction_id": extraction_id,
        "snapshot_id": snapshot_id,
        "run": 0,
        "part": 0,
        "session": session,
    }
    return Assertion.model_validate(defaults | fields)


def folded(*assertions: Assertion) -> tuple[ContentRun, ...]:
    """Return the fold of assertions of one slot."""
    slots = slots_of(assertions)
    return fold(slots[0], assertions) if slots else ()


def told(runs: tuple[ContentRun, ...]) -> list[tuple[str, str]]:
    """Return the label and state of each run of where somebody lives."""
    return [(getattr(run.content, "label", ""), run.state.value) for run in runs]
