"""The tools over MCP, by the real client: stdio for one user, HTTP for whoever a token is of."""

import os
import socket
import sys
import time
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from pipeline.stores.mongo import Database
from tests.integration.serving import served
from tests.integration.signing import account, token_of
from tests.sdk.talking import Server, said

ROOT = Path(__file__).parents[2]
SCRIPT = ["-m", "afterturn.mcp_server"]


def environment(url: str, project: str) -> dict[str, str]:
    return {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "sdk" / "src"), *sys.path]),
        "AGENTIC_MEMORY_BASE_URL": url,
        "AGENTIC_MEMORY_PROJECT_ID": project,
    }


async def use(client: Client) -> str:
    """Record, and read what is there."""
    turn = await client.call_tool("record_turn", {"role": "user", "content": "I like tea."})
    assert not turn.is_error, turn
    found = await client.call_tool("search_memories", {"query": "tea"})
    assert not found.is_error, found
    context = await client.call_tool("build_context", {"query": "tea"})
    assert not context.is_error, context
    return f"{found.structured_content}{context.structured_content}"


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


@contextmanager
def over_http(memory_url: str, project: str) -> Generator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, *SCRIPT, "--http", str(port)]
    with Popen(command, env={**os.environ, **environment(memory_url, project)}) as process:  # noqa: S603 (ours)
        try:
            until = time.monotonic() + 30
            while not listens(port):
                assert time.monotonic() < until, "it never listened"
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()


@asynccontextmanager
async def connected(url: str, headers: Mapping[str, str]) -> AsyncGenerator[Client]:
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


@pytest.fixture
def remembered(server: Server) -> Server:
    """Two users with a memory each."""
    memory = server.memory()
    for user in ("mara", "bo"):
        memory.save_semantic(text=f"{user} likes tea.", label="drink", user_id=user)
    memory.close()
    return server


async def test_over_stdio_it_is_one_users(remembered: Server) -> None:
    arguments = [*SCRIPT, "--user-id", "mara", "--session-id", "monday"]
    parameters = StdioServerParameters(
        command=sys.executable, args=arguments, env=environment(remembered.url, remembered.project)
    )
    async with Client(stdio_client(parameters)) as client:
        tools = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
        read = await use(client)

    hints = {name: it and it.read_only_hint for name, it in tools.items()}
    assert hints == {"record_turn": False, "build_context": True, "search_memories": True}
    assert all(it and not it.destructive_hint and not it.open_world_hint for it in tools.values())
    assert "mara likes tea." in read
    assert "bo likes tea." not in read
    assert said(remembered) == [("user", "I like tea.")]


async def test_over_http_each_request_is_whose_its_headers_say(remembered: Server) -> None:
    with over_http(remembered.url, remembered.project) as url:
        for user, other in (("mara", "bo"), ("bo", "mara")):
            names = {"X-Afterturn-User-Id": user, "X-Afterturn-Session-Id": f"of {user}"}
            async with connected(url, names) as client:
                read = await use(client)
            assert f"{user} likes tea." in read
            assert f"{other} likes tea." not in read
        async with connected(url, {}) as client:
            nobody: Any = await client.call_tool("search_memories", {"query": "tea"})

    assert nobody.is_error
    assert "X-Afterturn-User-Id" in str(nobody.content)


async def test_over_http_the_token_decides(db: Database) -> None:
    """Passed on as it came: without one, or with a wrong one, the memory server refuses."""
    names = {"X-Afterturn-User-Id": "mara", "X-Afterturn-Session-Id": "monday"}
    async with served(db, auth="on") as memory:
        credentials = await account(memory.parts, "assistant", "alpha")
        async with httpx.AsyncClient(base_url=memory.url, timeout=30) as http:
            token = await token_of(http, credentials)
        with over_http(memory.url, "alpha") as url:
            async with connected(url, names | {"Authorization": f"Bearer {token}"}) as client:
                await use(client)
            for wrong in ({}, {"Authorization": "Bearer wrong"}):
                async with connected(url, names | wrong) as client:
                    refused = await client.call_tool("build_context", {"query": "tea"})
                assert refused.is_error
                assert "said no" in str(refused.content)


def test_over_http_it_lends_nobody_a_token_of_its_own(server: Server) -> None:
    settings = {
        **environment(server.url, server.project),
        "AGENTIC_MEMORY_SERVICE_ACCOUNT_TOKEN": "t",
    }
    command = [sys.executable, *SCRIPT, "--http", "1"]
    with Popen(command, env={**os.environ, **settings}) as process:  # noqa: S603 (ours)
        assert process.wait(30) == 2
