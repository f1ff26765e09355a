"""The commands as people run them: as processes, with what they print."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests import scripted_endpoint as scripted
from tests.scripted_endpoint import ScriptedEndpoint

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 240
BELOW_A_LEASE_SECONDS = 60
LONG = 150
"""So often repeated, a talk takes seconds to record, and can be cut off in the middle."""
TALK = [
    ("a", "mara", "user", "My name is Mara and I live in Lisbon."),
    ("a", "mara", "assistant", "Nice to meet you, Mara!"),
    ("a", "mara", "user", "I work as a nurse. I love green tea."),
    ("b", "mara", "user", "I moved to Porto last month."),
]


@pytest.fixture
def environment() -> dict[str, str]:
    """The environment without any setting of ours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AFTERTURN_")}
    return kept | {"PYTHONPATH": str(ROOT), "AFTERTURN_HTTP__PORT": "0"}


def written(
    path: Path, talk: list[tuple[str, str, str, str]], *, bad: tuple[str, ...] = ("no json",)
) -> Path:
    lines = [
        json.dumps({"session_id": session, "user_id": user, "role": role, "content": content})
        for session, user, role, content in talk
    ]
    path.write_text("\n".join([*lines, *bad]) + "\n")
    return path


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    return written(tmp_path / "talk.jsonl", TALK)


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "cli", *map(str, arguments)]


