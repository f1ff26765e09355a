"""Topics made explicitly, and checked for what we rely on: nothing of ours is auto-created."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, cast

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    KafkaError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.metadata import MetadataRequest

from pipeline.errors import BrokerUnavailableError, ConfigurationError
from pipeline.settings import KafkaSettings
from producers.half_open import closing_half_open
from schemas.topics import DEAD, RETRY_TIERS, TOPICS, Topic

CALL_TIMEOUT: Final = timedelta(seconds=15)
CLOSE_TIMEOUT: Final = timedelta(seconds=2)
SETTLE_TIMEOUT: Final = timedelta(seconds=15)
"""How long a broker may take to show a topic it has just made."""
SETTLE_INTERVAL: Final = timedelta(milliseconds=100)

MAXIMUM_MESSAGE_BYTES: Final = 64 * 1024
"""Events have 4 KiB at most; what is larger is refused where it is sent."""
MAXIMUM_FORWARDED_BYTES: Final = 2 * MAXIMUM_MESSAGE_BYTES
"""Tiers and dead topics take whatever a topic of ours took, with our headers on it."""
REPLICAS_FOR_QUORUM: Final = 3

_FORWARD_TARGETS: Final = frozenset(
    {
        *(tier.topic.name for tiers in RETRY_TIERS.values() for tier in tiers),
        *(topic.name for topic in DEAD.values()),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsReport:
    """What `apply_topics` did and found."""

    created: tuple[str, ...]
    existing: tuple[str, ...]
    problems: tuple[str, ...]
    """What is wrong with existing ones, and what to do; they are never changed for you."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A topic as the broker has it."""

    partitions: int
    replicas: int
    configs: dict[str, str]


async def apply_topics(
    settings: KafkaSettings, *, topics: Sequence[Topic] = TOPICS
) -> TopicsReport:
    """Create the topics that are missing. Idempotent, also when others do the same.

    Raises:
        BrokerUnavailableError: Kafka did not answer in time.
        ConfigurationError: It refused to create one; the message says why and what to do.
    """
    async with _administering(settings) as admin:
        found = await _found(admin, topics)
        missing = [topic for topic in topics if topic.name not in found]
        created = await _create(admin, missing, settings) if missing else []
        found = await _settled(admin, topics)
    return TopicsReport(
        created=tuple(created),
        existing=tuple(topic.name for topic in topics if topic.name not in created),
        problems=tuple(_problems(topics, found, settings)),
    )


async def check_topics(settings: KafkaSettings, *, topics: Sequence[Topic] = TOPICS) -> list[str]:
    """Return what is wrong with the topics and what to do; nothing where all is well.

    Raises:
        BrokerUnavailableError: Kafka did not answer in time.
    """
    async with _administering(settings) as admin:
        return _problems(topics, await _found(admin, topics), settings)


@asynccontextmanager
async def _administering(settings: KafkaSettings) -> AsyncGenerator[Any]:
    admin: Any = AIOKafkaAdminClient(
        bootstrap_servers=settings.bootstrap_servers,
        client_id="afterturn-topics",
        request_timeout_ms=int(settings.request_timeout.total_seconds() * 1000),
    )
    try:
        async with asyncio.timeout(CALL_TIMEOUT.total_seconds()):
            with closing_half_open():
                await admin.start()
        yield admin
    except (KafkaError, TimeoutError) as error:
        raise BrokerUnavailableError(
            f"Kafka at {settings.bootstrap_servers} did not answer ({type(error).__name__}): "
            "start it, or name it in AFTERTURN_KAFKA__BOOTSTRAP_SERVERS; `./afterturn up` starts "
            "one here"
        ) from error
    finally:
        with suppress(KafkaError, OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT.total_seconds()):
                await admin.close()


