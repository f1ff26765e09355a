"""Kafka's libraries are imported where Kafka is spoken to, and nowhere else."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("schemas", "pipeline", "producers", "consumers", "api", "cli", "sdk", "compose")
LIBRARIES = {"aiokafka", "faststream", "kafka", "confluent_kafka"}
SPEAKERS = {"producers/publishing.py", "producers/topics.py", "compose/answers.py"}


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
