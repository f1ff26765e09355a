"""A process that holds services, for tests that end it roughly."""

import json
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, Protocol

import pytest

ROOT = Path(__file__).parents[2]


class Hold(Protocol):
    """Starts `tests.compose.holder`; the values are the process and what it says it started."""

    def __call__(self, *arguments: str) -> tuple[subprocess.Popen[bytes], dict[str, Any]]: ...


@pytest.fixture
def hold() -> Generator[Hold]:
    """Start holders, and end them with the test."""
    holders = list[subprocess.Popen[bytes]]()

    def start(*arguments: str) -> tuple[subprocess.Popen[bytes], dict[str, Any]]:
        holder = subprocess.Popen(  # noqa: S603 (a program of ours)
            (sys.executable, "-m", "tests.compose.holder", *arguments),
            cwd=ROOT,
            stdout=subprocess.PIPE,
        )
        holders.append(holder)
        assert holder.stdout is not None
        return holder, json.loads(holder.stdout.readline())

    yield start
    for holder in holders:
        holder.kill()
        holder.wait()
        if holder.stdout is not None:
            holder.stdout.close()
