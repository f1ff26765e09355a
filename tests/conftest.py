"""What every test may ask for."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from pydantic import SecretStr

from pipeline.settings import MongoSettings
from pipeline.stores.indexes import apply_indexes
from pipeline.stores.mongo import Database, connect, database

pytest_plugins = ("tests.services", "tests.endpoint_fixture")


@pytest.fixture
async def db(mongo_uri: str) -> AsyncIterator[Database]:
    """A database of this test's own, with our indexes; gone afterwards."""
    settings = MongoSettings(uri=SecretStr(mongo_uri), database=f"test_{uuid4().hex[:12]}")
    client = connect(settings)
    fresh = database(client, settings)
    await apply_indexes(fresh)
    yield fresh
    await client.drop_database(fresh.name)
    await client.close()
