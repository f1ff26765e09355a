"""Services that hang: they are there, and answer nothing."""

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager

from compose.processes import Service


def hang(service: Service) -> None:
    """Stop a service in the middle of whatever it does."""
    os.killpg(_group(service), signal.SIGSTOP)


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


def _group(service: Service) -> int:
    # To a process group of none, the system's call would mean our own.
    assert service.pid is not None, f"{service.program.name} has ended"
    return service.pid
