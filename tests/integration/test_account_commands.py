"""`./afterturn accounts`: what operators see, and that they see a secret once."""

import json
from typing import Any

import pytest

from cli.accounts import register
from pipeline.errors import AccountError
from tests.integration.commanding import Command, command_of, settings_of, told
from tests.integration.test_command_line import environment, result_of, run

__all__ = ["environment"]


@pytest.fixture
def settings(mongo_uri: str) -> dict[str, str]:
    return settings_of(mongo_uri)


@pytest.fixture
def command(settings: dict[str, str], tmp_path: Any) -> Command:
    """Return what runs a command in this process: an own one for each takes seconds."""
    return command_of(register, "accounts", settings, tmp_path)


def test_the_life_of_an_account(command: Command) -> None:
    made = told(command("create", "assistant", "--project", "alpha", "--json"))
    shown = command("create", "watcher", "--project", "alpha", "--role", "operator", "--org", "o")
    second = told(command("rotate", "assistant", "--json"))
    listed = command("list")
    both = told(command("list", "--json"))["accounts"]
    retired = told(command("retire", "assistant", "--json"))
    revoked = command("revoke", "assistant")
    left = told(command("list", "--json"))["accounts"]

    assert made.keys() == {*both[0], "client_secret"}
    assert (made["client_id"], made["role"], made["secrets"]) == (both[0]["client_id"], "agent", 1)
    assert second["client_secret"] != made["client_secret"]
    (line,) = [line for line in shown.stdout.splitlines() if "client secret" in line]
    secrets = [made["client_secret"], second["client_secret"], line.split()[-1]]
    assert all(secret.startswith("ats_") for secret in secrets)
    assert "shown this once" in shown.stdout
    assert "watcher: operator, project alpha, organization o, client id sa_" in listed.stdout
    assert [each["secrets"] for each in both] == [2, 1]
    assert (retired["secrets"], retired["revoked_at"]) == (1, None)
    assert "within 5 s" in revoked.stdout
    assert [each["revoked_at"] is None for each in left] == [False, True]
    for said in (listed.stdout, json.dumps([both, retired, left]), revoked.stdout):
        assert not any(secret in said for secret in secrets)


def test_what_can_not_be_done_is_refused_with_what_can(command: Command) -> None:
    told(command("create", "assistant", "--project", "alpha", "--json"))
    for words, said in (
        (("create", "assistant", "--project", "beta"), "another name"),
        (("rotate", "nobody"), "accounts list"),
        (("retire", "assistant"), "accounts rotate assistant"),
        (("revoke", "nobody"), "accounts list"),
    ):
        refused = command(*words)
        assert isinstance(refused.exception, AccountError)
        assert said in str(refused.exception)
        assert refused.stdout == ""
    assert command("create", "x", "--project", "p", "--role", "king").exit_code == 2
    assert command("create", "x").exit_code == 2


def test_a_refusal_is_one_line_and_exit_code_1(
    environment: dict[str, str], settings: dict[str, str]
) -> None:
    finished = run({**environment, **settings}, "accounts", "rotate", "nobody", "--json")

    assert finished.returncode == 1
    assert finished.stderr.startswith("afterturn: there is no account nobody: ")
    assert finished.stderr.count("\n") == 1
    assert result_of(finished).keys() == {"error"}
