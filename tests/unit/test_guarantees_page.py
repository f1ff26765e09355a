"""What the page of guarantees names as shown is there to show it."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[^`]*)`", PAGE)))
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE[PAGE.index("## Fault → promise → test") :].splitlines()
    if line.startswith("|") and not line.startswith(("| fault |", "|---"))
]


def functions(path: Path) -> set[str]:
    """Return the names of a module's test functions."""
    tree = ast.parse(path.read_text())
    return {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    }


def promises(text: str) -> set[str]:
    """Return the promises that a cell names; a range names all between its ends."""
    found = set(re.findall(r"\bI\d+\b", text))
    for first, last in re.findall(r"\bI(\d+)–I(\d+)\b", text):
        found |= {f"I{number}" for number in range(int(first), int(last) + 1)}
    return found


@pytest.mark.parametrize("name", NAMED)
def test_a_test_that_is_named_is_there(name: str) -> None:
    file, _, function = name.partition("::")

    assert (ROOT / file).is_file()
    assert not function or function in functions(ROOT / file)


def test_every_fault_has_a_promise_and_a_test() -> None:
    assert len(ROWS) > 50
    assert [row for row in ROWS if len(row) != 3 or not row[1] or "`tests/" not in row[2]] == []


def test_a_test_is_named_by_its_whole_path() -> None:
    """A shorter name would not be looked for."""
    shortened = re.findall(r"`([^`/]*test_\w+[^`]*|[^`]*…[^`]*)`", PAGE)

    assert shortened == []


def test_every_promise_has_a_fault_and_no_other_is_named() -> None:
    made = set(re.findall(r"^\| (I\d+) \|", PAGE, re.MULTILINE))

    assert len(made) > 8
    assert set().union(*(promises(row[1]) for row in ROWS)) == made
