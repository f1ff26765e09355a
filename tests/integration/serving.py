"""A memory server in this process, over a real database, for the client that agents have."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from typing import Any, TypeVar

from agent_engine_sdk_memory import Memory, MemoryRequestContext
from agent_engine_sdk_memory._client import MemoryClient

from api.server import HttpApp, http_app
from consumers.exporting import PrometheusExporter
from consumers.wiring import Installation, wire
from pipeline.ports.publisher import Publisher
from pipeline.reading.searching import Searcher
from pipeline.settings import Settings
from pipeline.stores.indexes import apply_indexes
from pipeline.stores.mongo import Database
from schemas.message import OutgoingMessage

T = TypeVar("T")


class Silent:
    """Port `Publisher`: nobody listens."""

    async def publish(self, message: OutgoingMessage) -> None:
        """Take a message."""


class Server:
    """What a test talks to."""

    def __init__(self, app: HttpApp, parts: Installation, clients: ExitStack) -> None:
        self.url = app.address
        self.app = app
        self.parts = parts
        self._clients = clients

    def memory(
        self,
        project: str | None = None,
        *,
        path: str = "",
        token: str | None = None,
        **bound: Any,
    ) -> Memory:
        """Return the published client, on the project's routes if one is named."""
        memory = Memory(base_url=self.url + path, project_id=project, service_account_token=token)
        self._clients.callback(memory.close)
        return memory.bind(MemoryRequestContext(**bound)) if bound else memory

    def internal(self, prefix: str = "/api/v1/memory", **options: Any) -> Any:
        """Return the package's client of a memory server itself; what it returns is untyped."""
        client = MemoryClient(self.url, api_prefix=prefix, **options)
        self._clients.callback(client.close)
        return client


@asynccontextmanager
async def served(
    db: Database,
    *,
    searching: Searcher | None = None,
    rerank: Mapping[str, Any] | None = None,
    publisher: Publisher | None = None,
    **http: Any,
) -> AsyncGenerator[Server]:
    """Serve a database that is empty but for its indexes, with settings of HTTP."""
    await apply_indexes(db)
    settings = Settings.model_validate({"http": {"port": 0, **http}, "rerank": rerank or {}})
    parts = await wire(settings, db, publisher or Silent(), PrometheusExporter())
    async with http_app(parts, searching=searching) as app:
        app.open()
        await app.start()
        try:
            with ExitStack() as clients:
                yield Server(app, parts, clients)
        finally:
            await app.stop()


async def ask(call: Callable[..., T], *args: Any, **named: Any) -> T:
    """Call a client that blocks, while the server answers it here."""
    return await asyncio.to_thread(call, *args, **named)
