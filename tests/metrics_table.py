"""Writes the table of metrics of `docs/operations.md` (`python -m tests.metrics_table`)."""

import sys
from collections.abc import Sequence
from typing import Final

from pipeline.metrics import METRICS
from schemas.failure import FailureClass

_CLASSES: Final = tuple(each.value for each in FailureClass)


def table() -> str:
    """Return the table."""
    lines = ["| metric | kind | labels | what |", "|---|---|---|---|"]
    for metric in METRICS:
        labels = "; ".join(f"`{name}`: {_shown(values)}" for name, values in metric.labels.items())
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.meaning} |")
    return "\n".join(lines)


def _shown(values: Sequence[str]) -> str:
    """Return values in a line; the classes of failure have a table of their own."""
    own = ", ".join(value for value in values if value not in _CLASSES)
    if set(_CLASSES) <= set(values):
        return f"{own}, a class of failure" if own else "a class of failure"
    return own


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
