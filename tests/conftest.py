"""What every test may ask for."""

from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import pytest
from pydantic import SecretStr

from pipeline.crash_points import arm, armed
from pipeline.settings import MongoSettings
from pipeline.stores.indexes import apply_indexes
from pipeline.stores.mongo import Database, connect, database

pytest_plugins = ("tests.services", "tests.endpoint_fixture")


@pytest.fixture(autouse=True)
def leaves_no_crash_point_armed() -> Iterator[None]:
    """Else a later test would be killed with its process, and nobody could say by whom."""
    yield
    left = armed()
    arm(None)
    assert left is None, f"{left} is still armed: disarm it with `arm(None)`"


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
