"""Every write of a protocol is followed by a named crash point, so that tests can kill it there."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.unit.test_layout import ROOT

PROTOCOLS = (
    "pipeline/forgetting/blanking.py",
    "pipeline/cutting.py",
    "pipeline/failing/dead_letters.py",
    "pipeline/embedding/cleaning.py",
    "pipeline/embedding/filling.py",
    "pipeline/embedding/step.py",
    "pipeline/extracting/step.py",
    "pipeline/failing/failed_attempts.py",
    "pipeline/extracting/fates.py",
    "pipeline/forgetting/records.py",
    "pipeline/jobs/running.py",
    "pipeline/letters/desk.py",
    "pipeline/folding/refolding.py",
    "pipeline/replaying/running.py",
    "pipeline/replaying/succession.py",
    "pipeline/extracting/settling.py",
    "producers/announcing.py",
    "producers/recording.py",
    "producers/waker.py",
)
WRITES = {
    "activate",
    "advance",
    "bar",
    "blank",
    "bury",
    "change",
    "claim",
    "compare",
    "clear_open",
    "drop_answers",
    "drop_letters",
    "enlarge",
    "hold",
    "ensure",
    "insert",
    "keep_only",
    "mark_announced",
    "mark_closing",
    "mark_dirty",
    "mark_sent",
    "note_gap",
    "publish",
    "put",
    "redrive",
    "remove",
    "reopen",
    "schedule",
    "settle",
    "split",
    "store",
    "store_reply",
    "swap",
    "take_over",
    "wake_later",
    "write",
}
"""The methods of our ports that change something."""
PORTS = {
    "_assertions",
    "_extractions",
    "_jobs",
    "_ledger",
    "_letters",
    "_publisher",
    "_records",
    "_sessions",
    "_snapshots",
    "_tombstones",
    "_turns",
    "_vectors",
}
NEAR = 4
"""The point stands within so many statements after the write, past what reads its result."""


def writes_of(statement: ast.stmt) -> Iterator[ast.Call]:
    """Yield the awaited writes of a statement, not those of blocks inside it."""
    blocks = [
        inner
        for name in ("body", "orelse", "finalbody", "handlers")
        for inner in getattr(statement, name, [])
    ]
    inside = {id(node) for block in blocks for node in ast.walk(block)}
    for node in ast.walk(statement):
        if id(node) in inside or not isinstance(node, ast.Await):
            continue
        call = node.value
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr in WRITES
            and isinstance(call.func.value, ast.Attribute)
            and call.func.value.attr in PORTS
        ):
            yield call


def blocks_of(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block: object = getattr(node, name, None)
            if isinstance(block, list):
                yield [each for each in cast("list[Any]", block) if isinstance(each, ast.stmt)]


def reaches(statement: ast.stmt) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "reached"
        for node in ast.walk(statement)
    )


def bare_writes(source: str) -> list[str]:
    """Return the writes that no crash point follows, as `line: method`."""
    found: list[str] = []
    tree = ast.parse(source)
    handled = {
        id(statement): after
        for node in ast.walk(tree)
        if isinstance(node, ast.Try | ast.AsyncWith)
        for statement in node.body
        for after in [after_of(tree, node)]
    }
    for block in blocks_of(tree):
        for place, statement in enumerate(block):
            for call in writes_of(statement):
                after = [*block[place + 1 :], *handled.get(id(statement), [])][:NEAR]
                if not any(reaches(each) for each in after):
                    assert isinstance(call.func, ast.Attribute)
                    found.append(f"{call.lineno}: {call.func.attr}")
    return found


def after_of(tree: ast.AST, node: ast.stmt) -> list[ast.stmt]:
    """Return what follows a statement in its block."""
    for block in blocks_of(tree):
        if node in block:
            return block[block.index(node) + 1 :]
    return []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_crash_point_follows_every_write_of_a_protocol(protocol: str) -> None:
    assert bare_writes((ROOT / protocol).read_text()) == []


def test_a_write_without_a_point_is_found() -> None:
    source = """
async def step(self):
    await self._turns.insert(turn)
    return turn
"""
    assert bare_writes(source) == ["3: insert"]


def test_all_protocols_are_looked_at() -> None:
    users = [
        path.relative_to(ROOT).as_posix()
        for folder in ("pipeline", "producers")
        for path in sorted(Path(ROOT / folder).rglob("*.py"))
        if "reached(CrashPoint." in path.read_text()
    ]

    assert set(users) == set(PROTOCOLS)
