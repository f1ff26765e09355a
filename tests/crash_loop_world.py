"""Processes that die: each restart is a new isolation over what the dead have left behind."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiokafka import TopicPartition

from consumers.isolation import Isolation
from consumers.room import Room
from pipeline.stores.in_memory import MemoryDeliveries
from schemas.failure import Coordinates
from schemas.message import IncomingMessage
from schemas.topics import Stage

PARTITION = TopicPartition("topic", 0)


def message(offset: int, *, subject: str | None = None) -> IncomingMessage:
    """Return the message of a place, about something of its own or named."""
    at = Coordinates(topic="topic", partition=0, offset=offset, timestamp_ms=0, group="g")
    key = (subject or f"subject {offset}").encode()
    return IncomingMessage(at=at, key=key, value=b"", headers=())


class Mortal:
    """The deliveries as one process reaches them: not any more once it is dead."""

    def __init__(self, shared: MemoryDeliveries) -> None:
        self._shared = shared
        self.is_alive = True

    async def unended(self, stage: Stage) -> set[str]:
        await asyncio.sleep(0)
        return await self._shared.unended(stage)

    async def starts(self, stage: Stage, subject: str) -> int:
        await asyncio.sleep(0)
        return await self._shared.starts(stage, subject)

    async def put(self, stage: Stage, subject: str, starts: int) -> None:
        await asyncio.sleep(0)
        if self.is_alive:
            await self._shared.put(stage, subject, starts)

    async def remove(self, stage: Stage, subject: str) -> None:
        await asyncio.sleep(0)
        if self.is_alive:
            await self._shared.remove(stage, subject)


@dataclass(slots=True, kw_only=True)
class World:
    """Messages, some of which kill, and what became of each."""

    works: Sequence[int]
    """By offset, how many turns of the event loop its step takes."""
    kills: Mapping[int, int]
    """By offset, in which of these turns it kills; those it names are the poisonous ones."""
    kills_when_buried: bool = False
    shared: MemoryDeliveries = field(default_factory=MemoryDeliveries)
    done: list[int] = field(default_factory=list[int])
    letters: list[int] = field(default_factory=list[int])
    committed: set[int] = field(default_factory=set[int])
    deaths: int = 0

    async def run(self, *, most_deaths: int) -> None:
        """Restart until every message is committed."""
        while len(self.committed) < len(self.works):
            assert self.deaths <= most_deaths, (self.done, self.letters)
            await Process(self).live()


class Process:
    """One life."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._deliveries = Mortal(world.shared)
        self._died = asyncio.Event()
        self.isolation = Isolation(
            self, Stage.SNAPSHOT, deliveries=self._deliveries, last_resort=Grave(world), room=Room()
        )

    async def live(self) -> None:
        """Work on all that is not committed, until that is done or the end."""
        self.isolation.assigned(PARTITION)
        waiting = [
            offset
            for offset in range(len(self._world.works))
            if offset not in self._world.committed
        ]
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(self._deliver(offset)) for offset in waiting
        ]
        dying: asyncio.Task[Any] = asyncio.create_task(self._died.wait())
        working = asyncio.create_task(asyncio.wait(tasks))
        either: set[asyncio.Task[Any]] = {working, dying}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if self._died.is_set():
            self._world.deaths += 1
        else:
            await self.isolation.given_back([PARTITION])
        ending = [*tasks, dying, working]
        for task in ending:
            task.cancel()
        await asyncio.wait(ending)

    async def _deliver(self, offset: int) -> None:
        await self.isolation(message(offset))
        if self._deliveries.is_alive:
            self._world.committed.add(offset)

    def subject(self, message: IncomingMessage) -> str | None:
        return None if message.key is None else message.key.decode()

    async def __call__(self, message: IncomingMessage) -> None:
        offset = message.at.offset
        for turn in range(self._world.works[offset] + 1):
            if turn == self._world.kills.get(offset):
                await self._die()
            await asyncio.sleep(0)
        if self._deliveries.is_alive:
            self._world.done.append(offset)

    async def bury(self, message: IncomingMessage) -> bool:
        if self._world.kills_when_buried:
            await self._die()
        self._world.letters.append(message.at.offset)
        return True

    async def _die(self) -> None:
        self._deliveries.is_alive = False
        self._died.set()
        await asyncio.Event().wait()


@dataclass(frozen=True, slots=True)
class Grave:
    """The last resort."""

    world: World

    async def bury(self, message: IncomingMessage, stage: Stage) -> None:
        assert stage is Stage.SNAPSHOT
        self.world.letters.append(message.at.offset)
