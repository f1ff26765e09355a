"""Dates: a question that names a month or a day asks for what was said then.

Understood are the English names of months, `2023-07`, `2023-07-14`, and 2023年7月14日. A year alone
is a number like any other: too much was said in it.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

_MONTHS: Final = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_ALSO_WORDS: Final = ("march", "may")
"""Months only where a day or a year stands beside them."""
_DAY: Final = r"(\d{1,2})(?:st|nd|rd|th)?"
_NAMED: Final = re.compile(
    rf"(?:\b{_DAY}(?: of)? )?\b({'|'.join(_MONTHS)})\b(?: {_DAY}\b)?(?:,? (\d{{4}})\b)?"
)
_NUMBERED: Final = re.compile(
    r"(?<![\w-])(\d{4})(?:-(\d\d)(?:-(\d\d))?(?![\w-])|年(\d{1,2})月(?:(\d{1,2})日)?)"
)


def terms_of_date(said_at: datetime) -> list[str]:
    """Return the terms by which a moment is found, which are no words: its month and its day."""
    day = said_at.astimezone(UTC)
    return [f" {day:%Y-%m}", f" {day:%Y-%m-%d}", f" {day:%m}", f" {day:%m-%d}"]


def dates_asked_by(query: str) -> list[str]:
    """Return such terms of the months and days that a question names."""
    return list(dict.fromkeys(_asked(query.casefold())))


def _asked(query: str) -> Iterator[str]:
    for day_before, name, day_after, year in _NAMED.findall(query):
        day = day_before or day_after
        if day or year or name not in _ALSO_WORDS:
            yield from _terms(year, _MONTHS.index(name) + 1, day)
    for year, month, day, month_then, day_then in _NUMBERED.findall(query):
        yield from _terms(year, int(month or month_then), day or day_then)


def _terms(year: str, month: int, day: str) -> Iterator[str]:
    of_year = f"{year}-" if year else ""
    yield f" {of_year}{month:02}"
    if day:
        yield f" {of_year}{month:02}-{int(day):02}"
