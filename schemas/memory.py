"""The four kinds of memory, as a model is asked for them and as they are stored.

An extraction's answer is one `Answer`. Its items are judged one by one (`ITEM_TYPES`), so that an
item a model got wrong never discards its neighbours; only the frame around them must be right.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from schemas.base import Frozen


class Kind(StrEnum):
    """What kind of long-term memory a record is."""

    SEMANTIC = "semantic"
    EPISODIC = "episodic"
    PROCEDURAL = "procedural"
    TAXONOMIC = "taxonomic"


class CustomKind(StrEnum):
    """What agents save beside the four kinds, and nobody extracts."""

    CUSTOM = "custom"
    """Of a type that the project declares."""


RecordKind = Kind | CustomKind


class Relation(StrEnum):
    """What an assertion does to what its slot held before."""

    ADDS = "adds"
    """May stand beside what is current."""
    REPLACES = "replaces"
    """It was so, and is now otherwise: closes what is current."""
    CORRECTS = "corrects"
    """It never was so: marks what is current as wrong."""
    ENDED = "ended"
    """It is over, and nothing takes its place."""


SAVED_CHARACTERS = 32_000
"""The longest text an agent may save itself; a model's is much shorter (`_SAID_CHARACTERS`)."""
_SAID_CHARACTERS = 4000


class SemanticContent(Frozen):
    """A labelled fact about a subject."""

    attribute: str = Field(min_length=1, max_length=200)
    label: str = Field(min_length=1, max_length=200, description="The value in a few words.")
    text: str = Field(min_length=1, max_length=SAVED_CHARACTERS)


class EpisodicContent(Frozen):
    """Something that happened, summarised."""

    title: str = Field(min_length=1, max_length=200)
    summary: str = Field(min_length=1, max_length=SAVED_CHARACTERS)
    participants: tuple[str, ...] = Field(default=(), max_length=50)
    outcome: str | None = Field(default=None, max_length=1000, description="How it ended.")


class ProceduralContent(Frozen):
    """A way of doing something, to be used again."""

    name: str = Field(min_length=1, max_length=200)
    description: str = Field(min_length=1, max_length=SAVED_CHARACTERS)
    steps: tuple[str, ...] = Field(max_length=100)
    trigger_conditions: tuple[str, ...] = Field(default=(), max_length=50)
    tools: tuple[str, ...] = Field(default=(), max_length=50)


class TaxonomicContent(Frozen):
    """What a term means in a domain."""

    domain: str = Field(min_length=1, max_length=120)
    term: str = Field(min_length=1, max_length=200)
    definition: str = Field(min_length=1, max_length=SAVED_CHARACTERS)
    related_terms: tuple[str, ...] = Field(default=(), max_length=50)


TagValue = bool | int | float | str


class Tag(Frozen):
    """What a record of a custom type may be looked up by."""

    name: str
    """As the project declares it; a nested one is `group.tag`."""
    value: TagValue


class CustomContent(Frozen):
    """Something of a type that a project declares itself."""

    type: str = Field(min_length=1, max_length=64)
    body: str = Field(min_length=1, max_length=SAVED_CHARACTERS)
    tags: tuple[Tag, ...] = ()
    """By name."""


Content = SemanticContent | EpisodicContent | ProceduralContent | TaxonomicContent | CustomContent


class Grounds(Frozen):
    """What every item says of itself: whose it is, what it does, and what it rests on."""

    subject: str = Field(
        default="user",
        min_length=1,
        max_length=200,
        description="'user' for the user, else the name of whom or what it is about.",
    )
    relation: Annotated[
        Relation,
        WithJsonSchema({"type": "string", "enum": [str(relation) for relation in Relation]}),
    ] = Field(
        default=Relation.ADDS,
        description=(
            "adds: stands beside earlier ones; replaces: was so and is now otherwise; corrects: an"
            " earlier statement was wrong; ended: over, with nothing in its place."
        ),
    )
    evidence: tuple[int, ...] = Field(
        min_length=1, max_length=50, description="The numbers of the turns it rests on."
    )
    quote: str = Field(
        min_length=1, max_length=2000, description="Copied letter by letter from one of them."
    )
    confidence: float = Field(default=1.0, ge=0.0, le=1.0)
    holds: Literal["now", "past"] = Field(
        default="now", description="past: about a time that is over when it is said."
    )
    valid_from: str | None = Field(
        default=None, max_length=64, description="ISO 8601, if said; relative dates resolved."
    )
    valid_until: str | None = Field(default=None, max_length=64, description="The same.")


class SemanticItem(SemanticContent, Grounds):
    """A fact, with its grounds."""

    attribute: str = Field(
        min_length=1,
        max_length=120,
        description=(
            "One word of the vocabulary, for the words marked * followed by a colon and the topic"
            " in one or two plain words, e.g. 'home' or 'preference:drink'."
        ),
    )
    text: str = Field(
        min_length=1,
        max_length=_SAID_CHARACTERS,
        description="The fact as one sentence that stands alone.",
    )


class EpisodicItem(EpisodicContent, Grounds):
    """An episode, with its grounds."""

    summary: str = Field(min_length=1, max_length=_SAID_CHARACTERS)


class ProceduralItem(ProceduralContent, Grounds):
    """A procedure, with its grounds."""

    description: str = Field(min_length=1, max_length=_SAID_CHARACTERS)
    steps: tuple[str, ...] = Field(min_length=1, max_length=100)


class TaxonomicItem(TaxonomicContent, Grounds):
    """A term, with its grounds."""

    definition: str = Field(min_length=1, max_length=_SAID_CHARACTERS)


Item = SemanticItem | EpisodicItem | ProceduralItem | TaxonomicItem

ITEM_TYPES: dict[Kind, type[Item]] = {
    Kind.SEMANTIC: SemanticItem,
    Kind.EPISODIC: EpisodicItem,
    Kind.PROCEDURAL: ProceduralItem,
    Kind.TAXONOMIC: TaxonomicItem,
}
CONTENT_TYPES: dict[RecordKind, type[Content]] = {
    Kind.SEMANTIC: SemanticContent,
    Kind.EPISODIC: EpisodicContent,
    Kind.PROCEDURAL: ProceduralContent,
    Kind.TAXONOMIC: TaxonomicContent,
    CustomKind.CUSTOM: CustomContent,
}

_SemanticRaw = Annotated[Any, WithJsonSchema(SemanticItem.model_json_schema())]
_EpisodicRaw = Annotated[Any, WithJsonSchema(EpisodicItem.model_json_schema())]
_ProceduralRaw = Annotated[Any, WithJsonSchema(ProceduralItem.model_json_schema())]
_TaxonomicRaw = Annotated[Any, WithJsonSchema(TaxonomicItem.model_json_schema())]


class Answer(BaseModel):
    """What the model is asked for: items by kind, unjudged yet, and a summary of the turns."""

    model_config = ConfigDict(frozen=True, extra="forbid", title="Memories")

    semantic: list[_SemanticRaw] = Field(description="Lasting facts. Empty if there are none.")
    episodic: list[_EpisodicRaw] = Field(description="Things that happened. Empty if none.")
    procedural: list[_ProceduralRaw] = Field(description="Ways of doing things. Empty if none.")
    taxonomic: list[_TaxonomicRaw] = Field(description="Terms explained. Empty if none.")
    summary: str = Field(max_length=4000, description="The turns in at most three sentences.")
