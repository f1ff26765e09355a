"""Turns in, memories out, by general rules: the offline extractor without its HTTP.

Pure and deterministic. Precision goes before recall: a sentence no rule is sure of yields nothing.
Facts about the user rest on the user's own turns; other roles are context.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from compose.offline import rules_chinese, rules_english, rules_european
from compose.offline.rules_episodes import episode_in
from compose.offline.rules_items import (
    Episode,
    Fact,
    Grounded,
    GroundedFact,
    Procedure,
    Stated,
    Term,
)
from compose.offline.rules_procedures import procedures_in
from compose.offline.rules_secrets import secret_spans
from compose.offline.rules_terms import terms_in
from compose.offline.rules_text import Sentence, readable, sentences
from schemas.memory import Relation

LONGEST_QUOTE = 300
"""A longer sentence is quoted by the part that says it."""

MOST_ITEMS = 60
"""How many facts of one request are kept."""

SUMMARY_SENTENCES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenTurn:
    """One turn as the extractor is given it."""

    seq: int
    """Its number in the session."""
    role: str
    """Who spoke."""
    content: str
    """What was said."""
    at: datetime | None = None
    """When; relative dates count from here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memories:
    """What was found in some turns."""

    facts: tuple[GroundedFact, ...]
    """Lasting statements."""
    episodes: tuple[Episode, ...]
    """At most one event."""
    procedures: tuple[Procedure, ...]
    """Ways of doing things."""
    terms: tuple[Term, ...]
    """Words explained."""
    summary: str
    """Up to three of the sentences that counted."""

    def as_answer(self) -> dict[str, Any]:
        """Return it in the schema a model is asked for."""
        return {
            "semantic": [fact.as_item() for fact in self.facts],
            "episodic": [episode.as_item() for episode in self.episodes],
            "procedural": [procedure.as_item() for procedure in self.procedures],
            "taxonomic": [term.as_item() for term in self.terms],
            "summary": self.summary,
        }


def remember(turns: Sequence[SpokenTurn], context: Sequence[SpokenTurn] = ()) -> Memories:
    """Return what the user's turns state that is worth keeping.

    Args:
        turns: The turns to extract from, in order.
        context: Earlier turns; only what a correction refers to is looked up in them.
    """
    facts: list[GroundedFact] = []
    earlier = [found for turn in context if turn.role == USER_ROLE for found in _facts_in(turn, [])]
    episodes: list[Episode] = []
    procedures: list[Procedure] = []
    terms: list[Term] = []
    for turn in turns:
        if turn.role != USER_ROLE:
            continue
        text = readable(turn.content)
        steps = procedures_in(turn.seq, turn.content, text)
        told = text
        for procedure in steps:
            start = turn.content.index(procedure.grounds.quote)
            end = start + len(procedure.grounds.quote)
            told = told[:start] + "\n" * (end - start) + told[end:]
        procedures.extend(steps)
        read = list(sentences(told))
        terms.extend(term for sentence in read for term in terms_in(turn.seq, sentence))
        explained = {term.grounds.quote for term in terms}
        facts.extend(
            found
            for found in _facts_in(turn, [*earlier, *facts], told)
            if found.grounds.quote not in explained
        )
        episodes.extend(
            episode
            for sentence in read
            if (episode := episode_in(turn.seq, turn.at, sentence)) is not None
        )
    secrets = [
        turn.content[start:end] for turn in turns for start, end in secret_spans(turn.content)
    ]
    kept = tuple(found for found in _merged(facts) if _is_safe(found.as_item(), secrets))
    heaviest = max(episodes, key=lambda episode: episode.weight, default=None)
    return Memories(
        facts=kept[:MOST_ITEMS],
        episodes=(
            () if heaviest is None or not _is_safe(heaviest.as_item(), secrets) else (heaviest,)
        ),
        procedures=tuple(one for one in procedures if _is_safe(one.as_item(), secrets)),
        terms=tuple(one for one in terms if _is_safe(one.as_item(), secrets)),
        summary=_summary(kept, heaviest, procedures, terms, secrets),
    )


USER_ROLE = "user"


