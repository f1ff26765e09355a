"""Waiting for process groups to be gone."""

import os
import time

DEADLINE_SECONDS = 30.0
POLL_SECONDS = 0.02


def exists(group: int) -> bool:
    """Return whether the process group has a process."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until_gone(*groups: int) -> None:
    """Wait until the process groups have no process any more."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while any(exists(group) for group in groups):
        assert time.monotonic() < deadline, f"of the groups {groups} something is still alive"
        time.sleep(POLL_SECONDS)
