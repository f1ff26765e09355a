"""What was begun and has no end: the database and its twin keep one contract."""

from urllib.parse import urlsplit

import pytest
from pydantic import SecretStr

from pipeline.ports.deliveries import Deliveries
from pipeline.settings import MongoSettings
from pipeline.stores.deliveries import MongoDeliveries
from pipeline.stores.in_memory import MemoryDeliveries
from pipeline.stores.mongo import Database, connect, database
from schemas.topics import Stage
from tests.faults.proxy import proxy_to


@pytest.fixture(params=["memory", "mongo"])
def deliveries(request: pytest.FixtureRequest, db: Database) -> Deliveries:
    return MemoryDeliveries() if request.param == "memory" else MongoDeliveries(db)


async def test_a_count_stands_until_it_is_removed_each_stage_for_itself(
    deliveries: Deliveries,
) -> None:
    before = await deliveries.starts(Stage.SNAPSHOT, "a")
    for starts in (1, 2, 2):
        await deliveries.put(Stage.SNAPSHOT, "a", starts)
    await deliveries.put(Stage.EXTRACTION, "a", 5)
    await deliveries.put(Stage.SNAPSHOT, "b/c", 1)
    counts = [await deliveries.starts(stage, "a") for stage in (Stage.SNAPSHOT, Stage.EXTRACTION)]
    unended = await deliveries.unended(Stage.SNAPSHOT)
    for _ in range(2):
        await deliveries.remove(Stage.SNAPSHOT, "a")

    assert before == 0
    assert counts == [2, 5]
    assert unended == {"a", "b/c"}
    assert await deliveries.unended(Stage.SNAPSHOT) == {"b/c"}
    assert await deliveries.unended(Stage.EXTRACTION) == {"a"}


async def test_a_start_whose_answer_is_lost_is_counted_once(db: Database, mongo_uri: str) -> None:
    """The driver sends it again."""
    async with proxy_to(urlsplit(mongo_uri).port or 27017) as proxy:
        settings = MongoSettings(
            uri=SecretStr(f"mongodb://127.0.0.1:{proxy.port}/?directConnection=true"),
            database=db.name,
        )
        client = connect(settings)
        through = MongoDeliveries(database(client, settings))
        proxy.lose_answers(every=4)
        for starts in range(1, 20):
            await through.put(Stage.SNAPSHOT, "a", starts)
        await client.close()

    assert await MongoDeliveries(db).starts(Stage.SNAPSHOT, "a") == 19
