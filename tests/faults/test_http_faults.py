"""Agents at the memory server while what it stands on is gone, and while it is killed itself."""

import asyncio
import json
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from urllib.parse import urlsplit

import pytest
from agent_engine_sdk_memory import Memory, MemoryConnectionError, MemoryRequestContext

from compose.processes import free_port
from tests.faults.processes import PATIENCE_SECONDS, Process, World, installed
from tests.faults.proxy import proxy_to
from tests.scripted_endpoint import ScriptedEndpoint

AGENTS = 64
TURNS = 4
KILLED_AFTER = 1
"""Turns of each agent that are surely stored before the server is killed."""
ROOM = 256
CREATED, UNAVAILABLE = 201, 503
GROWTH_KIB = 20 * 1024
WAVES = 5


@pytest.fixture
async def world(
    mongo_uri: str, bootstrap_servers: str, endpoint: ScriptedEndpoint
) -> AsyncIterator[World]:
    async with installed(mongo_uri, bootstrap_servers, endpoint) as running:
        yield running


class Agent:
    """Records the turns of one session with the published client, one after the other."""

    def __init__(self, address: str, name: str) -> None:
        self.identity = {"user_id": name, "session_id": f"talk of {name}"}
        self.acknowledged: list[int] = []
        self.errors = 0
        self.client = Memory(base_url=address)
        self._memory = self.client.bind(MemoryRequestContext(**self.identity))

    def record(self, turns: range, *, is_killed: Event | None = None) -> None:
        """Record turns; what fails once the server may be killed is sent again, as agents do."""
        for number in turns:
            while not self._has_recorded(number):
                assert is_killed is not None, "failed though nothing was killed"
                is_killed.wait(0.05)

    def _has_recorded(self, number: int) -> bool:
        try:
            stored = self._memory.record_turn(
                role="user", content=_content(number), idempotency_key=str(number)
            )
        except MemoryConnectionError:
            self.errors += 1
            return False
        assert stored.acknowledged
        self.acknowledged.append(stored.turn_seq)
        return True


def _content(number: int) -> str:
    return f"This is number {number}."


async def test_agents_record_on_with_kafka_and_the_model_gone_and_the_server_killed(
    world: World,
) -> None:
    gone, port = f"127.0.0.1:{free_port()}", free_port()
    environment = {
        "AFTERTURN_KAFKA__BOOTSTRAP_SERVERS": gone,
        "AFTERTURN_LLM__BASE_URL": f"http://{gone}/v1",
        "AFTERTURN_HTTP__PORT": str(port),
    }
    address = f"http://127.0.0.1:{port}"
    agents = [Agent(address, f"user {number}") for number in range(AGENTS)]
    may_be_killed = Event()
    with ThreadPoolExecutor(AGENTS) as pool, ExitStack() as clients:
        for agent in agents:
            clients.enter_context(agent.client)
        loop = asyncio.get_running_loop()

        async def all_record(turns: range, is_killed: Event | None) -> None:
            def record(agent: Agent) -> None:
                agent.record(turns, is_killed=is_killed)

            await asyncio.gather(*(loop.run_in_executor(pool, record, each) for each in agents))

        async with world.run("http", **environment) as first:
            await first.says("started")
            await all_record(range(1, KILLED_AFTER + 1), None)
            assert sum(agent.errors for agent in agents) == 0
            going_on = asyncio.create_task(
                all_record(range(KILLED_AFTER + 1, TURNS + 1), may_be_killed)
            )
            await until_more_are_stored(world, AGENTS * KILLED_AFTER + AGENTS // 2)
            first.running.kill()
            await first.running.wait()
        async with world.run("http", **environment) as second:
            await second.says("started")
            await going_on

    for agent in agents:
        assert agent.acknowledged == list(range(1, TURNS + 1))
        stored = await turns_of(world, agent)
        assert [seq for seq, _ in stored] == agent.acknowledged
        assert [content for _, content in stored] == [_content(seq) for seq, _ in stored]
    assert sum(agent.errors for agent in agents) > 0


async def until_more_are_stored(world: World, turns: int) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await world.parts.database["turns"].count_documents({}) < turns:  # noqa: ASYNC110 (another process stores them)
            await asyncio.sleep(0.05)


async def turns_of(world: World, agent: Agent) -> list[tuple[int, str]]:
    found = world.parts.database["turns"].find(
        {
            "identity.user_id": agent.identity["user_id"],
            "identity.session_id": agent.identity["session_id"],
        },
        sort=[("seq", 1)],
    )
    return [(turn["seq"], turn["content"]) async for turn in found]


async def test_a_database_that_hangs_costs_no_more_memory_the_longer_it_hangs(
    world: World, mongo_uri: str
) -> None:
    mongo_port, http_port = urlsplit(mongo_uri).port, free_port()
    assert mongo_port is not None
    async with (
        proxy_to(mongo_port) as proxy,
        world.run(
            "http",
            AFTERTURN_MONGO__URI=f"mongodb://127.0.0.1:{proxy.port}/?directConnection=true",
            AFTERTURN_MONGO__TIMEOUT="1",
            AFTERTURN_HTTP__PORT=str(http_port),
        ) as process,
    ):
        await process.says("started")
        assert await answers(http_port, 1) == [CREATED]
        proxy.stall()
        first = await answers(http_port, 2 * ROOM)
        before = resident_kib(process)
        later = [await answers(http_port, 2 * ROOM) for _ in range(WAVES)]
        after = resident_kib(process)
        proxy.resume()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await answers(http_port, 1) != [CREATED]:  # noqa: ASYNC110 (it is another process)
                await asyncio.sleep(0.1)

    assert {status for wave in (first, *later) for status in wave} == {UNAVAILABLE}
    assert after - before < GROWTH_KIB


async def answers(port: int, number: int) -> list[int]:
    """Return how so many turns of one session, large and all at once, are answered."""
    said = {"user_id": "mara", "session_id": "s", "role": "user", "content": "word " * 4000}
    body = json.dumps(said).encode()
    head = (
        "POST /api/v1/memory/turns HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )

    async def record() -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head.encode() + body)
        answer = await reader.read()
        writer.close()
        status = int(answer.split()[1])
        assert status != UNAVAILABLE or b"retry-after: " in answer.lower()
        return status

    async with asyncio.timeout(PATIENCE_SECONDS):
        return await asyncio.gather(*(record() for _ in range(number)))


def resident_kib(process: Process) -> int:
    """Return how much memory a process has, in KiB."""
    status = Path(f"/proc/{process.running.pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1])
