"""Apache Kafka's own libraries, fetched by Maven into a cache of ours when first asked for."""

import asyncio
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Final

import structlog

from compose.errors import DownloadError, MissingProgramError, ServiceError
from compose.processes import Program, run_to_end

POM: Final = Path(__file__).with_name("kafka-pom.xml")
CACHE_DIR: Final = Path(__file__).parent.parent / ".cache" / "kafka"
JAVA_VERSION: Final = 17
DOWNLOAD_TIMEOUT: Final = timedelta(minutes=15)
PROGRESS_SECONDS: Final = 3.0

log = structlog.get_logger(__name__)


def unavailable_reason() -> str | None:
    """Return why real Kafka cannot be had on this machine, or `None` where it can."""
    java = _java()
    if java is None:
        return f"Java is not installed: real Kafka needs Java {JAVA_VERSION} or newer"
    version = _java_version(java)
    if version is None or version < JAVA_VERSION:
        return f"{java} is of version {version}: real Kafka needs Java {JAVA_VERSION} or newer"
    if shutil.which("mvn") is None and not _libraries().exists():
        return "Maven (mvn) is not installed: it fetches real Kafka at its first start"
    return None


async def kafka_java() -> tuple[str, ...]:
    """Return a command that runs Java with Kafka's libraries, fetched where they are not there yet.

    Raises:
        MissingProgramError: `unavailable_reason` says why.
        DownloadError: Maven failed.
    """
    reason = await asyncio.to_thread(unavailable_reason)
    java = _java()
    if reason is not None or java is None:
        raise MissingProgramError(reason or "Java is not installed")
    libraries = _libraries()
    if not await asyncio.to_thread(libraries.exists):
        await _fetch(libraries)
    return (java, "-cp", f"{libraries}/*")


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")


async def _fetch(libraries: Path) -> None:
    # Another process may fetch at the same time: the folder appears complete or not at all.
    part = _new_part(libraries)
    maven = Program(
        name="Maven",
        command=(
            *(shutil.which("mvn") or "mvn", "--batch-mode", "--file", str(POM)),
            *("dependency:copy-dependencies", "-DincludeScope=runtime"),
            f"-DoutputDirectory={part / 'libraries'}",
        ),
        log_file=part / "maven.log",
    )
    log.info("kafka_download_started", log_file=str(maven.log_file))
    progress = asyncio.create_task(_report_progress(maven.log_file))
    try:
        await run_to_end(maven, timeout=DOWNLOAD_TIMEOUT)
    except ServiceError as error:
        raise DownloadError(f"real Kafka could not be fetched. {error}") from error
    finally:
        progress.cancel()
    await asyncio.to_thread(_keep, part, libraries)
    log.info("kafka_download_finished", folder=str(libraries))


async def _report_progress(log_file: Path) -> None:
    while True:
        await asyncio.sleep(PROGRESS_SECONDS)
        text = await asyncio.to_thread(log_file.read_text, errors="replace")
        log.info("kafka_downloading", files=text.count("Downloaded from"))


def _new_part(libraries: Path) -> Path:
    libraries.parent.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="part-", dir=libraries.parent))


def _keep(part: Path, libraries: Path) -> None:
    try:
        (part / "libraries").rename(libraries)
    except OSError:
        if not libraries.exists():
            raise
    shutil.rmtree(part)


def _libraries() -> Path:
    # Named after the pom, so that another version there is another folder here.
    return CACHE_DIR / hashlib.sha256(POM.read_bytes()).hexdigest()[:12]


def _java_version(java: str) -> int | None:
    answer = subprocess.run(  # noqa: S603 (the command is ours)
        (java, "-version"), capture_output=True, text=True, check=False, timeout=60
    )
    found = re.search(r'version "(\d+)', answer.stderr)
    return int(found.group(1)) if found else None
