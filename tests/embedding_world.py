"""What is around the embedding step: a broker by hand, a clock that is moved on, a bad embedder."""

from collections import deque
from collections.abc import Sequence
from datetime import timedelta

from consumers.wiring import Installation
from pipeline.embedding.ports import Purpose, Refused, Vector
from pipeline.embedding.step import EmbeddingStep, PendingEmbeddings
from pipeline.errors import AnswerError, BrokerUnavailableError
from pipeline.stores.mongo import Database, MongoServerTime
from schemas.failure import Coordinates, FailureClass
from schemas.message import IncomingMessage, OutgoingMessage
from schemas.topics import DEAD, Stage
from tests.embedding import HashedEmbedder


class Broker:
    """Keeps what is published, to be delivered by hand; while it is up."""

    def __init__(self) -> None:
        self.is_up = True
        self.waiting: deque[IncomingMessage] = deque()
        self.dead: list[OutgoingMessage] = []
        self.topics: list[str] = []

    async def publish(self, message: OutgoingMessage) -> None:
        if not self.is_up:
            raise BrokerUnavailableError("down")
        self.topics.append(message.topic)
        if message.topic == DEAD[Stage.EMBEDDING].name:
            self.dead.append(message)
            return
        at = Coordinates(
            topic=message.topic,
            partition=0,
            offset=len(self.topics),
            timestamp_ms=0,
            group="g",
        )
        self.waiting.append(
            IncomingMessage(at=at, key=message.key, value=message.value, headers=message.headers)
        )


class LaterTime:
    """The server's time, moved on by a test."""

    def __init__(self, db: Database) -> None:
        self._time = MongoServerTime(db)
        self.later = timedelta(0)

    async def now_ms(self) -> int:
        return await self._time.now_ms() + self.later // timedelta(milliseconds=1)


class FailingEmbedder(HashedEmbedder):
    """Raises what it is told, then embeds."""

    def __init__(self, *errors: Exception, refusing: Sequence[str] = ()) -> None:
        super().__init__(refusing=refusing)
        self.errors = deque(errors)

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> list[Vector | Refused]:
        if self.errors:
            self.asked.append(tuple(texts))
            raise self.errors.popleft()
        return await super().embed(texts, purpose)


def down() -> AnswerError:
    return AnswerError(FailureClass.UNAVAILABLE, "http_503")


async def delivered(step: EmbeddingStep, broker: Broker) -> int:
    """Deliver what waits until nothing does; return how many messages that were."""
    count = 0
    while broker.waiting:
        await step(broker.waiting.popleft())
        count += 1
    return count


def pending(parts: Installation) -> PendingEmbeddings:
    return PendingEmbeddings(
        ledger=parts.embeddings,
        publisher=parts.publisher,
        server_time=parts.server_time,
        clock=parts.clock,
        lost_after=parts.settings.waker.lost_after,
    )
