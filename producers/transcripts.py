"""Reading a transcript: JSON lines, one turn each, however broken single lines are."""

import codecs
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
SAMPLE_BYTES: Final = 64 * 1024
"""How much of a file tells whether it is text."""

_WHOSE: Final = ("user_id", "session_id")
_ALLOWED: Final = ", ".join(
    (*_WHOSE, "role", "content", *sorted(TURN_FIELDS - {"role", "content"}))
)
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


def is_text(path: Path) -> bool:
    """Return whether a file may hold a transcript: it begins as UTF-8, or a line of it is good.

    Raises:
        OSError: It can't be read.
    """
    with path.open("rb") as file:
        sample = file.read(SAMPLE_BYTES)
    try:
        # Not final, since the sample may end within a character.
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        is_utf8 = False
    else:
        is_utf8 = b"\0" not in sample
    return is_utf8 or any(_is_object(line) for line in sample.splitlines())


def said_in(line: Line, *, project_id: str) -> Said:
    """Return what a line says.

    Raises:
        InvalidInputError: It says nothing that could be anybody's turn.
    """
    fields = _object(line)
    required = (*_WHOSE, "role", *(() if fields.get("tool_calls") else ("content",)))
    if missing := [name for name in required if name not in fields]:
        raise InvalidInputError(tuple(Problem(field=name, rule="is missing") for name in missing))
    if not fields.keys() <= {*_WHOSE, *TURN_FIELDS}:
        raise _invalid(f"has a field that no line may have; allowed are {_ALLOWED}")
    whose = accept_identity(
        {"project_id": project_id, **{name: fields.pop(name) for name in _WHOSE}}
    )
    return Said(whose=whose, fields=fields)


def _object(line: Line) -> dict[str, Any]:
    if line.data is None:
        raise _invalid(f"must be at most {LINE_BYTES} bytes")
    try:
        parsed = json.loads(line.data.decode("utf-8"), object_pairs_hook=_distinct)
    except UnicodeDecodeError:
        rule = "must be UTF-8"
    except _SameKeyError:
        rule = "must have no key twice"
    except (ValueError, RecursionError):
        rule = "must be JSON"
    else:
        if isinstance(parsed, dict):
            return cast("dict[str, Any]", parsed)
        rule = "must be a JSON object"
    raise _invalid(rule)


class _SameKeyError(Exception):
    """An object has a key twice; it never leaves this module."""


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _SameKeyError
    return made


def _is_object(data: bytes) -> bool:
    try:
        return isinstance(json.loads(data.decode("utf-8")), dict)
    except (ValueError, RecursionError):
        return False


def _invalid(rule: str) -> InvalidInputError:
    return InvalidInputError((Problem(field="line", rule=rule),))
