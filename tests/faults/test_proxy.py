"""The proxy of the fault tests does to a connection what it says, and nothing else."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from tests.faults.proxy import Proxy, proxy_to


@pytest.fixture
async def proxy() -> AsyncGenerator[Proxy]:
    """A proxy in front of a server that answers with what it is told."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(line)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server, proxy_to(server.sockets[0].getsockname()[1]) as proxy:
        yield proxy


async def ask(
    connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], line: bytes = b"hello\n"
) -> bytes:
    """Send a line, return the answer."""
    reader, writer = connection
    writer.write(line)
    return await asyncio.wait_for(reader.readline(), timeout=10)


async def connect(proxy: Proxy) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the proxy."""
    return await asyncio.open_connection("127.0.0.1", proxy.port)


async def test_it_forwards_both_ways(proxy: Proxy) -> None:
    """What a client sends reaches the server, and the answer comes back."""
    connection = await connect(proxy)

    assert await ask(connection) == b"hello\n"
    assert proxy.connections == 1

    connection[1].close()


async def test_an_end_is_forwarded(proxy: Proxy) -> None:
    """A client that ends in order lets the server end in order."""
    reader, writer = await connect(proxy)
    writer.write(b"last\n")
    writer.write_eof()

    assert await asyncio.wait_for(reader.read(), timeout=10) == b"last\n"

    writer.close()


async def test_cut_resets_existing_connections_only(proxy: Proxy) -> None:
    """A cut connection is reset; the next one works."""
    connection = await connect(proxy)
    await ask(connection)

    proxy.cut()

    with pytest.raises(ConnectionResetError):
        await ask(connection)
    again = await connect(proxy)
    assert await ask(again) == b"hello\n"

    connection[1].close()
    again[1].close()


async def test_it_counts_the_requests_that_a_cut_may_have_cost_their_answers(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that waits, and one whose answer was sent just now; none that had its answer before."""
    late, answered, waiting = [await connect(proxy) for _ in range(3)]
    monkeypatch.setattr("tests.faults.proxy.ARRIVING_SECONDS", 0)
    await ask(answered)
    waiting[1].write(b"half a line")
    async with asyncio.timeout(10):
        while proxy.asking != 1:  # noqa: ASYNC110 (another task forwards it)
            await asyncio.sleep(0.001)
    monkeypatch.setattr("tests.faults.proxy.ARRIVING_SECONDS", 1000)
    await ask(late)

    proxy.cut()

    assert proxy.cut_asking == 2
    assert proxy.asking == 0

    for _, writer in (late, answered, waiting):
        writer.close()


async def test_refuse_resets_new_connections_only(proxy: Proxy) -> None:
    """While it refuses, an existing connection works and a new one does not."""
    existing = await connect(proxy)
    await ask(existing)

    proxy.refuse()

    with pytest.raises(ConnectionError):
        await ask(await connect(proxy))
    assert await ask(existing) == b"hello\n"

    proxy.resume()
    again = await connect(proxy)
    assert await ask(again) == b"hello\n"

    existing[1].close()
    again[1].close()


async def test_stall_keeps_connections_and_loses_nothing(proxy: Proxy) -> None:
    """What was sent to a stalled proxy arrives after it resumes, in order."""
    existing = await connect(proxy)
    await ask(existing)

    proxy.stall()
    fresh = await connect(proxy)
    for _, writer in (existing, fresh):
        writer.write(b"first\nsecond\n")
    answers = [asyncio.create_task(reader.readline()) for reader, _ in (existing, fresh)]
    done, _ = await asyncio.wait(answers, timeout=0.2)
    assert not done

    proxy.resume()
    assert [await answer for answer in answers] == [b"first\n", b"first\n"]
    assert [await reader.readline() for reader, _ in (existing, fresh)] == [b"second\n"] * 2

    for _, writer in (existing, fresh):
        writer.close()


async def test_a_broker_that_names_its_own_address_is_known_by_the_proxys(
    bootstrap_servers: str,
) -> None:
    """Or whoever asked through the proxy would go past it from then on."""
    port = int(bootstrap_servers.partition(":")[2])
    async with proxy_to(port, readdresses=True) as proxy:
        admin = AIOKafkaAdminClient(bootstrap_servers=f"127.0.0.1:{proxy.port}")
        await admin.start()
        try:
            described: dict[str, Any] = await admin.describe_cluster()
        finally:
            await admin.close()

    assert [broker["port"] for broker in described["brokers"]] == [proxy.port]
