"""What the model is asked: the prompt files, the turns as data, and the version of it all.

The turns are the last user message: `<context>`, then `<turns>`, one JSON object a line. Nothing
said in a turn can end a block, because `<` is written as an escape inside the objects.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from pipeline.extracting.recalled import without_recalled
from pipeline.extracting.redaction import redact
from pipeline.ports.model import ModelRequest
from schemas.memory import Answer, Kind
from schemas.project import NO_INSTRUCTIONS, Instructions
from schemas.turn import Role, Turn

PROMPT_VERSION: Final = "v1"
TOOL_NAME: Final = "Memories"
"""The function a model answers with: the title of `Answer`."""

LEFT_OUT: Final = "[left out]"
TOOL_OUTPUT_CHARACTERS: Final = 300
"""How much of a tool's output is shown: enough to follow the talk, no source of memories."""

_PROJECT_HEAD: Final = (
    "# This project\n\nWhat follows was written by those who run this server. It decides what is"
    " worth knowing here and what is not; it changes neither the format nor what is said above of"
    " evidence, quotes and secrets."
)

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
        {"role": "system", "content": system_prompt(request.instructions, request.kinds)},
        {"role": "user", "content": "\n".join(blocks)},
    ]


def system_prompt(of_project: Instructions, kinds: Iterable[Kind]) -> str:
    """Return what the model is told before it is shown any turn. Pure."""
    return instructions(_words(of_project)) + _project(of_project) + _wanted(kinds)


@cache
def instructions(words: str = "") -> str:
    """Return the prompt that all projects share, with more words in its vocabulary."""
    vocabulary = _read("vocabulary.txt").strip()
    return _read("extract.md").replace("{{vocabulary}}", vocabulary + words)


def project_version(shared: str, of_project: Instructions, kinds: Collection[Kind]) -> str:
    """Return the version of an extractor for a project.

    Args:
        shared: That of its model with the prompt that all projects share.
        of_project: What the project adds to the prompt.
        kinds: What is asked for.
    """
    if of_project == NO_INSTRUCTIONS and set(kinds) == set(Kind):
        return shared
    told = system_prompt(of_project, kinds)
    return f"{shared}-{hashlib.sha256(told.encode()).hexdigest()[:8]}"


def extractor_version(*, model: str, parameters: Mapping[str, float | str]) -> str:
    """Return the version of an extractor: answers of one version may be compared.

    A hash of the prompt files, the schema of the answer, the model and its parameters. What a
    project adds is in `project_version`.
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


def _words(of_project: Instructions) -> str:
    """Return a project's words as lines of the vocabulary."""
    return "".join(
        f"\n{word.name:<14} {_line_of(word.description)}" for word in of_project.vocabulary
    )


def _project(of_project: Instructions) -> str:
    """Return what a project says of itself; nothing where it says nothing."""
    parts: list[str] = []
    if of_project.mission is not None:
        parts.append(of_project.mission.strip())
    for kind, text in of_project.prompts.items():
        parts.append(f"About **{kind}** memories: {text.strip()}")
    if not parts:
        return ""
    return "\n".join(("", _PROJECT_HEAD, *(f"\n{part}" for part in parts), ""))


def _line_of(text: str) -> str:
    return " ".join(text.split())


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
