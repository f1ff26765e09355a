"""What two assertions must share to be about the same thing, and to say the same of it.

The first is the slot's key, the second the content's key. Both compare words without regard to
case, spacing, compatibility forms and the punctuation they end with.
"""

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

from pipeline.ports.records import SlotKey
from schemas.assertion import Assertion
from schemas.memory import (
    CONTENT_TYPES,
    Content,
    CustomContent,
    EpisodicContent,
    ProceduralContent,
    RecordKind,
    SemanticContent,
    TaxonomicContent,
)
from schemas.record import Record

ContentKey = tuple[tuple[str, ...], ...]
"""Equal for contents that say the same; to be compared within one slot only."""

_ENDINGS: Final = ".!?,;:。、،؛؟۔।॥"
"""What ends a clause. No other punctuation: C and C# are two terms."""


def normalized(text: str) -> str:
    """Return a text as it is compared, never as it is shown.

    Idempotent: what was normalized stays as it is. A text of nothing but endings keeps them.
    """
    folded = text
    for _ in range(2):
        folded = unicodedata.normalize("NFKC", folded).casefold()
    spaced = " ".join(unicodedata.normalize("NFKC", folded).split())
    return spaced.rstrip(_ENDINGS + " ") or spaced


def slot_key(kind: RecordKind, subject: str, content: Content, snapshot_id: str | None) -> str:
    """Return the key of the slot, in plain words, that a content belongs to within its scope.

    Semantic: subject and attribute. Taxonomic: domain and term. Procedural: name. Episodic: the
    snapshot it was seen in and its title, because one snapshot may tell of two episodes, and the
    same title in another snapshot is another episode. An episode saved directly has no snapshot
    and goes by its title alone. A record of a custom type: the type and what was handed over as its
    snapshot, so that each save may be one of its own.

    Two keys of one kind are equal only if all their parts are: a slash within a part is escaped.

    Raises:
        TypeError: The content is of another kind.
    """
    if not isinstance(content, CONTENT_TYPES[kind]):
        raise TypeError(f"a slot of kind {kind!s} can't hold {type(content).__name__}")
    match content:
        case SemanticContent():
            parts = (normalized(subject), _attribute(content.attribute))
        case TaxonomicContent():
            parts = (normalized(content.domain), normalized(content.term))
        case ProceduralContent():
            parts = (normalized(content.name),)
        case EpisodicContent():
            parts = (snapshot_id or "", normalized(content.title))
        case CustomContent():
            parts = (content.type, snapshot_id or "")
    return "/".join(part.replace("\\", "\\\\").replace("/", "\\/") for part in parts)


def content_key(content: Content) -> ContentKey:
    """Return what makes two contents of one slot the same.

    Semantic: the text; the label only shortens it. Episodic: summary and outcome. Taxonomic: the
    definition. Procedural: the steps in their order, and the triggers and tools in any: another
    way, occasion or tool is another procedure, another description of the same one is not.
    """
    match content:
        case SemanticContent():
            return ((normalized(content.text),),)
        case EpisodicContent():
            return ((normalized(content.summary),), (normalized(content.outcome or ""),))
        case TaxonomicContent():
            return ((normalized(content.definition),),)
        case ProceduralContent():
            return (
                tuple(map(normalized, content.steps)),
                _unordered(content.trigger_conditions),
                _unordered(content.tools),
            )
        case CustomContent():
            tags = tuple(f"{tag.name}={tag.value!r}" for tag in content.tags)
            return ((normalized(content.body),), tags)


def slots_of(assertions: Iterable[Assertion]) -> list[SlotKey]:
    """Return the slots that assertions belong to, each once, by their ids."""
    keys = {
        assertion.slot: SlotKey(
            slot=assertion.slot,
            scope=assertion.scope,
            kind=assertion.kind,
            key=assertion.key,
            subject=assertion.subject,
        )
        for assertion in assertions
    }
    return [keys[slot] for slot in sorted(keys)]


def slot_of(record: Record) -> SlotKey:
    """Return the slot that a record is the fold of."""
    return SlotKey(
        slot=record.record_id,
        scope=record.scope,
        kind=record.kind,
        key=record.key,
        subject=record.subject,
    )


def _attribute(text: str) -> str:
    """Return an attribute such as `preference:drink`, however it was spaced."""
    return re.sub(r" ?: ?", ":", normalized(text))


def _unordered(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({normalized(text) for text in texts}))
