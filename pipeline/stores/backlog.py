"""What waits in MongoDB, for those who watch: ages and counts, no words."""

from collections import Counter
from datetime import UTC, datetime
from typing import Final

from pipeline.failing import breaking
from pipeline.metrics import Backlog
from pipeline.ports.clocks import ServerTime
from pipeline.stores.mongo import Database, Document
from pipeline.stores.switches import MongoBreakers, MongoGuards
from schemas.failure import FailureClass

_OLDEST_OPEN: Final[list[Document]] = [
    {"$match": {"open": {"$exists": True}}},
    {"$group": {"_id": None, "oldest": {"$min": "$recorded_at"}}},
]
_DEAD_BY_CLASS: Final[list[Document]] = [
    {"$match": {"state": "dead"}},
    {
        "$group": {
            "_id": "$failure_class",
            "letters": {"$sum": 1},
            "oldest": {"$min": "$created_at"},
        }
    },
]


async def read_backlog(database: Database, server_time: ServerTime) -> Backlog:
    """Return it as of now, by the server's clock. Few commands, each over what waits only."""
    turns = await (await database["turns"].aggregate(_OLDEST_OPEN)).to_list()
    letters = await (await database["letters"].aggregate(_DEAD_BY_CLASS)).to_list()
    breakers = await MongoBreakers(database).all()
    guards = await MongoGuards(database).all()
    now_ms = await server_time.now_ms()
    return Backlog(
        measured_at=datetime.fromtimestamp(now_ms / 1000, UTC),
        oldest_open_at=turns[0]["oldest"] if turns else None,
        letters={FailureClass(group["_id"]): group["letters"] for group in letters},
        oldest_letter_at=min((group["oldest"] for group in letters), default=None),
        breakers=Counter(
            breaking.shown_phase(breaker, now_ms=now_ms).value for breaker in breakers
        ),
        guards=Counter("passing" if one.tripped_at_ms is None else "holding" for one in guards),
    )
