"""The consumers of each stage as FastStream apps: settings and steps in, running subscribers out.

FastStream reads and supervises; what to do with a record is the pool's and the step's. Nothing
commits but the pool: FastStream's acknowledgements are off, aiokafka's auto-commit is off.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final, cast

import structlog
from aiokafka.errors import KafkaError
from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker

from consumers.commits import PartitionConsumer
from consumers.due import DueTimes
from consumers.health_progress import Watched
from consumers.isolation import Isolation
from consumers.parsing import Record, incoming, raw_decoder, total_parser
from consumers.pool import Pool, PoolLimits, SerialBy, key_of
from consumers.reading import HoldingConsumer
from consumers.topics_watch import TopicsWatch
from pipeline.embedding.naming import subject_of
from pipeline.ending import end
from pipeline.errors import BrokerUnavailableError, ConfigurationError
from pipeline.metrics import NO_METRICS, Metrics
from pipeline.ports.clocks import ServerTime
from pipeline.ports.step import Step
from pipeline.settings import KafkaSettings, Settings
from producers.topics import check_topics
from schemas.topics import (
    GROUPS,
    RECORD_CHANGED,
    SNAPSHOT_READY,
    SNAPSHOT_REPLAY,
    TOPICS,
    TURN_RECORDED,
    RetryTier,
    Stage,
    Topic,
)

SNAPSHOT_CONCURRENCY: Final = 16
STEPS_PER_PERMIT: Final = 2
"""Steps wait for a permit inside: while some do, others read and write."""
FIRST_BACKOFF: Final = timedelta(milliseconds=500)
LONGEST_BACKOFF: Final = timedelta(seconds=10)
DISCONNECT_TIMEOUT: Final = timedelta(seconds=5)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What one subscriber reads, and what becomes of it."""

    name: str
    """Part of its client's and instance's name: distinct within an installation."""
    group: str
    topics: tuple[Topic, ...]
    step: Step
    concurrency: int
    serial_by: SerialBy | None = None
    """As in `PoolLimits`."""
    due: DueTimes | None = None
    isolation: Isolation | None = None
    """What its steps run in, if they do."""


