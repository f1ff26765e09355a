"""Child processes that never outlive us, however we end, with their logs, readiness and restarts.

Each runs under a guardian of its own (`guardian.py`), which ends the child's whole process group as
soon as the kernel closes a pipe that only we hold.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import IO, Self

from compose.errors import (
    MissingProgramError,
    PortTakenError,
    ServiceDiedError,
    ServiceError,
    ServiceNotReadyError,
)

GUARDIAN = Path(__file__).with_name("guardian.py")
POLL_SECONDS = 0.02
PING_SECONDS = 5.0
# What the guardian may need beyond the program's own time to stop.
GUARDIAN_SECONDS = 10.0
TAIL_LINES = 20
TAIL_BYTES = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A command to run as our child."""

    name: str
    """How errors call it."""
    command: tuple[str, ...]
    """The program and its arguments."""
    log_file: Path
    """Where its output is appended."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables added to our own."""
    stop_timeout: timedelta = timedelta(seconds=10)
    """How long it may take from SIGTERM to its end before SIGKILL."""
    held_files: tuple[int, ...] = ()
    """Descriptors that the guardian keeps open until the group's last process has ended."""


class Child:
    """One run of a program, from its start to the end of its process group."""

    @classmethod
    def start(cls, program: Program) -> Self:
        """Start the program.

        Raises:
            MissingProgramError: There is no such program.

        Concurrency: blocks for some 30 ms, so that no cancellation can fall in between.
        """
        program.log_file.parent.mkdir(parents=True, exist_ok=True)
        with program.log_file.open("ab") as log_file:
            log_start = log_file.tell()
            guardian = subprocess.Popen(  # noqa: S603 (the command is ours)
                (
                    *(sys.executable, "-I", "-S", str(GUARDIAN)),
                    *(str(os.getpid()), str(program.stop_timeout.total_seconds())),
                    *program.command,
                ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log_file,
                env={**os.environ, **program.environment},
                start_new_session=True,
                pass_fds=program.held_files,
                bufsize=0,
            )
        orders, reports = _pipe(guardian.stdin), _pipe(guardian.stdout)
        word, _, rest = reports.readline().decode().strip().partition(" ")
        if word != "started":
            orders.close()
            reports.close()
            guardian.wait()
            raise MissingProgramError(f"{program.name} cannot be started: {rest or 'no guardian'}")
        return cls(program, guardian, pid=int(rest), log_start=log_start)

    def __init__(
        self, program: Program, guardian: subprocess.Popen[bytes], *, pid: int, log_start: int
    ) -> None:
        self.program = program
        self.pid = pid
        """The pid of the command, which is also the id of its process group."""
        self.exit_code: int | None = None
        """How the command ended; `None` while it runs, or where the guardian could not tell."""
        self._guardian = guardian
        self._orders = _pipe(guardian.stdin)
        self._reports = _pipe(guardian.stdout)
        self._log_start = log_start

    @property
    def is_running(self) -> bool:
        """Whether a process of the group may be alive."""
        if self._guardian.poll() is None:
            return True
        if not self._reports.closed:
            word, _, rest = self._reports.read().decode().strip().partition(" ")
            self._reports.close()
            if word == "ended":
                self.exit_code = int(rest)
            else:  # the guardian was killed, so its work is ours
                self._kill_group()
            self._hang_up()
        return False

    async def stop(self) -> None:
        """End the group: SIGTERM, and SIGKILL after the program's `stop_timeout`.

        Idempotent: what has ended stays ended.
        """
        self._hang_up()
        await self._end(self.program.stop_timeout.total_seconds() + GUARDIAN_SECONDS)

    async def kill(self) -> None:
        """End the group by SIGKILL at once, as a crash would."""
        if self._orders.closed and self.is_running:  # it is being stopped, which takes too long
            self._kill_group()
        elif not self._orders.closed:
            with suppress(BrokenPipeError):  # it has just ended
                self._orders.write(b"K")
            self._hang_up()
        await self._end(GUARDIAN_SECONDS)

    async def ended(self) -> int | None:
        """Wait until the program has ended, by itself or not; return its `exit_code`."""
        while True:
            if not self.is_running:
                return self.exit_code
            await asyncio.sleep(POLL_SECONDS)

    def died(self) -> ServiceDiedError:
        """Return the error that tells how the program ended."""
        return ServiceDiedError(
            self.program.name, self.exit_code, self.program.log_file, self.log_tail()
        )

    def log_tail(self) -> str:
        """Return the last lines this run has written."""
        with self.program.log_file.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(self._log_start, end - TAIL_BYTES))
            text = file.read().decode(errors="replace")
        return "\n".join(text.splitlines()[-TAIL_LINES:])

    def _hang_up(self) -> None:
        self._orders.close()

    async def _end(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.is_running:
            if time.monotonic() > deadline:  # the guardian itself is stuck or stopped
                self._guardian.kill()
            await asyncio.sleep(POLL_SECONDS)

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


class Service:
    """A program that answers on a port, and can be stopped, killed and started again there."""

    def __init__(
        self,
        program: Program,
        *,
        port: int,
        ping: Callable[[], Awaitable[bool]],
        start_timeout: timedelta,
    ) -> None:
        self.program = program
        self.port = port
        """Where it listens on 127.0.0.1, the same after every start."""
        self._ping = ping
        self._start_timeout = start_timeout
        self._child: Child | None = None

    @property
    def is_running(self) -> bool:
        """Whether a process of it may be alive."""
        return self._child is not None and self._child.is_running

    @property
    def pid(self) -> int | None:
        """Its process group while it runs."""
        return self._child.pid if self._child is not None and self._child.is_running else None

    async def start(self) -> None:
        """Start it and wait until it answers; nothing is left running where it does not.

        Idempotent: one that runs stays as it is.

        Raises:
            MissingProgramError: The program is not installed.
            PortTakenError: Somebody else listens on its port.
            ServiceDiedError: It ended by itself.
            ServiceNotReadyError: It did not answer in time.
        """
        if self.is_running:
            return
        # Asked before, lest a stranger's answer be taken for ours.
        if await accepts(self.port):
            raise PortTakenError(self.program.name, self.port)
        self._child = Child.start(self.program)
        try:
            await self._ready(self._child)
        except BaseException:  # a cancellation too must leave no child behind; raised again
            await self._child.stop()
            raise

    async def stop(self) -> None:
        """End it in order. Idempotent: what has ended stays ended."""
        if self._child is not None:
            await self._child.stop()

    async def kill(self) -> None:
        """End it by SIGKILL, as a crash would. Idempotent: what has ended stays ended."""
        if self._child is not None:
            await self._child.kill()

    async def died(self) -> ServiceDiedError:
        """Wait until it ends; return the error that tells how."""
        if self._child is None:
            raise RuntimeError(f"{self.program.name} was never started")
        await self._child.ended()
        return self._child.died()

    async def _ready(self, child: Child) -> None:
        seconds = self._start_timeout.total_seconds()
        deadline = time.monotonic() + seconds
        while True:
            answers = await accepts(self.port) and await self._answers()
            if not child.is_running:
                raise self._died(child)
            if answers:
                return
            if time.monotonic() > deadline:
                raise ServiceNotReadyError(
                    self.program.name, seconds, self.program.log_file, child.log_tail()
                )
            await asyncio.sleep(POLL_SECONDS)

    def _died(self, child: Child) -> ServiceError:
        if "in use" in child.log_tail().lower():
            return PortTakenError(self.program.name, self.port)
        return child.died()

    async def _answers(self) -> bool:
        try:
            async with asyncio.timeout(PING_SECONDS):
                return await self._ping()
        except TimeoutError:
            return False


async def run_to_end(program: Program, *, timeout: timedelta) -> None:
    """Run a program that ends by itself.

    Raises:
        MissingProgramError: The program is not installed.
        ServiceDiedError: It failed.
        ServiceNotReadyError: It did not end in time and was stopped.
    """
    child = Child.start(program)
    try:
        async with asyncio.timeout(timeout.total_seconds()):
            exit_code = await child.ended()
    except TimeoutError as error:
        raise ServiceNotReadyError(
            program.name, timeout.total_seconds(), program.log_file, child.log_tail()
        ) from error
    finally:
        await child.stop()
    if exit_code != 0:
        raise child.died()


async def accepts(port: int) -> bool:
    """Return whether something on 127.0.0.1 accepts connections on the port."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return True


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 that nobody uses now; somebody may before you do."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def free_port() -> int:
    """Return one of `free_ports`."""
    return free_ports(1)[0]


def _pipe(file: IO[bytes] | None) -> IO[bytes]:
    if file is None:
        raise RuntimeError("the guardian was started without a pipe")
    return file
