"""Child processes say why they fail, end completely, and never outlive us."""

import asyncio
import os
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from compose.errors import MissingProgramError, ServiceDiedError, ServiceNotReadyError
from compose.processes import Child, Program, Service, free_port, free_ports, run_to_end
from tests.compose.conftest import Hold
from tests.compose.groups import exists, wait_until_gone

# A wrapper with a child of its own that is deaf to SIGTERM; it says when both are there.
DEAF_FAMILY = "trap '' TERM; sleep 600 & echo ready; wait; sleep 600"


def shell(log_file: Path, script: str, *, stop_seconds: float = 10) -> Program:
    """Return a shell script as a program."""
    return Program(
        name="script",
        command=("/bin/sh", "-c", script),
        log_file=log_file,
        stop_timeout=timedelta(seconds=stop_seconds),
    )


async def started(program: Program, says: str = "ready") -> Child:
    """Start a program and wait until it says so."""
    child = Child.start(program)
    async with asyncio.timeout(30):
        while True:
            if says in child.log_tail():
                return child
            await asyncio.sleep(0.01)


def service(program: Program, *, seconds: float) -> Service:
    """Return a program as a service that never answers."""

    async def never() -> bool:
        return False

    return Service(program, port=free_port(), ping=never, start_timeout=timedelta(seconds=seconds))


async def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The error names the program that cannot be started."""
    program = Program(name="it", command=("/not/there",), log_file=tmp_path / "log")

    with pytest.raises(MissingProgramError, match=r"it cannot be started: .*/not/there"):
        Child.start(program)


async def test_a_service_that_dies_at_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    """The error has the exit code and this run's last lines, without waiting for the timeout."""
    log_file = tmp_path / "log"
    log_file.write_text("said by an earlier run\n")
    dying = service(shell(log_file, "echo no disk left >&2; exit 3"), seconds=600)

    with pytest.raises(ServiceDiedError, match=r"exit code 3(.|\n)*no disk left") as raised:
        await dying.start()

    assert "earlier run" not in raised.value.tail


async def test_a_service_that_never_answers_is_ended_and_shows_its_log(tmp_path: Path) -> None:
    """The error has the last lines, and nothing is left running."""
    silent = service(shell(tmp_path / "log", "echo waiting; exec sleep 600"), seconds=0.2)

    with pytest.raises(ServiceNotReadyError, match=r"within 0\.2 s(.|\n)*waiting"):
        await silent.start()

    assert not silent.is_running


async def test_a_cancelled_start_leaves_nothing_running(tmp_path: Path) -> None:
    """Cancelling a start ends what it started."""
    silent = service(shell(tmp_path / "log", "exec sleep 600"), seconds=600)

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(silent.start(), timeout=0.2)

    assert not silent.is_running


async def test_a_program_that_fails_is_an_error_and_one_that_hangs_too(tmp_path: Path) -> None:
    """What shall run to its end must end well and in time."""
    timeout = timedelta(seconds=30)
    await run_to_end(shell(tmp_path / "log", "exit 0"), timeout=timeout)

    with pytest.raises(ServiceDiedError, match="exit code 1"):
        await run_to_end(shell(tmp_path / "log", "exit 1"), timeout=timeout)
    with pytest.raises(ServiceNotReadyError):
        await run_to_end(shell(tmp_path / "log", "sleep 600"), timeout=timedelta(seconds=0.1))


async def test_stop_ends_the_whole_group_in_order(tmp_path: Path) -> None:
    """A program may finish its work on SIGTERM; its children end with it."""
    script = "trap 'echo finished; exit 7' TERM; sleep 600 & echo ready; wait"
    child = await started(shell(tmp_path / "log", script))

    await child.stop()

    assert not exists(child.pid)
    assert child.exit_code == 7
    assert "finished" in child.log_tail()


async def test_stop_ends_the_deaf_by_force(tmp_path: Path) -> None:
    """After its time to stop a group is killed."""
    child = await started(shell(tmp_path / "log", DEAF_FAMILY, stop_seconds=0.2))

    await child.stop()
    await child.stop()

    assert not exists(child.pid)
    assert child.exit_code == -signal.SIGKILL


async def test_kill_waits_for_nothing(tmp_path: Path) -> None:
    """A killed group is gone at once, however long it might take to stop."""
    child = await started(shell(tmp_path / "log", DEAF_FAMILY, stop_seconds=600))

    await child.kill()

    assert not exists(child.pid)


async def test_kill_cuts_a_stop_short(tmp_path: Path) -> None:
    """A group that takes long to stop can be killed meanwhile; later kills change nothing."""
    child = await started(shell(tmp_path / "log", DEAF_FAMILY, stop_seconds=600))
    stopping = asyncio.create_task(child.stop())
    await asyncio.sleep(0)

    await child.kill()
    await stopping
    await child.kill()

    assert not exists(child.pid)


async def test_a_wrapper_that_ends_takes_its_children_along(tmp_path: Path) -> None:
    """Where the command itself ends, what it left behind is ended too."""
    child = await started(shell(tmp_path / "log", "sleep 600 & echo ready; exit 5"))

    assert await child.ended() == 5
    assert not exists(child.pid)


async def test_the_group_ends_even_where_its_guardian_was_killed(tmp_path: Path) -> None:
    """We do the guardian's work when somebody killed it."""
    child = await started(shell(tmp_path / "log", "sleep 600 & echo $PPID ready; wait"))
    guardian = int(child.log_tail().split()[0])

    os.kill(guardian, signal.SIGKILL)
    await child.stop()

    wait_until_gone(child.pid)


async def test_no_signal_of_the_terminal_reaches_a_child(tmp_path: Path) -> None:
    """Child and guardian have sessions of their own, so that Ctrl-C is ours to act on."""
    child = await started(shell(tmp_path / "log", "echo $PPID ready; exec sleep 600"))
    guardian = int(child.log_tail().split()[0])

    assert len({os.getsid(0), os.getsid(guardian), os.getsid(child.pid)}) == 3

    await child.stop()


def test_a_child_ends_when_we_are_killed(hold: Hold, tmp_path: Path) -> None:
    """After kill -9 of its starter not even a group that is deaf to SIGTERM is left."""
    holder, said = hold("program", str(tmp_path / "log"), "/bin/sh", "-c", DEAF_FAMILY)

    holder.kill()

    wait_until_gone(*said["groups"])


def test_a_child_ends_although_a_fork_of_us_lives_on(hold: Hold, tmp_path: Path) -> None:
    """A copy of its starter, which keeps every pipe open, does not keep the child alive."""
    holder, said = hold("forked", str(tmp_path / "log"), "/bin/sh", "-c", DEAF_FAMILY)

    holder.kill()

    try:
        wait_until_gone(*said["groups"])
    finally:
        os.kill(said["copy"], signal.SIGKILL)


def test_free_ports_are_as_many_as_asked_for() -> None:
    """Ports handed out together differ."""
    assert len(set(free_ports(20))) == 20