class ConsumerApp:
    """The subscribers of one process, from waiting for Kafka to the last commit.

    Concurrency: start, then stop, once each; stop may come while it is starting still.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        subscriptions: Sequence[Subscription],
        metrics: Metrics = NO_METRICS,
        *,
        topics: Sequence[Topic] = (),
    ) -> None:
        self._settings = settings
        self._topics = tuple(topics) or tuple(
            topic for each in subscriptions for topic in each.topics
        )
        """What it relies on: by default, what it reads."""
        self._watching: asyncio.Task[None] | None = None
        self._metrics = metrics
        self._subscriptions = tuple(subscriptions)
        self._broker: KafkaBroker | None = None
        self._consumers: dict[str, Callable[[], PartitionConsumer | None]] = {}
        self.pools = {each.name: self._pool(each) for each in subscriptions}
        """By the subscription's name."""

    def watched(self) -> list[Watched]:
        """Return what must move while there is work."""
        return [
            Watched(
                name=each.name, group=each.group, topics=each.topics, pool=self.pools[each.name]
            )
            for each in self._subscriptions
        ]

    async def start(self) -> None:
        """Return when every subscriber has its partitions; wait for Kafka until then.

        Raises:
            ConfigurationError: A topic is missing or is not what we rely on.
        """
        failures = 0
        while True:
            try:
                await self._start()
            except (BrokerUnavailableError, KafkaError, OSError, TimeoutError) as error:
                await self._disconnect()
                backoff = min(FIRST_BACKOFF * 2 ** min(failures, 10), LONGEST_BACKOFF)
                failures += 1
                log.warning(
                    "kafka_unreachable",
                    bootstrap_servers=self._settings.bootstrap_servers,
                    exception=type(error).__name__,
                    again_in_seconds=backoff.total_seconds(),
                    advice="start Kafka, or set AFTERTURN_KAFKA__BOOTSTRAP_SERVERS",
                )
                await asyncio.sleep(backoff.total_seconds())
            else:
                return

    async def stop(self) -> None:
        """Drain, commit and disconnect, each within its limit, whatever Kafka does."""
        await self._drain()
        await self._disconnect()

    def lasting(self) -> list[asyncio.Task[None]]:
        """Return the watch over its topics: consumers that fail are its health's concern."""
        return [] if self._watching is None else [self._watching]

    def faststream(self) -> FastStream:
        """Return it as an app that `faststream run` can start; Kafka must be there by then."""
        broker = self._broker = self._new_broker()
        return FastStream(
            broker,
            logger=_faststream_log(),
            on_startup=[partial(self._prepare, broker)],
            on_shutdown=[self._drain],
        )

    async def _start(self) -> None:
        broker = self._broker = self._new_broker()
        seconds = self._settings.rebalance_timeout + self._settings.session_timeout
        async with asyncio.timeout(seconds.total_seconds()):
            await self._prepare(broker)
            await broker.start()
        log.info("consumers_started", subscriptions=[each.name for each in self._subscriptions])

    async def _prepare(self, broker: KafkaBroker) -> None:
        problems = await self._check_topics()
        if problems:
            raise ConfigurationError("; ".join(problems))
        await broker.connect()
        config = broker.config.broker_config
        config.builder = partial(self._build, cast("partial[Any]", config.builder).keywords)
        for pool in self.pools.values():
            pool.start()
        if self._watching is None:
            watch = TopicsWatch(self._check_topics, interval=self._settings.session_timeout)
            self._watching = asyncio.create_task(watch.run(), name="topics watch")

    async def _check_topics(self) -> list[str]:
        return await check_topics(self._settings, topics=self._topics)

    async def _drain(self) -> None:
        watching, self._watching = self._watching, None
        # It has as long as the pools to let go of Kafka, so a stop takes no longer for it.
        watch_ends = end([] if watching is None else [watching])
        await asyncio.gather(watch_ends, *(pool.stop() for pool in self.pools.values()))

    async def _disconnect(self) -> None:
        broker, self._broker = self._broker, None
        if broker is None:
            return
        try:
            async with asyncio.timeout(DISCONNECT_TIMEOUT.total_seconds()):
                await broker.stop()
        except (TimeoutError, KafkaError, OSError, ExceptionGroup) as error:
            log.warning("consumers_abandoned", exception=type(error).__name__)
            # Side by side: the arithmetic of a stop counts this once.
            await asyncio.gather(
                *(_abandon(self._consumer(each.name)) for each in self._subscriptions)
            )

    def _new_broker(self) -> KafkaBroker:
        settings = self._settings
        broker = KafkaBroker(
            # One text of several would be taken for the name of one.
            settings.bootstrap_servers.split(","),
            client_id="afterturn",
            request_timeout_ms=_milliseconds(settings.request_timeout),
            # A topic that was made again, or has new partitions, is noticed as soon as a member
            # that is gone; after five minutes by default.
            metadata_max_age_ms=_milliseconds(settings.session_timeout),
            consumer_only=True,
            allow_auto_create_topics=False,
            graceful_timeout=1.0,
            apply_types=False,
            parser=total_parser,
            decoder=raw_decoder,
            logger=_faststream_log(),
            log_level=logging.DEBUG,
        )
        for subscription in self._subscriptions:
            self._subscribe(broker, subscription)
        return broker

    def _subscribe(self, broker: KafkaBroker, subscription: Subscription) -> None:
        settings = self._settings
        pool = self.pools[subscription.name]
        subscriber = broker.subscriber(
            *(topic.name for topic in subscription.topics),
            group_id=subscription.group,
            group_instance_id=(
                f"{settings.instance_id}.{subscription.name}" if settings.instance_id else None
            ),
            auto_offset_reset="earliest",
            ack_policy=AckPolicy.MANUAL,
            no_reply=True,
            max_poll_interval_ms=_milliseconds(settings.max_poll_interval),
            session_timeout_ms=_milliseconds(settings.session_timeout),
            heartbeat_interval_ms=_milliseconds(settings.heartbeat_interval),
            rebalance_timeout_ms=_milliseconds(settings.rebalance_timeout),
            listener=pool,
            title=subscription.name,
            description=f"What {subscription.group} reads.",
        )
        self._consumers[subscription.name] = lambda: cast(
            "PartitionConsumer | None", subscriber.consumer
        )

        async def hand_over(record: Record) -> None:
            pool.submit(incoming(record, group=subscription.group))

        subscriber(hand_over)

    def _consumer(self, name: str) -> PartitionConsumer | None:
        consumer = self._consumers.get(name)
        return None if consumer is None else consumer()

    def _build(self, broker_options: dict[str, Any], **options: Any) -> HoldingConsumer:
        """Build a subscriber's consumer under a client id of its own."""
        group: str = options["group_id"]
        own: dict[str, Any] = {"client_id": f"{options['client_id']}.{group}"}
        (name,) = (each.name for each in self._subscriptions if each.group == group)
        return HoldingConsumer(rest=self.pools[name].rest, **broker_options | options | own)

    def _pool(self, subscription: Subscription) -> Pool:
        return Pool(
            subscription.step,
            PoolLimits(
                concurrency=subscription.concurrency,
                drain_timeout=self._settings.drain_timeout,
                commit_timeout=self._settings.request_timeout,
                serial_by=subscription.serial_by,
            ),
            name=subscription.name,
            consumer=partial(self._consumer, subscription.name),
            due=subscription.due,
            metrics=self._metrics,
            isolation=subscription.isolation,
        )


