"""Writes `compose/.env.example` from the settings (`python -m tests.env_example`)."""

import inspect
import sys
from datetime import timedelta
from typing import Any, cast

from pydantic import BaseModel, SecretStr

from pipeline.settings import Settings
from tests.settings_page import notes_of

HEAD = """# Every setting with its default, commented out, to be copied to `compose/.env`.
# Only compose.yaml reads that file. A variable that is empty counts as not set.
# Written from `pipeline/settings.py`; a test compares. docs/settings.md says the same as a page.
"""
SET_BY_COMPOSE = (
    "AFTERTURN_MONGO__URI",
    "AFTERTURN_KAFKA__BOOTSTRAP_SERVERS",
    "AFTERTURN_HEALTH__HOST",
    "AFTERTURN_HEALTH__PORT",
    "AFTERTURN_HTTP__HOST",
    "AFTERTURN_HTTP__PORT",
    "AFTERTURN_HTTP__AUTH",
)


def env_example() -> str:
    """Return the file."""
    lines = [HEAD]
    for group, field in Settings.model_fields.items():
        if not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)):
            lines.append(f"# AFTERTURN_{group.upper()}={field.default}\n")
            continue
        lines.append(f"# --- {group}: {inspect.getdoc(field.annotation)}")
        notes = notes_of(field.annotation)
        for name, member in field.annotation.model_fields.items():
            if name in notes:
                lines.append(f"# {notes[name]}")
            variable = f"AFTERTURN_{group.upper()}__{name.upper()}"
            if variable in SET_BY_COMPOSE:
                lines.append("# (compose.yaml sets it)")
            lines.append(f"# {variable}={_value(member.get_default(call_default_factory=True))}")
        lines.append("")
    return "\n".join(lines)


def _value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}"
    if isinstance(value, dict):
        spans: dict[str, timedelta] = cast("dict[str, timedelta]", value)
        inner = ", ".join(f'"{name}": {_value(one)}' for name, one in spans.items())
        return "{" + inner + "}"
    return str(value)


if __name__ == "__main__":
    sys.stdout.write(env_example())
