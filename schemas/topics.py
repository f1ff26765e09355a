"""The topics: what exists, how it is keyed, how long it keeps, and who reads it."""

from datetime import timedelta
from enum import StrEnum
from typing import Final

from schemas.base import Frozen


class Stage(StrEnum):
    """A step of the pipeline that consumes messages."""

    SNAPSHOT = "snapshot"
    EXTRACTION = "extraction"
    EMBEDDING = "embedding"


class Topic(Frozen):
    """A topic as `afterturn topics apply` makes it."""

    name: str
    partitions: int
    retention: timedelta
    is_log_append_time: bool = False


class RetryTier(Frozen):
    """A topic whose every message waits the same time from the broker's append time."""

    topic: Topic
    delay: timedelta


TURN_RECORDED: Final = Topic(
    name="afterturn.turn.recorded.v1", partitions=6, retention=timedelta(days=7)
)
SNAPSHOT_READY: Final = Topic(
    name="afterturn.snapshot.ready.v1", partitions=6, retention=timedelta(days=14)
)
SNAPSHOT_REPLAY: Final = Topic(
    name="afterturn.snapshot.replay.v1", partitions=6, retention=timedelta(days=14)
)
RECORD_CHANGED: Final = Topic(
    name="afterturn.record.changed.v1", partitions=6, retention=timedelta(days=14)
)

DELAYS: Final[dict[str, timedelta]] = {
    "5s": timedelta(seconds=5),
    "30s": timedelta(seconds=30),
    "2m": timedelta(minutes=2),
    "10m": timedelta(minutes=10),
    "1h": timedelta(hours=1),
}


def _tiers(stage: Stage) -> tuple[RetryTier, ...]:
    return tuple(
        RetryTier(
            topic=Topic(
                name=f"afterturn.{stage}.retry.{tier}.v1",
                partitions=3,
                retention=timedelta(days=7),
                is_log_append_time=True,
            ),
            delay=delay,
        )
        for tier, delay in DELAYS.items()
    )


RETRY_TIERS: Final[dict[Stage, tuple[RetryTier, ...]]] = {
    Stage.EXTRACTION: _tiers(Stage.EXTRACTION),
    Stage.EMBEDDING: _tiers(Stage.EMBEDDING),
}
"""Shortest delay first. The snapshot stage has none: what can fail there is held in place."""

DEAD: Final[dict[Stage, Topic]] = {
    stage: Topic(name=f"afterturn.{stage}.dead.v1", partitions=3, retention=timedelta(days=90))
    for stage in Stage
}

GROUPS: Final[dict[Stage, str]] = {stage: f"afterturn.{stage}" for stage in Stage}
"""The consumer group of each stage; its retry tiers are read by `<group>.retry`."""

TOPICS: Final[tuple[Topic, ...]] = (
    TURN_RECORDED,
    SNAPSHOT_READY,
    SNAPSHOT_REPLAY,
    RECORD_CHANGED,
    *(tier.topic for tiers in RETRY_TIERS.values() for tier in tiers),
    *DEAD.values(),
)
