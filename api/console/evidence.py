"""What of a turn is evidence: the words that were quoted, where they stand in it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pipeline.extracting.quoting import normalized, normalized_quote

LONGEST: Final = 50_000
"""Characters of a turn in which quotes are looked for; a longer one is shown as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A piece of a text; together they are the text."""

    text: str
    is_quoted: bool


def segments_of(content: str, quotes: Iterable[str]) -> list[Segment]:
    """Return a text in pieces, those that were quoted apart from the others.

    Quotes are found as extraction finds them: typography, case and spacing aside. One that is not
    found marks nothing.
    """
    spans = _merged(_spans(content, quotes))
    found: list[Segment] = []
    end = 0
    for first, last in spans:
        found.append(Segment(text=content[end:first], is_quoted=False))
        found.append(Segment(text=content[first:last], is_quoted=True))
        end = last
    found.append(Segment(text=content[end:], is_quoted=False))
    return [segment for segment in found if segment.text]


def _spans(content: str, quotes: Iterable[str]) -> list[tuple[int, int]]:
    wanted = {quote for each in quotes if (quote := normalized_quote(each))}
    if not wanted or len(content) > LONGEST:
        return []
    text, places = _folded(content)
    found: list[tuple[int, int]] = []
    for quote in wanted:
        at = text.find(quote)
        if at >= 0:
            found.append((places[at], places[at + len(quote) - 1] + 1))
    return sorted(found)


def _folded(content: str) -> tuple[str, list[int]]:
    """Return a text as quotes are compared with, and where each of its characters comes from."""
    characters: list[str] = []
    places: list[int] = []
    for place, character in enumerate(content):
        if character.isspace():
            if characters and characters[-1] != " ":
                characters.append(" ")
                places.append(place)
            continue
        for each in normalized(character):
            characters.append(each)
            places.append(place)
    return "".join(characters), places


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, last in spans:
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged
