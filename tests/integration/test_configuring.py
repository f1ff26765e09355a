"""`memory configure`, `apply` and `status`, as they are called, on a real database."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import typer
from pymongo import MongoClient
from pymongo.database import Database
from typer.testing import CliRunner

from cli.configuring import register
from pipeline.errors import ConfigurationError

BLOCK = """
memory:
  log_level: debug
  extraction:
    enabled: [semantic]
  metadata_partition_key:
    - {name: tier, type: string}
"""


class Commands:
    """The commands, on a database of the test's own."""

    def __init__(self, folder: Path, database: Database[dict[str, Any]]) -> None:
        self._folder = folder
        self._database = database
        self._application = typer.Typer()
        register(self._application)

    def file(self, text: str, name: str = "project-config.yaml") -> str:
        path = self._folder / name
        path.write_text(text)
        return str(path)

    def run(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        finished = CliRunner().invoke(self._application, ["memory", *arguments, "--json"])
        if isinstance(finished.exception, ConfigurationError):
            raise finished.exception
        assert finished.exit_code == code, finished.output
        return json.loads(finished.stdout.splitlines()[-1])

    def acts(self) -> list[tuple[str, str, str]]:
        """Return the audit trail."""
        found = self._database["operator_actions"].find(sort=[("at", 1)])
        return [(each["act"], each["project_id"], each["target"]) for each in found]

    def say(self, *arguments: str) -> str:
        return CliRunner().invoke(self._application, ["memory", *arguments]).stdout


@pytest.fixture
def commands(mongo_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Commands]:
    name = f"test_{uuid4().hex[:12]}"
    monkeypatch.setenv("AFTERTURN_MONGO__URI", mongo_uri)
    monkeypatch.setenv("AFTERTURN_MONGO__DATABASE", name)
    with MongoClient[dict[str, Any]](mongo_uri) as client:
        yield Commands(tmp_path, client[name])
        client.drop_database(name)


def project_of(commands: Commands, name: str = "default") -> dict[str, Any]:
    (shown,) = commands.run("status", "--project", name)["projects"]
    return shown


def test_storing_is_not_applying_and_the_drift_is_shown(commands: Commands) -> None:
    file = commands.file(BLOCK)

    stored = commands.run("configure", file)
    before = project_of(commands)
    preview = commands.run("apply", "--dry-run")
    unchanged = project_of(commands)
    commands.run("apply")
    after = project_of(commands)

    assert (stored["stored"], stored["applied"]) == (True, False)
    assert before["applied"] is None
    assert len(before["extracts"]) == 4
    assert {each["key"] for each in before["drift"]} == {
        "log_level",
        "extraction.enabled",
        "metadata_partition_key.tier.type",
    }
    assert preview["changes"] == before["drift"]
    assert unchanged == before
    assert after["drift"] == []
    assert after["extracts"] == ["semantic"]
    assert [each["key"] for each in after["without_effect"]] == ["log_level"]
    assert "AFTERTURN_LOG_LEVEL" in commands.say("status")
    assert commands.acts() == [
        ("project.configure", "default", "revision 1"),
        ("project.apply", "default", "revision 1"),
    ]


def test_a_file_that_is_refused_changes_nothing(commands: Commands) -> None:
    commands.run("configure", commands.file(BLOCK))
    before = project_of(commands)

    refused = commands.run("configure", commands.file(BLOCK.replace("string", "number")), code=1)
    with pytest.raises(ConfigurationError, match="no `memory:` key"):
        commands.run("configure", commands.file("agents: []\n"))

    assert refused["findings"][0]["key"] == "metadata_partition_key.tier"
    assert refused["findings"][0]["line"] == 7
    assert "nothing was changed" in refused["error"]
    assert project_of(commands) == before


def test_the_same_file_again_stores_nothing(commands: Commands) -> None:
    first = commands.run("configure", commands.file(BLOCK))
    again = commands.run("configure", commands.file(BLOCK))

    assert (again["stored"], again["revision"]) == (False, first["revision"])


def test_projects_are_configured_apart(commands: Commands) -> None:
    commands.run("configure", commands.file(BLOCK), "--project", "acme")
    commands.run("apply", "--project", "acme")

    assert project_of(commands, "acme")["extracts"] == ["semantic"]
    assert project_of(commands)["stored"] is None
    listed = commands.run("status")["projects"]
    assert [each["project"] for each in listed] == ["acme"]


def test_applying_nothing_and_naming_no_file_say_what_to_do(commands: Commands) -> None:
    with pytest.raises(ConfigurationError, match="memory configure FILE"):
        commands.run("apply")
    with pytest.raises(ConfigurationError, match="does not exist"):
        commands.run("configure", "/nowhere/project-config.yaml")
    with pytest.raises(ConfigurationError, match="--project"):
        commands.run("status", "--project", " ")
