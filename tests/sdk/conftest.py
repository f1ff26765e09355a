"""What tests of the agents' side may ask for."""

from collections.abc import AsyncGenerator

import pytest

from pipeline.stores.mongo import Database
from tests.integration.serving import Server, served


@pytest.fixture
async def server(db: Database) -> AsyncGenerator[Server]:
    """A memory server over an empty database."""
    async with served(db) as running:
        yield running