def snapshot_app(settings: Settings, step: Isolation, metrics: Metrics = NO_METRICS) -> ConsumerApp:
    """Return what cuts sessions into snapshots; wake-ups of one session come one by one."""
    return ConsumerApp(
        settings.kafka,
        [
            Subscription(
                name="snapshot",
                group=GROUPS[Stage.SNAPSHOT],
                topics=(TURN_RECORDED,),
                step=step,
                concurrency=SNAPSHOT_CONCURRENCY,
                serial_by=key_of,
                isolation=step,
            )
        ],
        metrics,
        topics=TOPICS,
    )


def extraction_app(
    settings: Settings,
    step: Isolation,
    *,
    tiers: Sequence[RetryTier],
    server_time: ServerTime,
    metrics: Metrics = NO_METRICS,
) -> ConsumerApp:
    """Return what extracts snapshots: new ones, replayed ones, and from its tiers when due."""
    concurrency = STEPS_PER_PERMIT * settings.extraction.permits
    group = GROUPS[Stage.EXTRACTION]
    return ConsumerApp(
        settings.kafka,
        [
            Subscription(
                name="extraction",
                group=group,
                topics=(SNAPSHOT_READY, SNAPSHOT_REPLAY),
                step=step,
                concurrency=concurrency,
                isolation=step,
            ),
            retry_subscription(
                "extraction.retry",
                group=group,
                step=step,
                tiers=tiers,
                server_time=server_time,
                concurrency=concurrency,
                isolation=step,
            ),
        ],
        metrics,
        topics=TOPICS,
    )


def embedding_app(
    settings: Settings,
    step: Isolation,
    *,
    tiers: Sequence[RetryTier],
    server_time: ServerTime,
    metrics: Metrics = NO_METRICS,
) -> ConsumerApp:
    """Return what embeds records and turns: changed ones, new ones, and from its tiers when due.

    What is told of one record or turn comes one by one: a copy that was sent because the first one
    takes long finds it done, and asks for nothing. Those of many are embedded together.
    """
    concurrency = STEPS_PER_PERMIT * settings.embedding.batch
    group = GROUPS[Stage.EMBEDDING]
    return ConsumerApp(
        settings.kafka,
        [
            Subscription(
                name="embedding",
                group=group,
                topics=(RECORD_CHANGED, TURN_RECORDED),
                step=step,
                concurrency=concurrency,
                serial_by=subject_of,
                isolation=step,
            ),
            retry_subscription(
                "embedding.retry",
                group=group,
                step=step,
                tiers=tiers,
                server_time=server_time,
                concurrency=concurrency,
                isolation=step,
            ),
        ],
        metrics,
        topics=TOPICS,
    )


def retry_subscription(
    name: str,
    *,
    group: str,
    step: Step,
    tiers: Sequence[RetryTier],
    server_time: ServerTime,
    concurrency: int,
    isolation: Isolation | None = None,
) -> Subscription:
    """Return the one subscriber over all retry tiers of a stage."""
    return Subscription(
        name=name,
        group=f"{group}.retry",
        topics=tuple(tier.topic for tier in tiers),
        step=step,
        concurrency=concurrency,
        due=DueTimes(tiers, server_time),
        isolation=isolation,
    )


async def _abandon(consumer: Any) -> None:
    """Cut the connections of a consumer that did not stop in time."""
    if consumer is None:
        return
    consumer._closed = True
    try:
        async with asyncio.timeout(DISCONNECT_TIMEOUT.total_seconds()):
            await consumer._client.close()
    except (TimeoutError, KafkaError, OSError):
        log.warning("consumer_not_disconnected")


def _faststream_log() -> logging.Logger:
    """Return a log of FastStream's errors; it warns of not creating topics, which we don't want."""
    logger = logging.Logger("afterturn.faststream", logging.ERROR)  # noqa: LOG001 (process-wide else)
    logger.parent = logging.getLogger()
    return logger


def _milliseconds(span: timedelta) -> int:
    return int(span.total_seconds() * 1000)
