"""Where an installation stands, in numbers: for the command line and the console alike."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any, Final

from consumers.lag import group_lag
from consumers.wiring import Installation
from pipeline.errors import BrokerUnavailableError, ConfigurationError
from pipeline.failing.failures import action
from pipeline.failing.reasons import Reason, remedy
from pipeline.failing.resuming import is_held_back
from pipeline.settings import Settings
from pipeline.stores.switches import MongoBreakers, MongoGuards
from producers.topics import check_topics
from schemas.breaker import Breaker, BreakerPhase
from schemas.embedding import EmbeddingState
from schemas.topics import (
    GROUPS,
    RECORD_CHANGED,
    RETRY_TIERS,
    SNAPSHOT_READY,
    TURN_RECORDED,
    Stage,
    Topic,
)

_MEND: Final = "Mend its cause."


async def ledger_status(parts: Installation) -> dict[str, Any]:
    """Return what MongoDB knows: what waits, where and since when, and what was set aside."""
    return {
        "open": await _open(parts),
        "extractions": await _extractions(parts),
        "embeddings": await _embeddings(parts),
        "letters": await _letters(parts),
        "held_back": await held_back(parts),
        "unfinished": await _unfinished(parts),
    }


async def broker_status(settings: Settings) -> dict[str, Any]:
    """Return what Kafka knows: `lag` by group, none where it does not answer, and what is wrong."""
    return {"lag": await _lag(settings), "topics": await topic_problems(settings)}


async def _open(parts: Installation) -> dict[str, Any]:
    sessions = await parts.turns.open_sessions()
    now = datetime.fromtimestamp(await parts.server_time.now_ms() / 1000, UTC)
    oldest = min((one.oldest_recorded_at for one in sessions), default=None)
    return {
        "sessions": len(sessions),
        "turns": sum(one.turns for one in sessions),
        "oldest_seconds": None if oldest is None else round((now - oldest).total_seconds(), 1),
    }


async def _extractions(parts: Installation) -> dict[str, Any]:
    """Return the pending ones: queued, worked on, waiting in a tier with its next due time."""
    now_ms = await parts.server_time.now_ms()
    waiting: Counter[str] = Counter()
    due_ms: dict[str, int] = {}
    reasons: Counter[str] = Counter()
    actions: dict[str, str] = {}
    claimed = queued = 0
    cursor = parts.database["snapshots"].find({"wake_at_ms": {"$exists": True}}, {"active_run": 1})
    async for snapshot in cursor:
        extraction = await parts.extractions.get(f"{snapshot['_id']}:{snapshot['active_run']}")
        if extraction is None or extraction.outcome is not None:
            queued += extraction is None
            continue
        if extraction.claim is not None and extraction.claim.lease_until_ms > now_ms:
            claimed += 1
            continue
        if extraction.next.due_ms <= now_ms and not extraction.attempts:
            queued += 1
            continue
        topic = extraction.next.topic
        waiting[topic] += 1
        due_ms[topic] = min(due_ms.get(topic, extraction.next.due_ms), extraction.next.due_ms)
        if extraction.attempts:
            failure = extraction.attempts[-1].failure
            reasons[failure.reason] += 1
            actions[failure.reason] = remedy(failure.reason) or action(failure)
    return {
        "queued": queued,
        "worked_on": claimed,
        "waiting": {
            topic: {
                "extractions": count,
                "next_due_at": datetime.fromtimestamp(due_ms[topic] / 1000, UTC).isoformat(),
            }
            for topic, count in sorted(waiting.items())
        },
        "reasons": {
            reason: {"extractions": count, "action": actions[reason]}
            for reason, count in reasons.items()
        },
    }


async def _embeddings(parts: Installation) -> dict[str, Any]:
    """Return how many records have which embedding, whose vectors are searched, and what waits."""
    records = parts.database["records"]
    reasons: Counter[str] = Counter()
    failing = {"embedding.state": "pending", "embedding.attempts.0": {"$exists": True}}
    async for document in records.find(failing, {"embedding.attempts.failure.reason": 1}):
        reasons[document["embedding"]["attempts"][-1]["failure"]["reason"]] += 1
    configured = parts.settings.embedding.provider
    return {
        "configured": configured,
        "active": await parts.active_model.active(),
        **{
            state.value: await records.count_documents({"embedding.state": state.value})
            for state in EmbeddingState
        },
        "reasons": {
            reason: {"records": count, "action": remedy(reason)}
            for reason, count in sorted(reasons.items())
        },
    }


async def _letters(parts: Installation) -> dict[str, Any]:
    by_reason: Counter[str] = Counter()
    actions: dict[str, str] = {}
    cursor = parts.database["letters"].find({"state": "dead"}, {"reason": 1, "action": 1})
    async for letter in cursor:
        by_reason[letter["reason"]] += 1
        actions[letter["reason"]] = letter["action"]
    return {
        reason: {"letters": count, "action": actions[reason]}
        for reason, count in sorted(by_reason.items())
    }


async def _unfinished(parts: Installation) -> dict[str, int]:
    """Return what the waker will finish if nobody else does."""
    return {
        name: await parts.database[collection].count_documents({field: {"$exists": True}})
        for name, collection, field in (
            ("unsent_fates", "extractions", "unsent_since_ms"),
            ("unsent_letters", "letters", "unsent"),
            ("dirty_records", "records", "dirty"),
            ("unannounced_records", "records", "unannounced"),
        )
    }


async def _lag(settings: Settings) -> dict[str, int] | None:
    """Return by group how many messages are not committed; none where Kafka does not answer."""
    topics_by_group: dict[str, tuple[Topic, ...]] = {
        GROUPS[Stage.SNAPSHOT]: (TURN_RECORDED,),
        GROUPS[Stage.EXTRACTION]: (SNAPSHOT_READY,),
        f"{GROUPS[Stage.EXTRACTION]}.retry": tuple(
            tier.topic for tier in RETRY_TIERS[Stage.EXTRACTION]
        ),
    }
    if settings.embedding.provider != "none":
        embedding = GROUPS[Stage.EMBEDDING]
        topics_by_group[embedding] = (RECORD_CHANGED, TURN_RECORDED)
        topics_by_group[f"{embedding}.retry"] = tuple(
            tier.topic for tier in RETRY_TIERS[Stage.EMBEDDING]
        )
    try:
        return {
            group: sum(lag.messages for lag in await group_lag(settings.kafka, group, topics))
            for group, topics in topics_by_group.items()
        }
    except BrokerUnavailableError:
        return None


async def topic_problems(settings: Settings) -> list[str]:
    """Return what is wrong and what to do; nothing where Kafka does not answer."""
    try:
        return await check_topics(settings.kafka)
    except BrokerUnavailableError:
        return []
    except ConfigurationError as error:
        return [str(error)]


async def held_back(parts: Installation) -> list[dict[str, Any]]:
    """Return what breakers and guards hold back, why, and what to do.

    That is every breaker that is not closed, or whose vendor asked for time, and every guard that
    has tripped.
    """
    now_ms = await parts.server_time.now_ms()
    breakers = [
        _breaker(breaker, is_slow=breaker.slow_until_ms > now_ms)
        for breaker in await MongoBreakers(parts.database).all()
        if is_held_back(breaker, now_ms=now_ms)
    ]
    guards = [
        {
            "kind": "guard",
            "name": guard.guard_id,
            "state": "tripped",
            "reason": guard.reason,
            "action": "Put the former prompt or model back.",
            "since_ms": guard.tripped_at_ms,
        }
        for guard in await MongoGuards(parts.database).all()
        if guard.tripped_at_ms is not None
    ]
    return [*breakers, *guards]


def _breaker(breaker: Breaker, *, is_slow: bool) -> dict[str, Any]:
    is_asked_to_wait = is_slow and breaker.phase is BreakerPhase.CLOSED
    reason = Reason.HTTP_429.value if is_asked_to_wait else breaker.reason
    return {
        "kind": "breaker",
        "name": breaker.breaker_id,
        "state": "slowed down" if is_asked_to_wait else breaker.phase.value,
        "reason": reason,
        "action": remedy(reason or "") or _MEND,
        "next_try_ms": max(breaker.try_at_ms, breaker.slow_until_ms),
    }
