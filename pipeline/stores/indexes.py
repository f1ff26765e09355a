"""Every index we rely on: what makes each collection safe and its readers quick."""

from typing import Final

from pymongo import ASCENDING, IndexModel

from pipeline.stores.mongo import Database

INDEXES: Final[dict[str, tuple[IndexModel, ...]]] = {
    "turns": (
        IndexModel([("session", ASCENDING), ("seq", ASCENDING)], name="session_seq", unique=True),
        IndexModel([("idempotency", ASCENDING)], name="idempotency", unique=True, sparse=True),
        IndexModel([("open", ASCENDING)], name="open", sparse=True),
        IndexModel(
            [
                ("identity.project_id", ASCENDING),
                ("identity.session_id", ASCENDING),
                ("session", ASCENDING),
            ],
            name="conversations",
        ),
        IndexModel(
            [("embedding.state", ASCENDING), ("embedding.due_ms", ASCENDING)],
            name="embedding",
            sparse=True,
        ),
    ),
    "sessions": (
        IndexModel([("session", ASCENDING)], name="session", unique=True),
        IndexModel(
            [
                ("identity.project_id", ASCENDING),
                ("identity.user_id", ASCENDING),
                ("identity.session_id", ASCENDING),
            ],
            name="whose",
        ),
    ),
    "snapshots": (
        IndexModel(
            [("session", ASCENDING), ("first_seq", ASCENDING)],
            name="session_first_seq",
            unique=True,
        ),
        IndexModel([("wake_at_ms", ASCENDING)], name="wake_at", sparse=True),
        IndexModel([("created_at", ASCENDING)], name="created"),
    ),
    "extractions": (
        IndexModel([("snapshot_id", ASCENDING)], name="snapshot"),
        IndexModel([("settled_at", ASCENDING)], name="settled"),
        IndexModel([("unsent_since_ms", ASCENDING)], name="unsent", sparse=True),
        IndexModel([("job_id", ASCENDING)], name="job", sparse=True),
    ),
    "project_revisions": (
        IndexModel(
            [("settings.short_term.embed_on_write", ASCENDING)], name="embeds_turns", sparse=True
        ),
    ),
    "assertions": (
        IndexModel([("slot", ASCENDING)], name="slot"),
        IndexModel([("extraction_id", ASCENDING)], name="extraction", sparse=True),
    ),
    "records": (
        IndexModel(
            [
                ("scope.project_id", ASCENDING),
                ("scope.owner", ASCENDING),
                ("scope.visibility", ASCENDING),
                ("kind", ASCENDING),
            ],
            name="scope",
        ),
        IndexModel(
            [("scope.project_id", ASCENDING), ("changed_ms", ASCENDING)], name="project_changed"
        ),
        IndexModel(
            [
                ("scope.project_id", ASCENDING),
                ("scope.owner", ASCENDING),
                ("changed_ms", ASCENDING),
            ],
            name="owner_changed",
        ),
        IndexModel([("runs.memory_id", ASCENDING)], name="memory"),
        IndexModel([("dirty", ASCENDING)], name="dirty", sparse=True),
        IndexModel([("unannounced", ASCENDING)], name="unannounced", sparse=True),
        IndexModel(
            [("embedding.state", ASCENDING), ("embedding.due_ms", ASCENDING)], name="embedding"
        ),
    ),
    "vectors": (
        IndexModel([("owner", ASCENDING), ("model", ASCENDING)], name="owner_model"),
        IndexModel([("model", ASCENDING)], name="model"),
    ),
    "tombstones": (
        IndexModel([("due_ms", ASCENDING)], name="due", sparse=True),
        IndexModel([("slot", ASCENDING)], name="slot"),
    ),
    "letters": (
        IndexModel([("state", ASCENDING), ("created_at", ASCENDING)], name="state_created"),
        IndexModel([("unsent", ASCENDING)], name="unsent", sparse=True),
    ),
    "service_accounts": (IndexModel([("name", ASCENDING)], name="name", unique=True),),
    "operator_actions": (
        IndexModel([("target", ASCENDING), ("at", ASCENDING)], name="target_at"),
        IndexModel([("at", ASCENDING)], name="at"),
    ),
}
"""By collection. `open`, `dirty`, `unannounced`, `unsent*` and `wake_at_ms` exist only while they
are true, so that a sparse index over each is exactly the work that is left to do."""


async def apply_indexes(database: Database) -> list[str]:
    """Make what is missing; return `collection.index` of all. Idempotent."""
    made: list[str] = []
    for collection, models in INDEXES.items():
        names = await database[collection].create_indexes(list(models))
        made.extend(f"{collection}.{name}" for name in names)
    return made
