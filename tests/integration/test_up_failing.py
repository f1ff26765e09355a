"""`up` that can't go on says so, and leaves nothing behind."""

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.integration.test_command_line import (
    PATIENCE_SECONDS,
    command,
    environment,
    processes_below,
    run,
    wait_until_none_is_left,
)

__all__ = ["environment"]


@pytest.mark.parametrize(("folder", "name"), [("kafka", "Kafka"), ("mongo", "MongoDB")])
def test_up_ends_with_the_service_that_died_and_says_which(
    folder: str, name: str, environment: dict[str, str], tmp_path: Path
) -> None:
    """Nobody else starts it again: without this `up` would run on, and only lag would tell."""
    place = tmp_path / "up"
    with subprocess.Popen(  # noqa: S603 (our own command line)
        command("up", "--data-dir", place, "--json"),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline()

            for process in processes_below(place / folder):
                os.kill(process, signal.SIGKILL)
            _, told = running.communicate(timeout=PATIENCE_SECONDS)
        finally:
            running.kill()

    assert running.returncode == 1
    assert "Traceback" not in told
    assert "None" not in told
    assert "What was recorded is safe" in told
    assert f"afterturn: embedded {name}" in told
    wait_until_none_is_left(place)


def test_up_does_not_say_that_it_is_up_before_its_health_is_served(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """A program that reads the one line of `--json` would take it for up."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        place = tmp_path / "up"
        finished = run(
            environment | {"AFTERTURN_HEALTH__PORT": str(port)}, "up", "--data-dir", place, "--json"
        )

    assert finished.returncode == 1
    [told] = finished.stdout.splitlines()
    assert "AFTERTURN_HEALTH__PORT" in json.loads(told)["error"]
    wait_until_none_is_left(place)
