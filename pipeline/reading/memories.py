"""Memories: what records hold, as readers get it."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from schemas.memory import (
    Content,
    CustomContent,
    EpisodicContent,
    ProceduralContent,
    RecordKind,
    SemanticContent,
    TaxonomicContent,
)
from schemas.record import ContentRun, Record, RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One content of a record, as readers get it."""

    record: Record
    run: ContentRun

    @property
    def memory_id(self) -> str:
        """What it goes by."""
        return self.run.memory_id

    @property
    def key(self) -> str:
        """What tells this content from every other, of the same memory too."""
        return key_of(self.record.record_id, self.run.assertions[0])

    @property
    def kind(self) -> RecordKind:
        """What kind of memory it is."""
        return self.record.kind

    @property
    def text(self) -> str:
        """Its content in words; what a caller saved as `content` is the whole of it."""
        said = (self.run.fields or {}).get("content")
        return said if isinstance(said, str) and said else text_of(self.run.content)

    @property
    def since(self) -> datetime:
        """When it was said first."""
        return self.run.first_at

    @property
    def last_said(self) -> datetime:
        """When it was said last."""
        return self.run.last_at

    @property
    def times(self) -> int:
        """How often it was said."""
        return len(self.run.assertions)


def memories_of(
    records: Iterable[Record], states: Collection[RunState] = (RunState.CURRENT,)
) -> list[Memory]:
    """Return what records hold in the given states; of what is not current, nothing by default."""
    return [
        Memory(record=record, run=run)
        for record in records
        for run in record.runs
        if run.state in states
    ]


def key_of(record_id: str, first_assertion: str) -> str:
    """Return the key of a run: no assertion is the first of two."""
    return f"{record_id}:{first_assertion}"


def text_of(content: Content) -> str:
    """Return a content in words."""
    match content:
        case SemanticContent():
            return content.text
        case EpisodicContent():
            outcome = f" {content.outcome}" if content.outcome else ""
            return f"{content.title}: {content.summary}{outcome}"
        case ProceduralContent():
            steps = "; ".join(f"{n}. {step}" for n, step in enumerate(content.steps, 1))
            is_named_only = content.description.casefold() == content.name.casefold()
            said = "" if is_named_only else f" {content.description}"
            return f"{content.name}:{said} {steps}".rstrip()
        case TaxonomicContent():
            return f"{content.term} ({content.domain}): {content.definition}"
        case CustomContent():
            return content.body
