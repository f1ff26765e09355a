"""`compose.yaml` is one that Docker takes, and runs every process there is, watched and set up."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from cli.system import Role
from consumers.deadlines import STOP_CAP
from pipeline.settings import Settings
from tests.env_example import env_example

ROOT = Path(__file__).parents[2]
CONDITIONS = {"service_started", "service_healthy", "service_completed_successfully"}
FILE = ROOT / "compose" / "compose.yaml"


def test_the_docker_client_takes_it(tmp_path: Path) -> None:
    """`stack config` checks the file against the compose schema and needs no engine.

    It knows `depends_on` without conditions only, which are looked at here.
    """
    docker = shutil.which("docker")
    if docker is None:
        assert "CI" not in os.environ, "CI needs the Docker client"
        pytest.skip("no Docker client")
    document = yaml.safe_load(FILE.read_text())
    for service in document["services"].values():
        needs = service.pop("depends_on", {})
        assert {need["condition"] for need in needs.values()} <= CONDITIONS
        service["depends_on"] = list(needs)
    (tmp_path / "compose.yaml").write_text(json.dumps(document))
    (tmp_path / ".env").write_text(env_example())
    finished = subprocess.run(  # noqa: S603 (the client's own name)
        [docker, "stack", "config", "-c", "compose.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert finished.returncode == 0, finished.stderr
    assert set(yaml.safe_load(finished.stdout)["services"]) == set(services())


def services() -> dict[str, Any]:
    return yaml.safe_load(FILE.read_text())["services"]


def test_every_process_runs_after_the_setup_and_is_watched() -> None:
    found = services()
    commands = [service.get("command", []) for service in found.values()]
    roles = {command[1] for command in commands if command[:1] == ["run"]}

    assert roles == set(get_args(Role))
    for name, service in found.items():
        if name in roles:
            assert service["depends_on"]["setup"]["condition"].endswith("successfully")
            assert "/live" in str(service["healthcheck"]["test"])
            assert int(service["stop_grace_period"].removesuffix("s")) > STOP_CAP.total_seconds()


def test_whoever_reaches_its_memory_server_must_sign_in() -> None:
    """In a container it is bound to every address, which is refused without."""
    service = services()["http"]

    assert service["environment"]["AFTERTURN_HTTP__AUTH"] == "on"
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def test_its_variables_are_settings() -> None:
    """A name that is none would be refused at start."""
    named = {name for service in services().values() for name in service.get("environment", {})}
    ours = {name for name in named if name.startswith("AFTERTURN_")}

    assert ours
    for name in ours:
        group, _, field = name.removeprefix("AFTERTURN_").lower().partition("__")
        annotation: Any = Settings.model_fields[group].annotation
        assert field in annotation.model_fields


def test_the_example_of_an_environment_is_made_from_the_settings() -> None:
    assert (ROOT / "compose" / ".env.example").read_text() == env_example()
