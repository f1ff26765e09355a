"""The README's commands do what they say, to the letter, in a checkout."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from compose.embedded import embedded_kafka
from pipeline.settings import Settings
from tests.services import held

ROOT = Path(__file__).parents[2]
NOT_COPIED = (".venv", ".cache", ".git", ".afterturn", ".pytest_cache", ".ruff_cache")
PATIENCE_SECONDS = 180
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
LINES = [line for block in BLOCKS for line in block.splitlines()]
TALK = {"session_id": "a", "user_id": "mara", "role": "user", "content": "I live in Lisbon."}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the project that shares what is installed."""
    place = tmp_path / "checkout"
    shutil.copytree(ROOT, place, ignore=shutil.ignore_patterns(*NOT_COPIED))
    for shared in (".venv", ".cache"):
        (place / shared).symlink_to(ROOT / shared)
    return place


@pytest.fixture
def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AFTERTURN_")}
    return kept | {"AFTERTURN_HTTP__PORT": "0"}


def ends_well(line: str, checkout: Path, environment: Mapping[str, str]) -> None:
    """Run a line as a reader does."""
    finished = subprocess.run(  # noqa: S602 (the README's own line)
        line,
        shell=True,
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert finished.returncode == 0, f"{line}\n{finished.stdout}\n{finished.stderr}"


@contextmanager
def running(
    line: str, checkout: Path, environment: Mapping[str, str], ready: str
) -> Generator[Callable[[], str]]:
    """Run a line until the end of the block, then end it as Ctrl-C does; it ends well.

    Yields what returns all that it has said.
    """
    log = checkout.parent / f"{uuid4().hex}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 (the README's own line)
            line.split(), cwd=checkout, env=environment, stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while ready not in log.read_text() and time.monotonic() < deadline:
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        assert ready in log.read_text()
        yield log.read_text
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_SECONDS)
    finally:
        process.kill()
        process.wait()
    assert process.returncode in {0, 130}, log.read_text()


def agent(said: Callable[[], str]) -> str:
    """Return the README's agent, for the port that was free."""
    (address,) = re.findall(r"Agents' memory at (\S+)", said())
    (block,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    imports = "from agent_engine_sdk_memory import Memory, MemoryRequestContext\n"
    return imports + block.replace("http://127.0.0.1:8080", address)


def test_every_command_is_tried_here() -> None:
    assert {line.split(" AFTERTURN")[0] for line in LINES if line} == {
        "make demo",
        "make test",  # which runs this
        "./afterturn up",
        "./afterturn import talk.jsonl --close",
        "./afterturn status",
        "./afterturn audit",
        "export",
        "./afterturn topics apply",
        "./afterturn indexes apply",
        "./afterturn doctor",
        "./afterturn run waker",
        "./afterturn run snapshot",
        "./afterturn run extraction",
        "./afterturn run embedding",
        "./afterturn run jobs",
        "./afterturn run http",
    }


def test_it_is_short_enough_to_be_read() -> None:
    assert len(README.splitlines()) <= 150


def test_the_demo_ends_by_itself(checkout: Path, environment: dict[str, str]) -> None:
    ends_well("make demo", checkout, environment)


def test_a_transcript_is_imported_into_what_is_up(
    checkout: Path, environment: dict[str, str]
) -> None:
    (checkout / "talk.jsonl").write_text(json.dumps(TALK) + "\n")
    with running("./afterturn up", checkout, environment, "Up.") as said:
        ends_well("./afterturn import talk.jsonl --close", checkout, environment)
        ends_well("./afterturn status", checkout, environment)
        ends_well(f"{sys.executable} -c {shlex.quote(agent(said))}", checkout, environment)
        ends_well("./afterturn audit", checkout, environment)


def test_the_model_it_names_is_one_that_settings_take(monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = (line for line in LINES if line.startswith("export "))
    for assignment in line.removeprefix("export ").split():
        name, _, value = assignment.partition("=")
        monkeypatch.setenv(name, value)

    settings = Settings().llm

    assert (settings.provider, settings.model) == ("openai", "gpt-5-mini")
    assert settings.api_key is not None


@pytest.fixture
def own_kafka(tmp_path: Path) -> Generator[str]:
    """A broker whose groups nobody else was ever in: the embedded one may stall a newcomer."""
    with held(embedded_kafka(tmp_path / "kafka")) as kafka:
        yield kafka.bootstrap_servers


def test_a_deployment_is_set_up_and_runs(
    checkout: Path, environment: dict[str, str], mongo_uri: str, own_kafka: str
) -> None:
    servers = environment | {
        "AFTERTURN_MONGO__URI": mongo_uri,
        "AFTERTURN_MONGO__DATABASE": f"readme_{uuid4().hex[:12]}",
        "AFTERTURN_KAFKA__BOOTSTRAP_SERVERS": own_kafka,
    }
    ends_well("./afterturn topics apply", checkout, servers)
    ends_well("./afterturn indexes apply", checkout, servers)
    ends_well("./afterturn doctor", checkout, servers)
    model = {
        "AFTERTURN_LLM__PROVIDER": "openai_compatible",
        "AFTERTURN_LLM__MODEL": "none",
        "AFTERTURN_LLM__BASE_URL": "http://127.0.0.1:1/v1",
        "AFTERTURN_EMBEDDING__PROVIDER": "local",
    }
    for role in ("waker", "snapshot", "extraction", "embedding", "jobs", "http"):
        with running(f"./afterturn run {role}", checkout, servers | model, '"started"'):
            pass
