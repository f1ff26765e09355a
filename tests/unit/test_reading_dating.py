"""Which months and days a question names, and what was said then."""

from datetime import UTC, datetime

import pytest

from pipeline.reading.dating import dates_asked_by
from pipeline.reading.index import Entry, Mode, ScopeIndex


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ("What happened in July?", [" 07"]),
        ("What happened in July 2023?", [" 2023-07"]),
        ("Who came on October 13, 2023?", [" 2023-10", " 2023-10-13"]),
        ("Who came on the 3rd of May", [" 05", " 05-03"]),
        ("the march of 2023", []),
        ("Where may I march?", []),
        ("marchers in Mayfair, Augustus", []),
        ("in May 2023", [" 2023-05"]),
        ("on 2023-07-14", [" 2023-07", " 2023-07-14"]),
        ("2023年7月14日我们去了哪里", [" 2023-07", " 2023-07-14"]),
        ("INV-2024-0042 and INV-2024-10", []),
        ("since 2023", []),
    ],
)
def test_months_and_days_are_understood_and_nothing_else(query: str, asked: list[str]) -> None:
    assert dates_asked_by(query) == asked


def test_what_was_said_then_is_found() -> None:
    index = ScopeIndex()
    for month in range(1, 13):
        said_at = datetime(2023, month, 14, 12, tzinfo=UTC)
        index.put(Entry(key=str(month), text="we went swimming", said_at=said_at))

    found = index.search("Where did we go in July 2023?", None, Mode.TEXT, 1)

    assert [hit.key for hit in found] == ["7"]
