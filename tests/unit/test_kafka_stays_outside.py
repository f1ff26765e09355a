"""Kafka is spoken to in few places and nowhere else, and each call ends by its own time."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("schemas", "pipeline", "producers", "consumers", "api", "cli", "sdk", "compose")
LIBRARIES = {"aiokafka", "faststream", "kafka", "confluent_kafka"}
SPEAKERS = {
    "producers/half_open.py",
    "producers/publishing.py",
    "producers/topics.py",
    "compose/answers.py",
}


def importers() -> Iterator[str]:
    """Yield the modules of ours that import one of the libraries, wherever in them."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if LIBRARIES & set(imported(path)):
                yield path.relative_to(ROOT).as_posix()


def imported(path: Path) -> Iterator[str]:
    """Yield the top-level names that a module imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


def test_only_those_who_speak_to_kafka_import_its_libraries() -> None:
    """The pipeline knows messages as values; consumers and two producers know the broker."""
    found = set(importers())

    assert {each for each in found if not each.startswith("consumers/")} == SPEAKERS
    assert "consumers/apps.py" in found


# --- every call to Kafka is under a timeout ------------------------------------------------------

HANDLES = {"admin", "broker", "client", "consumer", "producer", "super"}
"""What an object that speaks to Kafka is called, wherever there is one."""
READS = ("consumers/reading.py", "getone")
"""The one call that may wait for ever: the loop that reads waits for the next record."""
STARTS = ("consumers/reading.py", "start")
"""Called by FastStream, within the time that `ConsumerApp` gives a start."""


class Calls(ast.NodeVisitor):
    """Finds awaited calls on Kafka's handles, and calls of functions of the module itself."""

    def __init__(self) -> None:
        self.function = ""
        self.is_bounded = False
        self.found: dict[str, list[bool]] = {}
        """By function: whether each of its calls to Kafka is in a timeout of its own."""
        self.callers: dict[str, list[tuple[str, bool]]] = {}
        """By called function: who calls it, and whether in a timeout."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._enter(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._enter(node)

    def visit_AsyncWith(self, node: ast.AsyncWith) -> None:
        before = self.is_bounded
        self.is_bounded |= any(is_timeout(item.context_expr) for item in node.items)
        self.generic_visit(node)
        self.is_bounded = before

    def visit_Await(self, node: ast.Await) -> None:
        if isinstance(node.value, ast.Call) and is_kafka(node.value.func):
            self.found.setdefault(self.function, []).append(self.is_bounded)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        called = name_of(node.func)
        self.callers.setdefault(called, []).append((self.function, self.is_bounded))
        self.generic_visit(node)

    def _enter(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        before = (self.function, self.is_bounded)
        self.function, self.is_bounded = node.name, False
        self.generic_visit(node)
        self.function, self.is_bounded = before

    def unbounded(self) -> set[str]:
        """Return the functions that may wait for Kafka without an end, called as they are."""
        return {
            function
            for function, bounds in self.found.items()
            if not all(bounds) and not self._is_called_in_time(function, ())
        }

    def _is_called_in_time(self, function: str, above: tuple[str, ...]) -> bool:
        callers = self.callers.get(function, [])
        return bool(callers) and all(
            is_bounded
            or (caller not in above and self._is_called_in_time(caller, (*above, function)))
            for caller, is_bounded in callers
        )


def name_of(node: ast.expr) -> str:
    """Return the last name of `a.b.c`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def is_timeout(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).startswith("asyncio.timeout")


def is_kafka(node: ast.expr) -> bool:
    """Whether a method of something that speaks to Kafka is called."""
    if not isinstance(node, ast.Attribute):
        return False
    names = {each.id for each in ast.walk(node.value) if isinstance(each, ast.Name)}
    names |= {each.attr for each in ast.walk(node.value) if isinstance(each, ast.Attribute)}
    return bool({name.lstrip("_") for name in names} & HANDLES)


def calls_of(source: str) -> Calls:
    """Return the calls of a module."""
    calls = Calls()
    calls.visit(ast.parse(source))
    return calls


def test_every_call_to_kafka_ends_by_its_own_time() -> None:
    """Or by that of each function that makes it: Kafka may be a black hole at any moment."""
    speakers = [each for each in importers() if not each.startswith("compose/")]
    calls = {each: calls_of((ROOT / each).read_text()) for each in speakers}

    unbounded = {(path, each) for path, found in calls.items() for each in found.unbounded()}
    assert unbounded == {READS, STARTS}
    # What is found at all, so that the check can't go blind.
    assert {"_connect", "_close", "_deliver"} <= calls["producers/publishing.py"].found.keys()
    assert {"group_lag", "_lag"} <= calls["consumers/lag.py"].found.keys()
    assert "_commit" in calls["consumers/commits.py"].found
    assert {"_found", "_create", "_configs"} <= calls["producers/topics.py"].found.keys()


@pytest.mark.parametrize(
    ("source", "unbounded"),
    [
        ("async def f():\n await producer.send(1)", {"f"}),
        ("async def f():\n async with asyncio.timeout(1):\n  await producer.send(1)", set[str]()),
        ("async def f():\n async with other(1):\n  await self._consumer.commit()", {"f"}),
        ("async def g():\n await admin.start()\nasync def f():\n await g()", {"g"}),
        (
            "async def g():\n await admin.start()\n"
            "async def f():\n async with asyncio.timeout(1):\n  await g()",
            set[str](),
        ),
        (
            "async def g():\n await admin.start()\nasync def h():\n await g()\n"
            "async def f():\n async with asyncio.timeout(1):\n  await g()\n",
            {"g"},
        ),
        ("async def f():\n await f()\n await client.close()", {"f"}),
    ],
)
def test_the_check_sees_what_has_no_timeout(source: str, unbounded: set[str]) -> None:
    assert calls_of(source).unbounded() == unbounded