def _facts_in(
    turn: SpokenTurn, earlier: Sequence[GroundedFact], text: str | None = None
) -> list[GroundedFact]:
    found: list[GroundedFact] = []
    for sentence in sentences(readable(turn.content) if text is None else text):
        stated = _stated(sentence, turn.at)
        if not stated:
            stated = list(_corrected(sentence, [*earlier, *found]))
        found.extend(
            GroundedFact(
                fact=one.fact,
                grounds=Grounded(seq=turn.seq, quote=_quote(sentence, one.start, one.end)),
            )
            for one in stated
        )
    return found


def _stated(sentence: Sentence, said_at: datetime | None) -> list[Stated]:
    if sentence.is_chinese:
        return rules_chinese.facts(sentence, said_at=said_at)
    return rules_english.facts(sentence, said_at=said_at) or rules_european.facts(
        sentence, said_at=said_at
    )


def _quote(sentence: Sentence, start: int, end: int) -> str:
    if sentence.is_clean and not sentence.asks and len(sentence.text) <= LONGEST_QUOTE:
        return sentence.text
    return sentence.text[start:end]


_NOT_BUT = (
    re.compile(
        r"(?i)\b(?:i meant(?: to say)?|i mean|make that|it(?:'s| is| was)|that(?:'s| is| should be)"
        r"|should (?:be|say)|quise decir|ich meinte)\s+(?P<new>[\w'’ -]{1,60}?)"
        r",?\s*(?:and )?(?:not|no|nicht) (?P<old>[\w'’ -]{1,60})"
    ),
    re.compile(
        r"(?i)\bnot (?P<old>[\w'’ -]{1,60}?),? (?:but|it(?:'s| is)) (?P<new>[\w'’ -]{1,60})"
    ),
    re.compile(r"不是(?P<old>[^,，。；]{1,30})[，,]?(?:而)?是(?P<new>[^,，。；]{1,30})"),
    re.compile(r"是(?P<new>[^,，。；不]{1,30})[，,]?(?:而)?不是(?P<old>[^,，。；]{1,30})"),
)


def _corrected(sentence: Sentence, earlier: Sequence[GroundedFact]) -> Iterator[Stated]:
    """Yield the fact that "not X but Y" makes of the last one said with X in it."""
    if not sentence.is_clean or sentence.asks:
        return
    for pattern in _NOT_BUT:
        match = pattern.search(sentence.text)
        if match is None:
            continue
        old = match["old"].strip().removeprefix("in ").strip()
        new = match["new"].strip().removeprefix("in ").strip()
        for found in reversed(earlier):
            if old and new and old.lower() == found.fact.label.lower():
                fact = replace(
                    found.fact,
                    label=new,
                    text=found.fact.text.replace(found.fact.label, new),
                    relation=Relation.CORRECTS,
                    is_past=False,
                )
                yield Stated(fact=fact, start=0, end=len(sentence.text))
                return


def _merged(facts: Sequence[GroundedFact]) -> list[GroundedFact]:
    """Return the facts, each once, in the order in which they were first said."""
    seen: dict[tuple[str, str, str, Relation, bool], GroundedFact] = {}
    for found in facts:
        fact = found.fact
        key = (fact.subject, fact.attribute, fact.label.lower(), fact.relation, fact.is_past)
        seen.setdefault(key, found)
    return list(seen.values())


def _is_safe(item: dict[str, Any], secrets: Sequence[str]) -> bool:
    """Return whether nothing in an item is, or holds a part of, a secret."""
    words = "\n".join(str(value) for value in item.values())
    parts = {part for secret in secrets for part in secret.split() if len(part) > 5}  # noqa: PLR2004
    return not secret_spans(words) and not any(part in words for part in parts)


def _summary(
    facts: Sequence[GroundedFact],
    episode: Episode | None,
    procedures: Sequence[Procedure],
    terms: Sequence[Term],
    secrets: Sequence[str],
) -> str:
    lines = [found.fact.text for found in facts]
    if episode is not None:
        lines.insert(min(1, len(lines)), episode.summary)
    lines.extend(f"{procedure.name}." for procedure in procedures)
    lines.extend(f"{term.term}: {term.definition}." for term in terms)
    safe = [line for line in dict.fromkeys(lines) if _is_safe({"line": line}, secrets)]
    return " ".join(safe[:SUMMARY_SENTENCES])[:4000]


__all__ = ["Fact", "Memories", "SpokenTurn", "remember"]
