"""What the rules find, before it is written in the answer's schema."""

from dataclasses import dataclass
from typing import Any, Literal

from schemas.memory import Relation

USER = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A lasting statement about somebody."""

    subject: str
    """`user`, or the name of whom it is about."""
    attribute: str
    """A word of the vocabulary, with its topic where it takes one."""
    label: str
    """The value in a few words."""
    text: str
    """The statement in the third person."""
    relation: Relation = Relation.ADDS
    """What it does to what was known."""
    is_past: bool = False
    """Whether it is about a time that is over."""
    confidence: float = 0.8
    """How sure the rule is."""
    valid_from: str | None = None
    """Since when, if said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """A fact, and where in its sentence it is said."""

    fact: Fact
    """What is stated."""
    start: int
    """Where the words begin."""
    end: int
    """Where they end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounded:
    """A finding's place: the turn it rests on, and the words."""

    seq: int
    """The turn's number."""
    quote: str
    """The words, letter by letter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundedFact:
    """A fact and what it rests on."""

    fact: Fact
    """The statement."""
    grounds: Grounded
    """Where it was said."""

    def as_item(self) -> dict[str, Any]:
        """Return it as an item of the answer."""
        fact = self.fact
        return {
            "subject": fact.subject,
            "attribute": fact.attribute,
            "label": fact.label,
            "text": fact.text,
            **_grounds(
                self.grounds,
                relation=fact.relation,
                holds="past" if fact.is_past else "now",
                confidence=fact.confidence,
                valid_from=fact.valid_from,
            ),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """Something the user tells of."""

    title: str
    """Its name in a few words."""
    summary: str
    """What happened, in the third person."""
    participants: tuple[str, ...]
    """Who took part."""
    day: str | None
    """When, if said."""
    weight: int
    """How much of an event it is; the heaviest of a request is kept."""
    grounds: Grounded
    """Where it was told."""

    def as_item(self) -> dict[str, Any]:
        """Return it as an item of the answer."""
        return {
            "subject": USER,
            "title": self.title,
            "summary": self.summary,
            "participants": list(self.participants),
            **_grounds(self.grounds, confidence=0.7, valid_from=self.day),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Procedure:
    """A way of doing something."""

    name: str
    """What it achieves, in a few words."""
    steps: tuple[str, ...]
    """What to do, in order."""
    grounds: Grounded
    """Where it was stated."""
    triggers: tuple[str, ...] = ()
    """When it applies, if said."""
    tools: tuple[str, ...] = ()
    """The commands it names."""

    def as_item(self) -> dict[str, Any]:
        """Return it as an item of the answer."""
        return {
            "subject": USER,
            "name": self.name,
            "description": self.name,
            "steps": list(self.steps),
            "trigger_conditions": list(self.triggers),
            "tools": list(self.tools),
            **_grounds(self.grounds, confidence=0.8),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """What a word means where it is used."""

    domain: str
    """The field it belongs to."""
    term: str
    """The word."""
    definition: str
    """What it means."""
    relation: Relation
    """What it does to what was known."""
    grounds: Grounded
    """Where it was said."""

    def as_item(self) -> dict[str, Any]:
        """Return it as an item of the answer."""
        return {
            "subject": USER,
            "domain": self.domain,
            "term": self.term,
            "definition": self.definition,
            **_grounds(self.grounds, relation=self.relation, confidence=0.8),
        }


def _grounds(
    grounds: Grounded,
    *,
    confidence: float,
    relation: Relation = Relation.ADDS,
    holds: Literal["now", "past"] = "now",
    valid_from: str | None = None,
) -> dict[str, Any]:
    return {
        "relation": str(relation),
        "evidence": [grounds.seq],
        "quote": grounds.quote,
        "confidence": confidence,
        "holds": holds,
        "valid_from": valid_from,
    }
