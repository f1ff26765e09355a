"""What tests of the agents' side may ask for."""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest
from pydantic import SecretStr
from pymongo import MongoClient

from pipeline.settings import MongoSettings
from pipeline.stores.mongo import connect, database
from tests.integration.serving import served
from tests.scripted_endpoint import Json
from tests.sdk.talking import Server
from tests.services import held


@asynccontextmanager
async def _serving(uri: str) -> AsyncGenerator[tuple[str, str]]:
    settings = MongoSettings(uri=SecretStr(uri), database=f"test_{uuid4().hex[:12]}")
    client = connect(settings)
    try:
        async with served(database(client, settings)) as running:
            yield running.url, settings.database
    finally:
        await client.close()
        # By a connection of its own: those of the server may have been idle for too long by now.
        async with connect(settings) as fresh:
            await fresh.drop_database(settings.database)


@pytest.fixture(scope="session")
def one_server(mongo_uri: str) -> Generator[Server]:
    """A memory server, which all tests share."""
    with held(_serving(mongo_uri)) as (url, name):
        client: MongoClient[Json] = MongoClient(mongo_uri)
        with client:
            yield Server(url=url, project="", database=client[name])


@pytest.fixture
def server(one_server: Server) -> Server:
    """A memory server, and a project of this test's own."""
    project = f"project-{uuid4().hex[:8]}"
    return Server(url=one_server.url, project=project, database=one_server.database)
