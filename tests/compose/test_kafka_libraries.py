"""Kafka's libraries are fetched once, appear complete or not at all, and failures are explained."""

import asyncio
from pathlib import Path

import pytest

from compose import kafka_libraries
from compose.errors import DownloadError, MissingProgramError
from compose.kafka_libraries import kafka_java, unavailable_reason

MAVEN_FETCHES = """
for argument in "$@"; do
    case "$argument" in -DoutputDirectory=*) folder="${argument#*=}" ;; esac
done
/bin/mkdir -p "$folder" && echo library > "$folder/kafka.jar"
"""
MAVEN_FAILS = "echo 'central is out of reach'; exit 1"


class Machine:
    """A machine with the programs it is given, and an empty cache."""

    def __init__(self, folder: Path) -> None:
        self.programs = folder / "bin"
        self.cache = folder / "cache"
        self.programs.mkdir()

    def has(self, name: str, script: str) -> None:
        """Install a program."""
        program = self.programs / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    def has_java(self, version: str) -> None:
        """Install a Java that says its version as Java does."""
        self.has("java", f"""echo 'openjdk version "{version}" 2025-01-01' >&2""")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine with nothing on it."""
    machine = Machine(tmp_path)
    monkeypatch.setenv("PATH", str(machine.programs))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(kafka_libraries, "CACHE_DIR", machine.cache)
    return machine


async def test_the_libraries_are_fetched_once(machine: Machine) -> None:
    """The second time Maven is not even there."""
    machine.has_java("17.0.15")
    machine.has("mvn", MAVEN_FETCHES)
    java, option, class_path = await kafka_java()

    assert (java, option) == (str(machine.programs / "java"), "-cp")
    assert Path(class_path).with_name("kafka.jar").exists()

    (machine.programs / "mvn").unlink()
    assert await kafka_java() == (java, option, class_path)
    assert len(list(machine.cache.iterdir())) == 1


async def test_two_may_fetch_at_the_same_time(machine: Machine) -> None:
    """Both get the same complete folder."""
    machine.has_java("21.0.1")
    machine.has("mvn", MAVEN_FETCHES)

    one, two = await asyncio.gather(kafka_java(), kafka_java())

    assert one == two
    assert Path(one[2]).with_name("kafka.jar").exists()


async def test_a_failed_download_shows_what_maven_said(machine: Machine) -> None:
    """The error has the end of Maven's log, and the next try starts anew."""
    machine.has_java("17")
    machine.has("mvn", MAVEN_FAILS)

    with pytest.raises(DownloadError, match="central is out of reach"):
        await kafka_java()

    machine.has("mvn", MAVEN_FETCHES)
    assert await kafka_java()


@pytest.mark.parametrize(
    ("java_version", "reason"),
    [
        (None, "Java is not installed"),
        ("11.0.2", "version 11: real Kafka needs Java 17"),
        ("17.0.1", r"Maven \(mvn\) is not installed"),
    ],
)
async def test_what_is_missing_is_named(
    machine: Machine, java_version: str | None, reason: str
) -> None:
    """The reason is told beforehand, and raised by who tries all the same."""
    if java_version is not None:
        machine.has_java(java_version)

    assert unavailable_reason() is not None
    with pytest.raises(MissingProgramError, match=reason):
        await kafka_java()
