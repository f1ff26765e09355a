"""`status`: what waits, where, since when, and what was set aside."""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer

from cli.connecting import connected
from cli.environment import DATA_DIR, AsJson, DataDir, option_of, settings_for
from cli.output import Output, counted
from cli.resuming import held_back
from cli.running import run
from consumers.lag import group_lag
from consumers.wiring import Installation
from pipeline.errors import BrokerUnavailableError, ConfigurationError
from pipeline.failing.failures import action
from pipeline.failing.reasons import remedy
from pipeline.settings import Settings
from producers.topics import check_topics
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


def register(application: typer.Typer) -> None:
    """Add the command."""
    application.command("status")(status)


def status(*, data_dir: DataDir = DATA_DIR, as_json: AsJson = False) -> None:
    """Show lag, open turns and their age, retry tiers with due times, and letters."""
    run(_status(settings_for(data_dir), data_dir, Output(as_json=as_json)))


async def _status(settings: Settings, data_dir: Path, output: Output) -> int:
    async with connected(settings, data_dir) as parts:
        result: dict[str, Any] = {
            "open": await _open(parts),
            "extractions": await _extractions(parts),
            "embeddings": await _embeddings(parts),
            "letters": await _letters(parts),
            "held_back": await held_back(parts),
            "unfinished": await _unfinished(parts),
            "lag": await _lag(settings),
            "topics": await topic_problems(settings),
        }
    _say(result, option_of(data_dir), output)
    output.result(result)
    return 0


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
    """Return how many records and turns have which embedding, and whose vectors are searched."""
    records, turns = parts.database["records"], parts.database["turns"]
    reasons: Counter[str] = Counter()
    failing = {"embedding.state": "pending", "embedding.attempts.0": {"$exists": True}}
    for owners in (records, turns):
        async for document in owners.find(failing, {"embedding.attempts.failure.reason": 1}):
            reasons[document["embedding"]["attempts"][-1]["failure"]["reason"]] += 1
    configured = parts.settings.embedding.provider
    return {
        "configured": configured,
        "active": await parts.active_model.active(),
        **{
            state.value: await records.count_documents({"embedding.state": state.value})
            for state in EmbeddingState
        },
        "turns": {
            state.value: await turns.count_documents({"embedding.state": state.value})
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


def _say(result: dict[str, Any], place: str, output: Output) -> None:
    opened, extractions = result["open"], result["extractions"]
    age = f", the oldest for {opened['oldest_seconds']} s" if opened["turns"] else ""
    output.say(f"open turns   {opened['turns']} in {counted(opened['sessions'], 'session')}{age}")
    output.say(f"extraction   {extractions['queued']} queued, {extractions['worked_on']} worked on")
    for topic, tier in extractions["waiting"].items():
        output.say(f"  {topic}: {tier['extractions']}, next due {tier['next_due_at']}")
    for reason, group in extractions["reasons"].items():
        output.say(f"  {group['extractions']} wait because of {reason}: {group['action']}")
    _say_embeddings(result["embeddings"], output)
    output.say(f"letters      {sum(one['letters'] for one in result['letters'].values())}")
    for reason, group in result["letters"].items():
        output.say(f"  {group['letters']} {reason}: {group['action']}")
    for one in result["held_back"]:
        output.say(
            f"HELD BACK    {one['kind']} {one['name']} is {one['state']} because of"
            f" {one['reason']}: {one['action']} Then `./afterturn resume {one['name']}{place}`"
        )
    output.say(
        "unfinished   " + ", ".join(f"{n} {name}" for name, n in result["unfinished"].items())
    )
    if result["lag"] is None:
        output.say("lag          unknown: Kafka does not answer; recording goes on without it")
    else:
        output.say("lag          " + ", ".join(f"{n} {g}" for g, n in result["lag"].items()))
    for problem in result["topics"]:
        output.say(f"TOPIC        {problem}")


def _say_embeddings(embeddings: dict[str, Any], output: Output) -> None:
    counts = ", ".join(f"{embeddings[state.value]} {state.value}" for state in EmbeddingState)
    output.say(f"embedding    {counts}; searched: {embeddings['active'] or 'no vectors yet'}")
    if any(embeddings["turns"].values()):
        turns = ", ".join(
            f"{embeddings['turns'][state.value]} {state.value}" for state in EmbeddingState
        )
        output.say(f"  of turns   {turns}")
    for reason, group in embeddings["reasons"].items():
        output.say(f"  {group['records']} wait because of {reason}: {group['action']}")