async def _found(admin: Any, topics: Sequence[Topic]) -> dict[str, _Found]:
    """Return those of the topics that each broker asked knows, led in all their partitions.

    It asks for all there are: to ask for one in particular makes many brokers create it.
    """
    async with asyncio.timeout(CALL_TIMEOUT.total_seconds()):
        described = cast("list[dict[str, Any]]", await admin.describe_topics(None))
        names = {topic.name for topic in topics}
        there = {each["topic"]: each["partitions"] for each in described if each["topic"] in names}
        configs = await _configs(admin, sorted(there)) if there else {}
    return {
        name: _Found(
            partitions=len(partitions),
            replicas=min(len(partition["replicas"]) for partition in partitions),
            configs=configs[name],
        )
        for name, partitions in there.items()
        if name in configs
        and partitions
        and all(partition["leader"] >= 0 for partition in partitions)
    }


async def _configs(admin: Any, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the settings by topic; a broker may not have heard of one that another has."""
    asked = dict.fromkeys(
        ("message.timestamp.type", "retention.ms", "max.message.bytes", "min.insync.replicas"), ""
    )
    responses = await admin.describe_configs(
        [ConfigResource(ConfigResourceType.TOPIC, name, configs=asked) for name in names]
    )
    configs: dict[str, dict[str, str]] = {}
    for resource in (each for response in responses for each in response.to_object()["resources"]):
        error = for_code(resource["error_code"])
        if not resource["error_code"]:
            configs[resource["resource_name"]] = {
                entry["config_names"]: entry["config_value"] for entry in resource["config_entries"]
            }
        elif error is not UnknownTopicOrPartitionError:
            raise ConfigurationError(
                f"Kafka refused to describe the topic {resource['resource_name']} "
                f"({error.__name__}): allow this client DescribeConfigs on it"
            )
    return configs


async def _create(admin: Any, missing: Sequence[Topic], settings: KafkaSettings) -> list[str]:
    async with asyncio.timeout(CALL_TIMEOUT.total_seconds()):
        response = await admin.create_topics([_new(topic, settings) for topic in missing])
    created: list[str] = []
    for answer in response.to_object()["topic_errors"]:
        error = for_code(answer["error_code"])
        if not answer["error_code"]:
            created.append(answer["topic"])
        elif error is not TopicAlreadyExistsError:
            raise ConfigurationError(
                f"Kafka refused to create the topic {answer['topic']} ({error.__name__}: "
                f"{answer['error_message']}): check AFTERTURN_KAFKA__REPLICATION_FACTOR against "
                "the number of brokers, and what this client is allowed to do"
            )
    return created


def _quorum(settings: KafkaSettings) -> int:
    """Return how many replicas must have what is acknowledged: most of three or more, else one."""
    factor = settings.replication_factor
    return factor // 2 + 1 if factor >= REPLICAS_FOR_QUORUM else 1


def _new(topic: Topic, settings: KafkaSettings) -> NewTopic:
    configs = {
        "cleanup.policy": "delete",
        "retention.ms": str(_milliseconds(topic.retention)),
        "message.timestamp.type": _timestamp_type(topic),
        "max.message.bytes": str(_maximum_bytes(topic)),
    }
    configs["min.insync.replicas"] = str(_quorum(settings))
    return NewTopic(
        topic.name,
        num_partitions=topic.partitions,
        replication_factor=settings.replication_factor,
        topic_configs=configs,
    )


async def _settled(admin: Any, topics: Sequence[Topic]) -> dict[str, _Found]:
    """Wait until every broker knows the topics: whoever asks next may ask any of them."""
    async with asyncio.timeout(SETTLE_TIMEOUT.total_seconds()):
        while True:
            found = await _found(admin, topics)
            is_complete = len(found) == len({topic.name for topic in topics})
            if is_complete and await _is_known_everywhere(admin, found.keys()):
                return found
            await asyncio.sleep(SETTLE_INTERVAL.total_seconds())


async def _is_known_everywhere(admin: Any, names: Collection[str]) -> bool:
    """Return whether each broker that can be asked knows the topics and who leads them."""
    for broker in (await admin.describe_cluster())["brokers"]:
        try:
            metadata = await admin._client.send(broker["node_id"], MetadataRequest(None))
        except KafkaError:
            continue  # it is gone, and misleads nobody
        known = {
            each["topic"]
            for each in metadata.to_object()["topics"]
            if each["partitions"] and all(one["leader"] >= 0 for one in each["partitions"])
        }
        if not known.issuperset(names):
            return False
    return True


def _problems(
    topics: Sequence[Topic], found: dict[str, _Found], settings: KafkaSettings
) -> list[str]:
    return [
        problem
        for topic in topics
        for problem in (
            _flaws(topic, found[topic.name], settings)
            if topic.name in found
            else (f"topic {topic.name} is missing: run `./afterturn topics apply`",)
        )
    ]


def _flaws(topic: Topic, found: _Found, settings: KafkaSettings) -> list[str]:
    flaws: list[str] = []
    if found.partitions < topic.partitions:
        flaws.append(
            f"topic {topic.name} has {found.partitions} partitions, not {topic.partitions}: add "
            f"them with `kafka-topics.sh --alter --topic {topic.name} "
            f"--partitions {topic.partitions}`"
        )
    elif found.partitions > topic.partitions:
        flaws.append(
            f"topic {topic.name} has {found.partitions} partitions, not {topic.partitions}: they "
            "can't be taken away; stop what writes to it, let it be read to its end, delete it and "
            "run `./afterturn topics apply`"
        )
    timestamp_type = found.configs.get("message.timestamp.type")
    if topic.is_log_append_time and timestamp_type != _timestamp_type(topic):
        flaws.append(
            f"topic {topic.name} has message.timestamp.type={timestamp_type}, so its messages "
            "would not be due by the broker's clock: set it to LogAppendTime with "
            f"`kafka-configs.sh --alter --topic {topic.name} "
            "--add-config message.timestamp.type=LogAppendTime`"
        )
    retention_ms = int(found.configs.get("retention.ms", "-1"))
    if 0 <= retention_ms < _milliseconds(topic.retention):
        flaws.append(
            f"topic {topic.name} keeps its messages for {retention_ms} ms only: raise retention.ms "
            f"to {_milliseconds(topic.retention)} with `kafka-configs.sh`"
        )
    maximum_bytes = int(found.configs.get("max.message.bytes", _maximum_bytes(topic)))
    if maximum_bytes < _maximum_bytes(topic):
        flaws.append(
            f"topic {topic.name} takes messages of {maximum_bytes} bytes only: raise "
            f"max.message.bytes to {_maximum_bytes(topic)} with `kafka-configs.sh`"
        )
    quorum, in_sync = _quorum(settings), int(found.configs.get("min.insync.replicas", "1"))
    if in_sync < quorum:
        flaws.append(
            f"topic {topic.name} acknowledges what {in_sync} replicas have, not {quorum}: raise "
            "min.insync.replicas with `kafka-configs.sh`, or what was acknowledged may get lost"
        )
    if found.replicas < settings.replication_factor:
        flaws.append(
            f"topic {topic.name} has {found.replicas} replicas, not "
            f"{settings.replication_factor}: add some with `kafka-reassign-partitions.sh` or lower "
            "AFTERTURN_KAFKA__REPLICATION_FACTOR"
        )
    return flaws


def _timestamp_type(topic: Topic) -> str:
    return "LogAppendTime" if topic.is_log_append_time else "CreateTime"


def _maximum_bytes(topic: Topic) -> int:
    return MAXIMUM_FORWARDED_BYTES if topic.name in _FORWARD_TARGETS else MAXIMUM_MESSAGE_BYTES


def _milliseconds(span: timedelta) -> int:
    return int(span.total_seconds() * 1000)
