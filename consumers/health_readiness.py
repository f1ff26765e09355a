"""Whether a process can do its work now: each dependency, how it is, and what to do about it."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

from aiokafka import TopicPartition
from pymongo.errors import PyMongoError

from pipeline.embedding.choosing import model_name
from pipeline.embedding.ports import ActiveModel
from pipeline.errors import BrokerUnavailableError, ConfigurationError
from pipeline.settings import EmbeddingSettings, KafkaSettings, LLMSettings
from pipeline.stores.mongo import Database
from producers.topics import check_topics
from schemas.topics import Topic

CHECK_TIMEOUT: Final = timedelta(seconds=3)
_MEND_TOPICS: Final = "run `./afterturn doctor` and do what it says of the topics"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """How a dependency is. It names settings, never their values."""

    state: Literal["well", "unreachable", "wrong"]
    detail: str
    action: str | None = None
    """What to do; none where it is well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """What a process can't do its work without."""

    name: str
    check: Callable[[], Awaitable[Condition]]


async def conditions(
    dependencies: Sequence[Dependency], timeout: timedelta = CHECK_TIMEOUT
) -> dict[str, Condition]:
    """Return how each is, all looked at side by side and none for longer than the timeout."""

    async def look(dependency: Dependency) -> Condition:
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                return await dependency.check()
        except TimeoutError:
            return Condition(
                state="unreachable",
                detail=f"no answer in {timeout.total_seconds():g} s",
                action=f"see that {dependency.name} runs and can be reached from here",
            )

    found = await asyncio.gather(*map(look, dependencies))
    return {each.name: condition for each, condition in zip(dependencies, found, strict=True)}


def mongo(database: Database) -> Dependency:
    """Return MongoDB."""

    async def check() -> Condition:
        try:
            await database.command("ping")
        except PyMongoError as error:
            return Condition(
                state="unreachable",
                detail=type(error).__name__,
                action="start it, or name it in AFTERTURN_MONGO__URI; work goes on by itself",
            )
        return Condition(state="well", detail="it answers")

    return Dependency(name="mongo", check=check)


def kafka(
    settings: KafkaSettings,
    topics: Sequence[Topic],
    *,
    unreadable: Callable[[], Collection[TopicPartition]] = tuple,
) -> Dependency:
    """Return Kafka with the topics that are needed, and what of them can't be read here."""

    async def check() -> Condition:
        try:
            problems = await check_topics(settings, topics=topics)
        except BrokerUnavailableError as error:
            return Condition(
                state="unreachable",
                detail=type(error.__cause__ or error).__name__,
                action="start it, or name it in AFTERTURN_KAFKA__BOOTSTRAP_SERVERS; recording needs"
                " none of it, the rest goes on by itself",
            )
        except ConfigurationError as error:
            return Condition(state="wrong", detail=str(error), action=_MEND_TOPICS)
        if problems:
            return Condition(
                state="wrong",
                detail="; ".join(problems),
                action=_MEND_TOPICS,
            )
        if broken := sorted(unreadable()):
            return Condition(
                state="wrong",
                detail="a record can't be read, and holds its partition: "
                + ", ".join(f"{each.topic}/{each.partition}" for each in broken),
                action="do what `record_unreadable` says in the log; a restart mends nothing",
            )
        return Condition(state="well", detail=f"{len(topics)} topics are as they should be")

    return Dependency(name="kafka", check=check)


def model(settings: LLMSettings) -> Dependency:
    """Return the model; it is looked at whether one is configured, and nothing is asked of it."""

    async def check() -> Condition:
        if settings.provider is None or not settings.model:
            return Condition(
                state="wrong",
                detail="none is configured",
                action="set AFTERTURN_LLM__PROVIDER and AFTERTURN_LLM__MODEL",
            )
        return Condition(state="well", detail="one is configured")

    return Dependency(name="model", check=check)


def embedder(active_model: ActiveModel, settings: EmbeddingSettings) -> Dependency:
    """Return the embedder: whether its vectors are those that are searched; nothing is asked."""

    async def check() -> Condition:
        try:
            configured, active = model_name(settings), await active_model.active()
        except ConfigurationError as error:
            return Condition(state="wrong", detail="none is configured", action=str(error))
        except PyMongoError as error:
            return Condition(state="unreachable", detail=type(error).__name__, action="see mongo")
        if active not in (None, configured):
            return Condition(
                state="wrong",
                detail="the vectors that are searched are those of another model",
                action="run `./afterturn reembed`, or set AFTERTURN_EMBEDDING__* back",
            )
        return Condition(state="well", detail="one is configured")

    return Dependency(name="embedder", check=check)
