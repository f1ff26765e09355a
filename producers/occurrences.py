"""How often a line was said before, counted on disk: a transcript may have any number of lines."""

import sqlite3
from types import TracebackType
from typing import Self


class Occurrences:
    """Counts equal lines in a temporary file that goes with it."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("")
        self._database.execute(
            "CREATE TABLE said (line BLOB PRIMARY KEY, times INTEGER NOT NULL) WITHOUT ROWID"
        )

    def count(self, line: bytes) -> int:
        """Return how often a line was counted, this time included."""
        self._database.execute(
            "INSERT INTO said VALUES (?, 1) ON CONFLICT (line) DO UPDATE SET times = times + 1",
            (line,),
        )
        (times,) = self._database.execute(
            "SELECT times FROM said WHERE line = ?", (line,)
        ).fetchone()
        return times

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._database.close()
