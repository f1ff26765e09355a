"""Every order in which processes can take their steps, and every place where one of them can die.

A process is a coroutine whose calls to the outside go through `Gated`: each waits for its turn.
Between two turns a process runs alone, so the calls to stores are all that can interleave, as with
real processes and a database whose commands are atomic. What a process does next depends on nothing
but the answers it got; so where shared state and answers are as they were in an order seen before,
what can follow was seen as well, and the exploration turns back.
"""

import types
from collections.abc import Callable, Coroutine, Generator, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

T = TypeVar("T")
Process = Coroutine[Any, Any, object]


@types.coroutine
def _turn() -> Generator[None]:
    yield


class Gated:
    """A port whose every call waits for a turn, then runs at once.

    Args:
        port: What is called.
        answers: Where each answer is kept, as what can be hashed.
    """

    def __init__(self, port: object, answers: list[Hashable]) -> None:
        self._port = port
        self._answers = answers

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        """Return the method of the port, behind the gate."""
        method = getattr(self._port, name)

        async def call(*args: object, **kwargs: object) -> object:
            await _turn()
            answer: object = await method(*args, **kwargs)
            self._answers.append(_hashable(answer))
            return answer

        return call


def _hashable(answer: object) -> Hashable:
    if isinstance(answer, list):
        return tuple(cast("list[Hashable]", answer))
    if isinstance(answer, dict):
        return tuple(sorted(cast("dict[str, Hashable]", answer).items()))
    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """Processes over one fresh state, with what must hold."""

    processes: Sequence[Process]
    state: Callable[[], Hashable]
    """What they share, and the answers each of them got."""
    holds_always: Callable[[], None]
    """Called after each step."""
    holds_finally: Callable[[], None]
    """Called when all have ended."""


def run_alone(process: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end without anybody beside it; return what it returns."""
    while True:
        try:
            process.send(None)
        except StopIteration as end:
            return cast("T", end.value)


def explore(make: Callable[[], Race], *, kills: int = 0, switches: int | None = None) -> int:
    """Run a race in every order of its steps; return how many states it can be in.

    Args:
        make: Makes the race anew for each order.
        kills: How many of the processes may die, each before any of its steps.
        switches: How often a process may be interrupted by another before its end; any number if
            none is given. Races that need many interruptions to go wrong are rare, and the orders
            of long processes too many to run.
    """
    seen: set[int] = set()
    prefix: list[int] = []
    while True:
        taken = _run(make(), prefix, kills, switches, seen)
        while taken and taken[-1][0] + 1 == taken[-1][1]:
            taken.pop()
        if not taken:
            return len(seen)
        prefix = [choice for choice, _ in taken]
        prefix[-1] += 1


def _run(
    race: Race, prefix: Sequence[int], kills: int, switches: int | None, seen: set[int]
) -> list[tuple[int, int]]:
    """Run one order until its end or a state seen before.

    Returns each choice made, and how many there were.
    """
    taken: list[tuple[int, int]] = []
    story: list[str] = []
    alive = {index: process for index, process in enumerate(race.processes) if _advances(process)}
    steps = [0] * len(race.processes)
    running: int | None = None
    try:
        while alive:
            may_step = [running] if switches == 0 and running in alive else list(alive)
            options = [(index, False) for index in may_step]
            if kills > 0:
                options += [(index, True) for index in may_step]
            choice = prefix[len(taken)] if len(taken) < len(prefix) else 0
            is_new_choice = len(taken) + 1 >= len(prefix)
            taken.append((choice, len(options)))
            index, dies = options[choice]
            story.append(f"kill {index}" if dies else str(index))
            steps[index] += 1
            if switches and running in alive and index != running:
                switches -= 1
            running = index
            if dies:
                alive.pop(index).close()
                kills -= 1
            elif not _advances(alive[index]):
                del alive[index]
            if not is_new_choice:
                continue
            race.holds_always()
            bound = None if switches is None else (running, switches)
            state = hash((race.state(), tuple(steps), tuple(alive), kills, bound))
            if state in seen:
                return taken
            seen.add(state)
        race.holds_finally()
    except AssertionError as error:
        error.add_note("order of steps: " + ", ".join(story))
        raise
    finally:
        for process in race.processes:
            process.close()
    return taken


def _advances(process: Process) -> bool:
    """Let a process take its step up to its next gate; false if it has ended."""
    try:
        process.send(None)
    except StopIteration:
        return False
    return True
