"""Run one command in a process group of its own, and end the whole group when our starter is gone.

A program of its own with nothing but the standard library:
`python guardian.py STARTER_PID STOP_SECONDS COMMAND…`. Its standard input is a pipe whose only
write end is held by the process that started it, so the kernel closes it however that one ends:

- end of file: SIGTERM to the group, then SIGKILL after STOP_SECONDS;
- the byte `K`: SIGKILL to the group at once.

On standard output it says `started PID`, or `failed REASON`, and at the end `ended EXIT_CODE`.
The group is ended too when the command itself ends, since a wrapper may leave its child behind.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time

# Only asked for the rare case that a fork of our starter keeps the pipe open.
STARTER_CHECK_SECONDS = 1.0
GROUP_CHECK_SECONDS = 0.02
PR_SET_CHILD_SUBREAPER = 36


def say(line: str) -> None:
    """Report to the starter, who may be gone."""
    with contextlib.suppress(OSError):
        os.write(1, f"{line}\n".encode())


def adopt_orphans() -> None:
    """Become the parent of the command's orphans: a container's PID 1 may never reap them."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def signal_group(group: int, number: int) -> bool:
    """Signal every process of the group; return whether there was one."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # macOS says EPERM when only zombies are left
        return False
    return True


def stay(number: int, frame: object) -> None:
    """Handle a signal by nothing; that it came is read from the wake-up descriptor."""


class Guard:
    """The command's group, from its start to the end of its last process."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(  # noqa: S603 (the command is our starter's)
            command,
            stdin=subprocess.DEVNULL,
            stdout=2,  # the starter gave us the log file as standard error
            stderr=2,
            start_new_session=True,
        )
        self.group = self.process.pid
        self.exit_code: int | None = None

    def reap(self) -> None:
        """Collect every process that has ended, the command's exit code among them."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.group:
                self.exit_code = os.waitstatus_to_exitcode(status)
                self.process.returncode = self.exit_code

    def is_gone(self) -> bool:
        """Return whether no process of the group is left."""
        self.reap()
        return not signal_group(self.group, 0)

    def end(self, stop_seconds: float) -> None:
        """End the group: kindly for `stop_seconds`, then by force."""
        deadline = time.monotonic() + stop_seconds
        signal_group(self.group, signal.SIGTERM)
        while not self.is_gone() and time.monotonic() < deadline:
            # Only its parent is told of a process's end; of a group nobody is, so it is asked for.
            time.sleep(GROUP_CHECK_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End the group by force and wait until nothing of it is left."""
        while not self.is_gone():
            signal_group(self.group, signal.SIGKILL)
            # As in `end`.
            time.sleep(GROUP_CHECK_SECONDS)


def watch(guard: Guard, starter_pid: int, wake: int) -> bool:
    """Wait until the group shall end; return whether by force."""
    while True:
        readable, _, _ = select.select([0, wake], [], [], STARTER_CHECK_SECONDS)
        if 0 in readable:
            return os.read(0, 1) == b"K"
        if wake in readable and signal.SIGTERM in os.read(wake, 512):
            return False
        guard.reap()
        if guard.exit_code is not None or os.getppid() != starter_pid:
            return False


def main(arguments: list[str]) -> int:
    """Start the command, watch, end its group."""
    starter_pid, stop_seconds, command = int(arguments[0]), float(arguments[1]), arguments[2:]
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    # Interrupt and hang-up are for the starter, who may want to drain before its services go. A
    # handler rather than SIG_IGN, because the command would inherit that.
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stay)
    adopt_orphans()
    try:
        guard = Guard(command)
    except OSError as error:
        say(f"failed {error}")
        return 1
    say(f"started {guard.group}")
    if watch(guard, starter_pid, wake):
        guard.kill()
    else:
        guard.end(stop_seconds)
    say(f"ended {guard.exit_code}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
