"""Services that hang: they are there, and answer nothing."""

import os
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from compose.processes import Service


def hang(service: Service) -> None:
    """Stop a service in the middle of whatever it does; it has stopped when this returns."""
    group = _group(service)
    os.killpg(group, signal.SIGSTOP)
    # The signal is only sent: until every thread of it has met it, a service still answers.
    while any(_runs(thread) for thread in Path(f"/proc/{group}/task").iterdir()):
        time.sleep(0.001)


def go_on(service: Service) -> None:
    """Let a service that hangs go on."""
    os.killpg(_group(service), signal.SIGCONT)


@contextmanager
def hanging(service: Service) -> Generator[None]:
    """Let a service hang for the time of the block."""
    hang(service)
    try:
        yield
    finally:
        go_on(service)


def _runs(thread: Path) -> bool:
    # The state is the first field after the name, which is in parentheses and may hold any.
    return thread.joinpath("stat").read_text().rpartition(")")[2].split()[0] != "T"


def _group(service: Service) -> int:
    # To a process group of none, the system's call would mean our own.
    assert service.pid is not None, f"{service.program.name} has ended"
    return service.pid
