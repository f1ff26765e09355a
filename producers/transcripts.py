"""Reading a transcript: JSON lines, one turn each, however broken single lines are."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from pipeline.errors import InvalidInputError, Problem
from pipeline.recording import accept_identity
from schemas.identity import SessionIdentity

LINE_BYTES: Final = 8 * 1024 * 1024
"""The longest line that is looked at."""
TURN_FIELDS: Final = frozenset(
    {
        "role",
        "content",
        "created_at",
        "metadata",
        "tool_calls",
        "tool_call_id",
        "tool_name",
        "is_error",
        "model_name",
    }
)
"""What a line may say beside `session_id` and `user_id`."""

_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line that is not blank."""

    number: int
    """Its place in the file, from 1."""
    data: bytes | None
    """None where it is too long to be kept."""
    end: int
    """How much of the file is read with it, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a line says, not yet judged as a turn."""

    whose: SessionIdentity
    fields: dict[str, Any]

    def digest(self) -> bytes:
        """Return what it has in common with lines that say the very same in the same session."""
        whose = self.whose
        said = [whose.project_id, whose.user_id, whose.session_id, self.fields]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).digest()

    def key(self, occurrence: int) -> str:
        """Return what makes it one and the same turn whenever the file is read again.

        Args:
            occurrence: Its number among the lines that say the same: two of them are two turns.
                No other line counts, so that one which is mended, added or taken away moves none.
        """
        return f"import:{self.digest().hex()}:{occurrence}"


def lines_of(path: Path) -> Iterator[Line]:
    """Yield the lines of a file, never holding more than one of them.

    Raises:
        OSError: It can't be read.
    """
    with path.open("rb") as file:
        number = end = 0
        while data := file.readline(LINE_BYTES + 1):
            number += 1
            end += len(data)
            is_too_long = len(data) > LINE_BYTES
            while is_too_long and not data.endswith(b"\n") and (rest := file.readline(LINE_BYTES)):
                end += len(rest)
                data = rest
            if is_too_long:
                yield Line(number=number, data=None, end=end)
                continue
            stripped = data.removeprefix(_BOM).strip() if number == 1 else data.strip()
            if stripped:
                yield Line(number=number, data=stripped, end=end)


def said_in(line: Line, *, project_id: str) -> Said:
    """Return what a line says.

    Raises:
        InvalidInputError: It says nothing that could be anybody's turn.
    """
    fields = _object(line)
    whose = accept_identity(
        {
            "project_id": project_id,
            **{name: fields.pop(name) for name in ("user_id", "session_id") if name in fields},
        }
    )
    return Said(whose=whose, fields=fields)


def _object(line: Line) -> dict[str, Any]:
    if line.data is None:
        raise _invalid(f"must be at most {LINE_BYTES} bytes")
    try:
        parsed = json.loads(line.data.decode("utf-8"))
    except UnicodeDecodeError:
        rule = "must be UTF-8"
    except (ValueError, RecursionError):
        rule = "must be JSON"
    else:
        if isinstance(parsed, dict):
            return cast("dict[str, Any]", parsed)
        rule = "must be a JSON object"
    raise _invalid(rule)


def undeclared(said: Said) -> bool:
    """Return whether a line has a field that no line may have."""
    return not said.fields.keys() <= TURN_FIELDS


def _invalid(rule: str) -> InvalidInputError:
    return InvalidInputError((Problem(field="line", rule=rule),))