def run(environment: dict[str, str], *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 (our own command line)
        command(*arguments),
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def result_of(finished: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    return json.loads(finished.stdout.splitlines()[-1])


def processes_below(place: Path) -> list[int]:
    """Return the processes whose command line names a place."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(place).encode() in line:
                found.append(int(entry.name))
    return found


def wait_until_none_is_left(place: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (left := processes_below(place)) and time.monotonic() < deadline:
        os.sched_yield()
    assert left == []


def test_a_demo_of_ones_own_ends_by_itself_and_says_who_answered(
    environment: dict[str, str], talk: Path, tmp_path: Path
) -> None:
    nobody = {"session_id": "a", "user_id": " ", "role": "user", "content": "Whose question?"}
    refused = {"session_id": "a", "user_id": "mara", "role": "usr", "content": "Is it refused?"}
    with talk.open("a") as file:
        file.write(f"{json.dumps(nobody)}\n{json.dumps(refused)}\n")

    finished = run(environment, "demo", "--file", talk, "--data-dir", tmp_path / "d", "--json")

    assert finished.returncode == 1, finished.stderr
    result = result_of(finished)
    assert result["error"] == "3 lines refused"
    assert finished.stdout.count("\n") == 1
    assert {"snapshots", "outcomes", "reinforced", "model_calls", "seconds"} <= result.keys()
    assert (result["turns"], result["letters"]) == (len(TALK), 0)
    assert result["closed"] >= 1
    assert "offline" in result["model"]
    assert "no language model" in finished.stderr
    assert "line 5 must be JSON" in finished.stderr
    assert "question" not in finished.stderr
    assert "refused?" not in finished.stderr
    assert "Context for 'I moved to Porto last month.'" in finished.stderr
    (place,) = (tmp_path / "d").glob("demo-*")
    assert str(place) in finished.stderr
    assert place.stat().st_mode & 0o777 == 0o700
    assert (place / "transcript.jsonl").stat().st_mode & 0o777 == 0o600
    wait_until_none_is_left(tmp_path)


@pytest.mark.parametrize("signalled", [signal.SIGINT, signal.SIGKILL])
def test_a_demo_that_was_cut_off_leaves_no_process_and_goes_on_with_every_turn(
    signalled: signal.Signals, environment: dict[str, str], tmp_path: Path
) -> None:
    long_talk = TALK * LONG
    talk = written(tmp_path / "talk.jsonl", long_talk)
    arguments = ("demo", "--file", talk, "--data-dir", tmp_path / "d", "--json")
    with subprocess.Popen(  # noqa: S603 (our own command line)
        command(*arguments), env=environment, stderr=subprocess.PIPE, text=True
    ) as first:
        assert first.stderr is not None
        for line in first.stderr:
            if "turn " in line:
                first.send_signal(signalled)
                break
        rest = first.stderr.read()
    assert first.returncode == (130 if signalled is signal.SIGINT else -signal.SIGKILL)
    assert ("Interrupted." in rest) == (signalled is signal.SIGINT)
    wait_until_none_is_left(tmp_path)

    finished = run(environment, *arguments)

    assert result_of(finished)["error"] == "1 line refused"
    assert "goes on where it stopped" in finished.stderr
    assert result_of(finished)["turns"] == len(long_talk)
    wait_until_none_is_left(tmp_path)


def test_a_demo_that_was_killed_during_model_calls_goes_on_at_once(
    environment: dict[str, str], endpoint: ScriptedEndpoint, tmp_path: Path
) -> None:
    transcript = written(tmp_path / "talk.jsonl", TALK, bad=())
    model = {
        "AFTERTURN_LLM__PROVIDER": "openai_compatible",
        "AFTERTURN_LLM__MODEL": "scripted",
        "AFTERTURN_LLM__BASE_URL": endpoint.url,
    }
    arguments = ("demo", "--file", transcript, "--data-dir", tmp_path / "d", "--json")
    endpoint.always(scripted.hangs())
    with subprocess.Popen(  # noqa: S603 (our own command line)
        command(*arguments), env=environment | model, stderr=subprocess.DEVNULL
    ) as first:
        endpoint.wait_for(2, timeout=timedelta(seconds=PATIENCE_SECONDS))
        first.kill()
    wait_until_none_is_left(tmp_path)
    endpoint.always(scripted.answers(summary="s"))

    finished = run(environment | model, *arguments)

    assert finished.returncode == 0, finished.stderr
    assert "killed while it extracted 2 snapshots" in finished.stderr
    result = result_of(finished)
    assert (result["outcomes"], result["turns"]) == ({"nothing_found": 2}, len(TALK))
    assert result["seconds"] < BELOW_A_LEASE_SECONDS
    assert endpoint.count == 2 + 2


def test_an_interrupt_while_python_imports_is_one_line(environment: dict[str, str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "cli", "status", "--json"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        for line in process.stderr:
            if "pydantic" in line:
                process.send_signal(signal.SIGINT)
                break
        rest = process.stderr.read()
        told = process.stdout.read()

    assert process.returncode == 130
    assert [line for line in rest.splitlines() if "import time" not in line] == ["Interrupted."]
    assert json.loads(told) == {"error": "interrupted"}


@pytest.fixture
def up(environment: dict[str, str], tmp_path: Path) -> Iterator[Path]:
    """The whole system in the foreground; the value is its data directory."""
    place = tmp_path / "up"
    with subprocess.Popen(  # noqa: S603 (our own command line)
        command("up", "--data-dir", place, "--json"),
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            assert running.stdout is not None
            told = json.loads(running.stdout.readline())
            assert told.keys() == {"mongo", "kafka", "http", "data_dir"}
            yield place
            running.send_signal(signal.SIGTERM)
            assert running.stdout.read() == ""
            running.wait(PATIENCE_SECONDS)
        finally:
            running.kill()
    assert running.returncode == 0
    wait_until_none_is_left(place)


def test_what_is_imported_into_up_is_extracted_once_and_passes_the_audit(
    up: Path, environment: dict[str, str], talk: Path
) -> None:
    where = ("--data-dir", up, "--json")

    imported = run(environment, "import", talk, "--close", *where)
    again = run(environment, "import", talk, "--close", *where)

    assert imported.returncode == 1
    assert result_of(imported)["error"] == "1 line refused"
    assert "line 5 must be JSON" in imported.stderr
    assert result_of(imported)["recorded"] == len(TALK)
    assert result_of(imported)["problems"] == [{"line": 5, "field": "line", "rule": "must be JSON"}]
    assert result_of(again)["recorded"] == 0
    assert result_of(again)["already_there"] == len(TALK)
    deadline = time.monotonic() + PATIENCE_SECONDS
    audited = run(environment, "audit", *where)
    while result_of(audited)["outcomes"] != {"records": 2} and time.monotonic() < deadline:
        audited = run(environment, "audit", *where)
    assert audited.returncode == 0
    assert result_of(audited) == {
        "turns": len(TALK),
        "in_snapshots": len(TALK),
        "open": 0,
        "outcomes": {"records": 2},
        "violations": [],
    }
    status = result_of(run(environment, "status", *where))
    assert status["open"]["turns"] == 0
    assert set(status["unfinished"].values()) == {0}
    assert run(environment, "doctor", *where).returncode == 0
