"""What a command refuses, or cannot do: in a line, and without a trace of the machine inside."""

import json
from pathlib import Path

import pytest

from tests.integration.test_command_line import (
    environment,
    result_of,
    run,
    talk,
)

__all__ = ["environment", "talk"]


@pytest.mark.parametrize("name", ["audit", "status", "doctor", "topics", "indexes", "import"])
def test_without_servers_a_command_says_which_and_what_to_do(
    name: str, environment: dict[str, str], talk: Path, tmp_path: Path
) -> None:
    nowhere = {
        "AFTERTURN_MONGO__URI": "mongodb://mara:hunter2@127.0.0.1:1",
        "AFTERTURN_MONGO__TIMEOUT": "1",
        "AFTERTURN_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "AFTERTURN_KAFKA__REQUEST_TIMEOUT": "2",
    }
    more = {"import": [talk], "topics": ["apply"], "indexes": ["apply"]}.get(name, [])

    finished = run(environment | nowhere, name, *more, "--data-dir", tmp_path, "--json")

    assert finished.returncode == 1
    assert "Traceback" not in finished.stderr
    assert "Unable connect" not in finished.stderr
    result = result_of(finished)
    assert result["error"]
    for said in (finished.stderr, json.dumps(result)):
        assert ("AFTERTURN_KAFKA" if name == "topics" else "AFTERTURN_MONGO") in said
        assert "127.0.0.1:1" in said
        assert "hunter2" not in said


def test_the_doctor_names_deadlines_that_contradict_each_other(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """A process with these would not start; the doctor says why before anybody tries."""
    nowhere = {
        "AFTERTURN_MONGO__URI": "mongodb://127.0.0.1:1",
        "AFTERTURN_MONGO__TIMEOUT": "1",
        "AFTERTURN_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "AFTERTURN_KAFKA__REQUEST_TIMEOUT": "2",
        "AFTERTURN_LLM__TIMEOUT": "900",
    }

    finished = run(environment | nowhere, "doctor", "--data-dir", tmp_path, "--json")

    [found] = [each for each in result_of(finished)["findings"] if each["name"] == "Deadlines"]
    assert not found["well"]
    assert "AFTERTURN_LLM__TIMEOUT" in found["detail"]


@pytest.mark.parametrize("name", ["import", "demo"])
def test_what_can_be_no_transcript_is_refused_with_one_line(
    name: str, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "empty").write_text("\n \n")
    option = ["--file"] if name == "demo" else []

    finished = run(
        environment, name, *option, tmp_path / "empty", "--data-dir", tmp_path / "d", "--json"
    )

    assert finished.returncode == 1
    assert "empty has no lines" in result_of(finished)["error"]
    assert finished.stderr == f"afterturn: {result_of(finished)['error']}\n"
    assert not (tmp_path / "d").exists()


def test_a_command_that_is_typed_wrong_fails_with_an_object_too(
    environment: dict[str, str],
) -> None:
    for arguments in (("import", "--json"), ("imprt", "--json")):
        finished = run(environment, *arguments)

        assert finished.returncode == 2
        assert "--help` tells" in result_of(finished)["error"]
        assert finished.stderr == f"afterturn: {result_of(finished)['error']}\n"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("AFTERTURN_SNAPSHOT__STALE", "soon"),
        ("AFTERTURN_RETRY__DELAYS", '{"5s": 1}'),
        ("AFTERTURN_KAFKA__HEARTBEAT_INTERVAL", "8e13"),
        ("AFTERTURN_MONGO__DATABASE", "a b"),
        ("AFTERTURN_MONGO__URI", "nonsense"),
        ("AFTERTURN_MONGO__URI", "mongodb://127.0.0.1:port"),
        ("AFTERTURN_MONGO__URI", "mongodb://127.0.0.1:99999"),
        ("AFTERTURN_MONGO__URI", "mongodb://ana:pa:ss@w/rd@127.0.0.1"),
        ("AFTERTURN_MONGO__URI", "mongodb://ana:p%ss@127.0.0.1"),
        ("AFTERTURN_MONGO__URI", "mongodb://[::1"),
        ("AFTERTURN_LLM", "{'provider': 'openai'}"),
        ("AFTERTURN_LLM", '["sk-planted"]'),
        ("AFTERTURN_RETRY__DELAYS", "{5s: 1}"),
    ],
)
def test_a_setting_that_cannot_work_is_named_and_never_shown(
    variable: str, value: str, environment: dict[str, str], tmp_path: Path
) -> None:
    finished = run(environment | {variable: value}, "status", "--data-dir", tmp_path)

    assert finished.returncode == 1
    assert "Traceback" not in finished.stderr
    assert (variable.rpartition("__")[0] or variable) in finished.stderr
    assert finished.stderr.count("\n") == 1
    assert value not in finished.stderr
    assert "ss@w" not in finished.stderr


def test_a_file_that_is_no_list_of_addresses_is_as_none(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "services.json").write_text("[1]")
    nowhere = {"AFTERTURN_MONGO__URI": "mongodb://127.0.0.1:1", "AFTERTURN_MONGO__TIMEOUT": "1"}

    finished = run(environment | nowhere, "status", "--data-dir", tmp_path)

    assert finished.returncode == 1
    assert "Traceback" not in finished.stderr
