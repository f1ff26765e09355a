"""Consumers for tests: an app on topics of its own, and steps that tell what they were given."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import uuid4

from consumers.apps import ConsumerApp, Subscription
from consumers.due import DueTimes
from consumers.pool import SerialBy
from pipeline.ports.step import Step
from pipeline.settings import KafkaSettings
from schemas.message import IncomingMessage
from schemas.topics import Topic
from tests.integration.kafka import committed

DEADLINE = timedelta(seconds=30)


class Told:
    """A step that keeps what it was given, and does what a test says with it."""

    def __init__(self, act: Callable[[IncomingMessage], None] | None = None) -> None:
        self.messages: list[IncomingMessage] = []
        self.done: list[IncomingMessage] = []
        self._act = act
        self._blocked: dict[bytes | None, asyncio.Event] = {}
        self._changed = asyncio.Condition()

    def block(self, value: bytes | None) -> asyncio.Event:
        """Make the messages of a value wait for the event that is returned."""
        return self._blocked.setdefault(value, asyncio.Event())

    async def __call__(self, message: IncomingMessage) -> None:
        self.messages.append(message)
        await self._notify()
        if message.value in self._blocked:
            await self._blocked[message.value].wait()
        if self._act is not None:
            self._act(message)
        self.done.append(message)
        await self._notify()

    async def until(self, condition: Callable[["Told"], bool]) -> None:
        """Wait until something holds of what was told."""
        async with asyncio.timeout(DEADLINE.total_seconds()), self._changed:
            await self._changed.wait_for(lambda: condition(self))

    async def until_done(self, count: int) -> None:
        """Wait until so many steps have returned."""
        await self.until(lambda told: len(told.done) >= count)

    @property
    def values(self) -> list[bytes | None]:
        """The values of what was given, in order."""
        return [message.value for message in self.messages]

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def kafka_settings(servers: str, *, instance_id: str | None = None) -> KafkaSettings:
    """Return settings with short times."""
    return KafkaSettings(
        bootstrap_servers=servers,
        instance_id=instance_id or f"test-{uuid4().hex[:8]}",
        request_timeout=timedelta(seconds=5),
        session_timeout=timedelta(seconds=10),
        heartbeat_interval=timedelta(milliseconds=500),
        rebalance_timeout=timedelta(seconds=15),
        drain_timeout=timedelta(seconds=3),
        max_poll_interval=timedelta(seconds=60),
    )


def declared(*names: str, partitions: int = 1) -> tuple[Topic, ...]:
    """Return topics that exist, as an app checks them."""
    return tuple(
        Topic(name=name, partitions=partitions, retention=timedelta(hours=1)) for name in names
    )


def new_group() -> str:
    """Return a group nobody has."""
    return f"group.{uuid4().hex[:12]}"


@asynccontextmanager
async def consuming(
    settings: KafkaSettings,
    step: Step,
    topics: Sequence[Topic],
    group: str,
    *,
    concurrency: int = 4,
    serial_by: SerialBy | None = None,
    due: DueTimes | None = None,
) -> AsyncGenerator[ConsumerApp]:
    """Run an app with one subscription, named `main`."""
    app = ConsumerApp(
        settings,
        [
            Subscription(
                name="main",
                group=group,
                topics=tuple(topics),
                step=step,
                concurrency=concurrency,
                serial_by=serial_by,
                due=due,
            )
        ],
    )
    try:
        async with asyncio.timeout(DEADLINE.total_seconds()):
            await app.start()
        yield app
    finally:
        await app.stop()


async def abandon(app: ConsumerApp) -> None:
    """Let go of an app as a killed process does: nothing is drained or committed."""
    for pool in app.pools.values():
        for lane in pool._lanes.values():  # pyright: ignore[reportPrivateUsage]
            lane.close()
            lane.is_gone = True
            for task in lane.tasks:
                task.cancel()
        pool._lanes.clear()  # pyright: ignore[reportPrivateUsage]
    await app._disconnect()  # pyright: ignore[reportPrivateUsage]


async def until_committed(
    servers: str, group: str, topic: str, offset: int, partition: int = 0
) -> None:
    """Wait until a group has committed an offset."""
    async with asyncio.timeout(DEADLINE.total_seconds()):
        while await committed(servers, group, topic, partition) != offset:  # noqa: ASYNC110 (far)
            await asyncio.sleep(0.05)
