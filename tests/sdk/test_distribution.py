"""The distribution: what it drags in, what it shows, and who may import it."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import afterturn

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "sdk" / "src" / "afterturn"
OURS = ("schemas", "pipeline", "producers", "consumers", "api", "cli", "compose")
SERVERS = ("pymongo", "motor", "aiokafka", "faststream", "fastapi", "instructor", "structlog")
VENDORS = ("openai", "anthropic")


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names


def test_importing_it_drags_in_no_server_and_no_vendor() -> None:
    """In a process that imports nothing else."""
    script = "import sys, afterturn; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    found = subprocess.run(  # noqa: S603 (our own module)
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(SOURCES.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(found.stdout.split())

    assert "afterturn" in loaded
    assert loaded & {*OURS, *SERVERS, *VENDORS, "uvicorn", "numpy", "mcp"} == set()


def test_it_imports_what_it_declares_and_nothing_of_ours() -> None:
    declared = {"afterturn", "agent_engine_sdk_memory", *sys.stdlib_module_names}
    of_extras = {"mcp_server.py": {"mcp", "anyio"}}
    offenders = {
        path.name: names
        for path in SOURCES.rglob("*.py")
        if (names := imported(path) - declared - of_extras.get(path.name, set()))
    }

    assert offenders == {}


@pytest.mark.parametrize("folder", OURS)
def test_nothing_of_the_server_imports_it(folder: str) -> None:
    offenders = [path for path in (ROOT / folder).rglob("*.py") if "afterturn" in imported(path)]

    assert offenders == []


def test_it_declares_one_dependency_and_its_types() -> None:
    project = tomllib.loads((ROOT / "sdk" / "pyproject.toml").read_text())["project"]

    assert project["name"] == "afterturn"
    assert [name.partition(">")[0] for name in project["dependencies"]] == [
        "agent-engine-sdk-memory"
    ]
    assert (SOURCES / "py.typed").exists()


def test_what_it_shows_is_sorted_and_there() -> None:
    assert sorted(afterturn.__all__) == afterturn.__all__
    assert all(hasattr(afterturn, name) for name in afterturn.__all__)
