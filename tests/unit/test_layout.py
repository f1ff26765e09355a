"""The rules of the folders: who may import whom, and whose names they bear."""

import ast
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from pipeline.crash_points import CrashPoint

ROOT = Path(__file__).parents[2]
OURS = ("schemas", "pipeline", "producers", "consumers", "api", "cli", "compose")
BROKER_LIBRARIES = {"aiokafka", "faststream"}
MAY_TOUCH_KAFKA = (
    *("consumers/", "compose/"),
    *("producers/half_open.py", "producers/publishing.py", "producers/topics.py"),
)


def sources(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def imported(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def test_no_installed_distribution_ships_one_of_our_top_level_names() -> None:
    taken = set(packages_distributions()) & set(OURS)

    assert taken == set()


def test_every_folder_of_python_is_checked_for_types() -> None:
    """One that is left out would pass with any type at all."""
    checked = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pyright"]["include"]
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")}

    assert folders
    assert folders <= set(checked)


def test_only_the_publishing_and_consuming_modules_call_kafka() -> None:
    offenders = [
        path.relative_to(ROOT).as_posix()
        for path in sources(*OURS)
        if {name.split(".")[0] for name in imported(path)} & BROKER_LIBRARIES
        and not path.relative_to(ROOT).as_posix().startswith(MAY_TOUCH_KAFKA)
    ]

    assert offenders == []


def test_the_embedded_database_is_never_imported() -> None:
    offenders = [
        path
        for path in sources(*OURS, "tests", "benchmarks")
        if any(name.lower().startswith("secantus") for name in imported(path))
    ]

    assert offenders == []


def test_the_environment_is_read_by_settings_and_composition_roots_only() -> None:
    offenders = [
        path.relative_to(ROOT).as_posix()
        for path in sources("schemas", "pipeline", "producers", "consumers")
        if "os.environ" in path.read_text() or "getenv" in path.read_text()
    ]

    assert offenders == []


@pytest.mark.parametrize("point", list(CrashPoint))
def test_every_crash_point_stands_in_the_code(point: CrashPoint) -> None:
    users = [
        path
        for path in sources("pipeline", "producers", "consumers")
        if f"reached(CrashPoint.{point.name})" in path.read_text()
    ]

    assert users, f"{point} is named and never reached"
