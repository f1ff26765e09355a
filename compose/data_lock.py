"""One user at a time for a data directory, by a lock that ends with its holder's last process."""

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from compose.errors import DataDirectoryBusyError

LOCK_NAME = "afterturn.lock"
# A holder that was killed leaves the lock to the guardians, which need this long at most.
ORPHAN_SECONDS = 20.0
POLL_SECONDS = 0.05


@asynccontextmanager
async def data_lock(data_dir: Path) -> AsyncGenerator[int]:
    """Create the directory where needed and hold it; the value is the lock's descriptor.

    A child that is given the descriptor keeps the lock for as long as it runs.

    Raises:
        DataDirectoryBusyError: Another live process holds the directory.
    """
    descriptor = _open(data_dir)
    try:
        await _acquire(descriptor, data_dir)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield descriptor
    finally:
        # Not removed: somebody may have opened it and be about to lock it.
        os.close(descriptor)


def is_held(data_dir: Path) -> bool:
    """Return whether a live process holds the directory."""
    try:
        descriptor = os.open(data_dir / LOCK_NAME, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _open(data_dir: Path) -> int:
    data_dir.mkdir(parents=True, exist_ok=True)
    return os.open(data_dir / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)


async def _acquire(descriptor: int, data_dir: Path) -> None:
    deadline = time.monotonic() + ORPHAN_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(descriptor)
            if (holder is not None and _is_alive(holder)) or time.monotonic() > deadline:
                raise DataDirectoryBusyError(data_dir, holder) from None
        else:
            return
        await asyncio.sleep(POLL_SECONDS)


def _holder(descriptor: int) -> int | None:
    text = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
    return int(text) if text.isdecimal() else None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
