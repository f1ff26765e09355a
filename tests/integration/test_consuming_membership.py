"""A consumer whose library gave up its place in the group takes it again."""

import asyncio
from typing import Any, cast

import pytest
from aiokafka.consumer.group_coordinator import GroupCoordinator
from structlog.testing import capture_logs

from tests.integration.consuming import (
    DEADLINE,
    Told,
    consuming,
    declared,
    kafka_settings,
    new_group,
    until_committed,
)
from tests.integration.kafka import append, new_topic


async def test_a_member_that_was_given_no_assignment_asks_for_one_again(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No bytes instead of an assignment: the leader did not know of it, as in a rebalance."""
    topic, group = await new_topic(bootstrap_servers), new_group()
    told, was_forgotten = Told(), asyncio.Event()
    complete = cast("Any", GroupCoordinator)._on_join_complete

    async def forgotten_once(
        member: object, generation: int, name: str, protocol: str, assignment: bytes
    ) -> None:
        given = assignment if was_forgotten.is_set() else b""
        was_forgotten.set()
        await complete(member, generation, name, protocol, given)

    with capture_logs() as logs:
        async with consuming(
            kafka_settings(bootstrap_servers), told, declared(topic), group
        ) as app:
            monkeypatch.setattr(GroupCoordinator, "_on_join_complete", forgotten_once)
            consumer = cast("Any", app)._consumer("main")
            consumer._coordinator.request_rejoin()
            async with asyncio.timeout(DEADLINE.total_seconds()):
                await was_forgotten.wait()
            await append(bootstrap_servers, topic, [b"one", b"two"])
            await told.until(lambda told: {b"one", b"two"} <= set(told.values))
            await until_committed(bootstrap_servers, group, topic, 2)

    (left,) = [entry for entry in logs if entry["event"] == "group_left"]
    assert (left["group"], left["exception"]) == (group, "ValueError")


async def test_a_group_that_gives_no_assignment_shares_anew_before_a_member_starts(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A static member gets what it was given last, empty or not, until the group shares anew."""
    topic, group = await new_topic(bootstrap_servers), new_group()
    settings, told = kafka_settings(bootstrap_servers), Told()
    generations: list[int] = []
    complete = cast("Any", GroupCoordinator)._on_join_complete

    async def forgotten_in_the_first(
        member: object, generation: int, name: str, protocol: str, assignment: bytes
    ) -> None:
        generations.append(generation)
        given = b"" if generation == generations[0] else assignment
        await complete(member, generation, name, protocol, given)

    monkeypatch.setattr(GroupCoordinator, "_on_join_complete", forgotten_in_the_first)
    async with consuming(settings, told, declared(topic), group):
        await append(bootstrap_servers, topic, [b"one"])
        await told.until_done(1)

    assert len(set(generations)) > 1
