"""What the model is asked: the prompt files, the turns as data, and the version of it all.

The turns are the last user message: `<context>`, then `<turns>`, one JSON object a line. Nothing
said in a turn can end a block, because `<` is written as an escape inside the objects.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from pipeline.ports import ModelRequest
from pipeline.recalled import without_recalled
from pipeline.redaction import redact
from schemas.memory import Answer, Kind
from schemas.turn import Role, Turn

PROMPT_VERSION: Final = "v1"
TOOL_NAME: Final = "Memories"
"""The function a model answers with: the title of `Answer`."""

LEFT_OUT: Final = "[left out]"
TOOL_OUTPUT_CHARACTERS: Final = 300
"""How much of a tool's output is shown: enough to follow the talk, no source of memories."""

_FILES: Final = Path(__file__).parent / "prompts" / PROMPT_VERSION
_ESCAPES: Final = str.maketrans(
    {"<": "\\u003c", "\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)
"""What could end a block, and what some readers take for the end of a line."""


def messages(request: ModelRequest) -> list[dict[str, str]]:
    """Return the chat messages that ask for the memories of a part. Pure."""
    blocks = (
        _block("context", request.context),
        _block("turns", request.turns),
    )
    return [
        {"role": "system", "content": instructions() + _wanted(request.kinds)},
        {"role": "user", "content": "\n".join(blocks)},
    ]


@cache
def instructions() -> str:
    """Return the system prompt, vocabulary included."""
    return _read("extract.md").replace("{{vocabulary}}", _read("vocabulary.txt").strip())


def extractor_version(*, model: str, parameters: Mapping[str, float | str]) -> str:
    """Return the version of an extractor: answers of one version may be compared.

    A hash of the prompt files, the schema of the answer, the model and its parameters.
    """
    ingredients = {
        "prompt": instructions(),
        "schema": Answer.model_json_schema(),
        "model": model,
        "parameters": dict(parameters),
    }
    canonical = json.dumps(ingredients, sort_keys=True, ensure_ascii=True)
    return f"{PROMPT_VERSION}-{hashlib.sha256(canonical.encode()).hexdigest()[:16]}"


def _read(name: str) -> str:
    return (_FILES / name).read_text(encoding="utf-8")


def _wanted(kinds: Iterable[Kind]) -> str:
    wanted = [str(kind) for kind in Kind if kind in set(kinds)]
    if len(wanted) == len(Kind):
        return ""
    return f"\n# Wanted now\n\nOnly: {', '.join(wanted) or 'none'}. Leave the other lists empty.\n"


def _block(name: str, turns: Iterable[Turn]) -> str:
    lines = [_line(turn) for turn in turns]
    return "\n".join((f"<{name}>", *lines, f"</{name}>"))


def _line(turn: Turn) -> str:
    shown = {
        "seq": turn.seq,
        "role": str(turn.role),
        "at": turn.effective_at.isoformat(timespec="seconds"),
        "content": _content(turn),
    }
    return json.dumps(shown, ensure_ascii=False).translate(_ESCAPES)


def _content(turn: Turn) -> str:
    """Return what the model sees of a turn: secrets and recalled memory are out."""
    if turn.role is Role.SYSTEM:
        return LEFT_OUT
    text, _ = redact(without_recalled(turn.content))
    if turn.role is Role.TOOL and len(text) > TOOL_OUTPUT_CHARACTERS:
        return f"{text[:TOOL_OUTPUT_CHARACTERS]} {LEFT_OUT}"
    if turn.tool_calls:
        names = ", ".join(call.name for call in turn.tool_calls)
        return f"{text}\n[called {names}]".lstrip()
    return text
