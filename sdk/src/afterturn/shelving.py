"""A shelf on disk: turns that outlive the process, in one file that several may share."""

import json
import logging
import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from afterturn.buffering import Kept
from afterturn.parcels import Parcel, parcel
from afterturn.scopes import Conversation

_WAIT_SECONDS: Final = 5.0
"""How long to wait for another process that writes."""
_CREATE: Final = """
create table if not exists waiting (
    number integer primary key autoincrement, conversation text not null, turn text not null
)
"""

_log = logging.getLogger("afterturn")


class DiskShelf:
    """Turns in an SQLite file, readable by its owner only, each gone once it is recorded.

    Of two processes with one file each sends what it finds there when it starts; the memory
    server stores it once.

    Concurrency: every method may be called from any thread.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, or make it; one that is damaged is put aside.

        Raises:
            sqlite3.OperationalError: There is no using it, for want of rights or of room.
        """
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._file = _opened(path)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:
            aside = path.replace(path.with_name(f"{path.name}.damaged"))
            _log.warning("turns that waited on disk can't be read; the file is %s", aside.name)
            self._file = _opened(path)

    def load(self) -> list[Kept]:
        """Return what is kept, in the order in which it was put there."""
        query = "select number, conversation, turn from waiting order by number"
        with self._lock:
            rows = self._file.execute(query).fetchall()
        return [
            Kept(parcel(Conversation(**json.loads(whose)), json.loads(turn)), number)
            for number, whose, turn in rows
        ]

    def put(self, parcels: Sequence[Parcel]) -> list[int]:
        """Keep parcels, all or none, and have them on disk; return a number for each."""
        numbers: list[int] = []
        with self._lock, self._file:
            for parcel in parcels:
                cursor = self._file.execute(
                    "insert into waiting (conversation, turn) values (?, ?)",
                    (json.dumps(asdict(parcel.conversation)), json.dumps(parcel.turn)),
                )
                numbers.append(cursor.lastrowid or 0)
        return numbers

    def remove(self, number: int) -> None:
        """Keep one no longer."""
        with self._lock, self._file:
            self._file.execute("delete from waiting where number = ?", (number,))

    def close(self) -> None:
        """Let the file go."""
        with self._lock:
            self._file.close()


def _opened(path: Path) -> sqlite3.Connection:
    path.touch(mode=0o600)
    file = sqlite3.connect(path, timeout=_WAIT_SECONDS, check_same_thread=False)
    try:
        with file:
            file.execute("pragma journal_mode = wal")
            file.execute("pragma secure_delete = on")
            file.execute(_CREATE)
    except sqlite3.Error:
        file.close()
        raise
    return file
