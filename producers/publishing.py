"""Publishing to Kafka: one producer for a process, connected when it is needed, never waited for.

An idempotent producer of aiokafka never gives up: with its broker gone, what it was given waits
for ever, and so does whoever stops it. So each call here ends by its own time, and a producer that
let one run out, or that broke, is replaced and closed in the background.
"""

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, Final

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.cluster import ClusterMetadata
from aiokafka.errors import (
    KafkaError,
    MessageSizeTooLargeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

from pipeline.ending import end
from pipeline.errors import BrokerUnavailableError, MessageTooLargeError
from pipeline.settings import KafkaSettings
from producers.half_open import closing_half_open
from schemas.message import OutgoingMessage

FIRST_BACKOFF: Final = timedelta(milliseconds=100)
LONGEST_BACKOFF: Final = timedelta(seconds=2)
CLOSE_TIMEOUT: Final = timedelta(seconds=5)
"""How long a replaced producer may still deliver what other callers gave it."""
DISCONNECT_TIMEOUT: Final = timedelta(seconds=2)
MAXIMUM_REQUEST_BYTES: Final = 4 * 1024 * 1024
"""Ours, above the topics' own limits, so that the broker is the one that decides."""

log = structlog.get_logger(__name__)


class KafkaPublisher:
    """The port `Publisher` on Kafka: acknowledged by every in-sync replica, idempotent, bounded.

    Concurrency: any number of callers; a cancelled one takes nothing away from the others.
    """

    def __init__(self, settings: KafkaSettings, *, client_id: str = "afterturn-publisher") -> None:
        self._settings = settings
        self._client_id = client_id
        self._producer: AIOKafkaProducer | None = None
        self._connecting: asyncio.Task[AIOKafkaProducer] | None = None
        self._background: set[asyncio.Task[None]] = set()
        self._failures = 0
        self._connect_again_at = 0.0
        self._is_stopped = False

    async def publish(self, message: OutgoingMessage) -> None:
        """Return once every in-sync replica has it.

        Raises:
            BrokerUnavailableError: It was not acknowledged in time; it may be there all the same.
            MessageTooLargeError: It is larger than the topic takes.
        """
        producer: AIOKafkaProducer | None = None
        try:
            async with asyncio.timeout(self._settings.publish_timeout.total_seconds()):
                producer = await self._connected()
                await _require(producer, message.topic)
                await _deliver(producer, message)
        except TimeoutError:
            self._replace(producer, reason="timeout")
            raise BrokerUnavailableError("Kafka did not acknowledge in time") from None
        except KafkaError as error:
            if _breaks_producer(error):
                self._replace(producer, reason=type(error).__name__)
            is_too_large = isinstance(error, MessageSizeTooLargeError)
            refused = MessageTooLargeError if is_too_large else BrokerUnavailableError
            raise refused(f"Kafka refused: {type(error).__name__}") from error

    async def stop(self, timeout: timedelta = CLOSE_TIMEOUT) -> None:
        """Deliver what is under way and disconnect, both within `timeout`. Idempotent."""
        self._is_stopped = True
        if self._connecting is not None:
            await end([self._connecting])
        if self._producer is not None:
            self._retire(self._producer, timeout)
            self._producer = None
        if not self._background:
            return
        await asyncio.wait(self._background, timeout=timeout.total_seconds())
        await end(self._background, within=DISCONNECT_TIMEOUT)

    async def _connected(self) -> AIOKafkaProducer:
        if self._is_stopped:
            raise BrokerUnavailableError("the publisher is stopped")
        if self._producer is not None:
            return self._producer
        if self._connecting is None:
            if asyncio.get_running_loop().time() < self._connect_again_at:
                raise BrokerUnavailableError("Kafka was out of reach a moment ago")
            self._connecting = asyncio.create_task(self._connect())
            self._connecting.add_done_callback(self._connect_ended)
        attempt = self._connecting
        # Whoever is cancelled here leaves the attempt to the others that wait for it.
        await asyncio.wait({attempt})
        if attempt.cancelled():
            raise BrokerUnavailableError("the publisher is stopped")
        return attempt.result()

    async def _connect(self) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._settings.bootstrap_servers,
            client_id=self._client_id,
            acks="all",
            enable_idempotence=True,
            request_timeout_ms=_milliseconds(self._settings.request_timeout),
            max_request_size=MAXIMUM_REQUEST_BYTES,
        )
        try:
            async with asyncio.timeout(self._settings.publish_timeout.total_seconds()):
                with closing_half_open():
                    await producer.start()
        except BaseException:
            self._in_background(_disconnect(producer))
            raise
        return producer

    def _connect_ended(self, attempt: asyncio.Task[AIOKafkaProducer]) -> None:
        self._connecting = None
        if attempt.cancelled():
            return
        error = attempt.exception()
        if error is None:
            self._failures = 0
            self._producer = attempt.result()
            return
        backoff = min(FIRST_BACKOFF * 2 ** min(self._failures, 10), LONGEST_BACKOFF)
        self._failures += 1
        self._connect_again_at = asyncio.get_running_loop().time() + backoff.total_seconds()
        log.warning(
            "kafka_unreachable",
            bootstrap_servers=self._settings.bootstrap_servers,
            error=type(error).__name__,
            failures=self._failures,
        )

    def _replace(self, producer: AIOKafkaProducer | None, *, reason: str) -> None:
        if producer is None or producer is not self._producer:
            return
        log.warning("producer_replaced", reason=reason)
        self._producer = None
        self._retire(producer, CLOSE_TIMEOUT)

    def _retire(self, producer: AIOKafkaProducer, timeout: timedelta) -> None:
        self._in_background(_close(producer, timeout))

    def _in_background(self, closing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(closing)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


async def _require(producer: AIOKafkaProducer, topic: str) -> None:
    """See to it that a topic exists: to ask for one in particular makes many brokers create it."""
    client: Any = producer.client
    if client.cluster.partitions_for_topic(topic) is None:
        cluster = await client.fetch_all_metadata()
        if topic not in cluster.topics():
            raise UnknownTopicOrPartitionError(topic)


async def _deliver(producer: Any, message: OutgoingMessage) -> None:
    headers = list(message.headers)
    if message.key is None and message.value is None:
        # `send` refuses a record without both; a letter's must go as it came.
        batch = producer.create_batch()
        batch.append(key=None, value=None, timestamp=None, headers=headers)
        partitions = await producer.partitions_for(message.topic)
        await (await producer.send_batch(batch, message.topic, partition=min(partitions)))
        return
    acknowledged = await producer.send(
        message.topic, message.value, key=message.key, headers=headers
    )
    await acknowledged


def _breaks_producer(error: KafkaError) -> bool:
    """Whether a producer that raised this can't be trusted with the next message.

    After a MessageSizeTooLarge of the broker its sequence numbers are out of order.
    """
    if isinstance(error, MessageSizeTooLargeError):
        return True
    return not error.retriable and not isinstance(error, TopicAuthorizationFailedError)


async def _close(producer: AIOKafkaProducer, timeout: timedelta) -> None:
    """Deliver what was given to a producer within `timeout`, then disconnect it."""
    try:
        async with asyncio.timeout(timeout.total_seconds()):
            await producer.flush()
    except TimeoutError:
        log.warning("producer_abandoned")
    finally:
        await _disconnect(producer)


async def _disconnect(producer: AIOKafkaProducer) -> None:
    """Cut a producer's connections and end its tasks; `stop` would wait for deliveries for ever.

    Its sender is ended whatever its client raises.
    """
    producer._closed = True  # pyright: ignore[reportPrivateUsage]
    sender: asyncio.Task[None] | None = producer._sender.sender_task  # pyright: ignore[reportPrivateUsage]
    _strand(producer.client)
    if sender is not None:
        # It begins no delivery any more, and waits for those that are under way.
        sender.cancel()
    try:
        async with asyncio.timeout(DISCONNECT_TIMEOUT.total_seconds()):
            await _close_client(producer.client)
    except (TimeoutError, KafkaError, OSError):
        log.warning("producer_not_disconnected")
    finally:
        if sender is not None:
            try:
                await asyncio.wait({sender}, timeout=DISCONNECT_TIMEOUT.total_seconds() / 2)
            finally:
                await end([sender], within=DISCONNECT_TIMEOUT / 2)


async def _close_client(client: Any) -> None:
    """Close a client; by itself it asks its synchronizer once, and raises what that ended with."""
    if client._sync_task is not None:
        await end([client._sync_task], within=DISCONNECT_TIMEOUT * 0.75)
        client._sync_task = None
    await client.close()


def _strand(client: Any) -> None:
    """Have a client know of no broker, nor look for any: its deliveries can but fail, and end.

    One that failed would connect again, or wait for metadata that nobody fetches once it is closed.
    """
    found_nothing = asyncio.get_running_loop().create_future()
    found_nothing.set_result(False)
    client.cluster = ClusterMetadata()
    client.force_metadata_update = lambda: found_nothing
    if client._md_update_fut is not None and not client._md_update_fut.done():
        client._md_update_fut.set_result(False)
        # Its synchronizer completes what is there, should its cancellation be lost.
        client._md_update_fut = asyncio.get_running_loop().create_future()


def _milliseconds(span: timedelta) -> int:
    return int(span.total_seconds() * 1000)
