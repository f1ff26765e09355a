"""Writes `docs/settings.md` from the settings (`python -m tests.settings_page`)."""

import ast
import inspect
import sys
from datetime import timedelta
from typing import Any, cast

from pydantic import BaseModel, SecretStr

from pipeline.settings import Settings

HEAD = """# Settings

Read from the environment, once, when a process starts. Written from `pipeline/settings.py`; a test
compares. Spans are seconds or ISO 8601 (`PT2M`). A table (`AFTERTURN_RETRY__DELAYS`) is JSON. A
variable that is empty counts as not set.
"""


def page() -> str:
    """Return the page."""
    lines = [HEAD]
    for group, field in Settings.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            lines.append(f"## {group}\n\n{inspect.getdoc(field.annotation)}\n")
            lines.append("| variable | default | meaning |\n|---|---|---|")
            notes = notes_of(field.annotation)
            for name, member in field.annotation.model_fields.items():
                variable = f"AFTERTURN_{group.upper()}__{name.upper()}"
                default = _shown(member.get_default(call_default_factory=True))
                lines.append(f"| `{variable}` | {default} | {notes.get(name, '')} |")
        else:
            lines.append(f"## {group}\n\n`AFTERTURN_{group.upper()}`, default `{field.default}`.")
        lines.append("")
    return "\n".join(lines)


def notes_of(model: type[BaseModel]) -> dict[str, str]:
    """Return what stands in a string under each field."""
    body = ast.parse(inspect.getsource(model)).body[0]
    assert isinstance(body, ast.ClassDef)
    notes: dict[str, str] = {}
    name = ""
    for statement in body.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name = statement.target.id
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and name:
            notes[name] = " ".join(str(statement.value.value).split())
            name = ""
    return notes


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, SecretStr):
        return f"`{value.get_secret_value()}`"
    if isinstance(value, timedelta):
        return f"`{value.total_seconds():g}`"
    if isinstance(value, dict):
        spans: dict[str, Any] = cast("dict[str, Any]", value)
        inner = ", ".join(f"{name}: {_shown(one)}" for name, one in spans.items())
        return inner.replace("`", "")
    return f"`{value}`"


if __name__ == "__main__":
    sys.stdout.write(page())
