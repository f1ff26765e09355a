"""Many texts in one request, and of a request that is refused only the text that is to blame."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

from pipeline.embedding.ports import Purpose, Refused, Vector
from pipeline.ending import end
from pipeline.failing.failures import classify
from pipeline.metrics import NO_METRICS, Metrics

GATHERED_FOR: Final = timedelta(milliseconds=5)
"""How long a text waits for others: far less than a request takes."""

_Outcome = Vector | Refused | Exception


class VectorSource(Protocol):
    """How one provider is asked. Concurrency: any number of tasks of one event loop."""

    async def vectors(self, texts: Sequence[str], purpose: Purpose) -> list[Vector]:
        """Return the vectors of one request, in the order of the texts.

        Raises:
            AnswerError: What came is not that.
            Exception: What the provider's client raised.
        """
        ...

    async def aclose(self) -> None:
        """Close what is open."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class _Asked:
    """One text, and who waits for it."""

    text: str
    waiting: "asyncio.Future[Vector | Refused]"


class BatchedEmbedder:
    """Port `Embedder` over a provider.

    Passages that are asked for at the same time go in one request; queries don't wait. Of a request
    that fails for its content each half is asked for on its own, down to the text that is refused.
    """

    def __init__(
        self,
        source: VectorSource,
        *,
        model: str,
        dimension: int,
        batch: int,
        timeout: timedelta,
        metrics: Metrics = NO_METRICS,
        gathered_for: timedelta = GATHERED_FOR,
    ) -> None:
        """Ask nothing yet.

        Args:
            source: Who is asked.
            model: What the vectors go by.
            dimension: How many numbers each has.
            batch: How many texts a request has at most.
            timeout: How long one request may take.
            metrics: Where requests are counted.
            gathered_for: How long the first text of a request waits for others.
        """
        self._source = source
        self._model = model
        self._dimension = dimension
        self._batch = batch
        self._timeout = timeout
        self._metrics = metrics
        self._gathered_for = gathered_for
        self._gathered: list[_Asked] = []
        self._requests: set[asyncio.Task[None]] = set()

    @property
    def model(self) -> str:
        """Provider, model and dimension."""
        return self._model

    @property
    def dimension(self) -> int:
        """How many numbers a vector has."""
        return self._dimension

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> list[Vector | Refused]:
        """Return a vector for each text, or why it has none.

        Raises:
            Exception: The service failed for at least one of them.
        """
        if not texts:
            return []
        loop = asyncio.get_running_loop()
        asked = [_Asked(text=text, waiting=loop.create_future()) for text in texts]
        if purpose is Purpose.PASSAGE:
            self._gather(asked)
        else:
            for batch in _batches(asked, self._batch):
                self._begin(batch, purpose)
        done = await asyncio.gather(*(one.waiting for one in asked), return_exceptions=True)
        for outcome in done:
            if isinstance(outcome, BaseException):
                raise outcome
        return [outcome for outcome in done if not isinstance(outcome, BaseException)]

    async def aclose(self) -> None:
        """Break off what is asked for, and close what is open."""
        await end(self._requests)
        await self._source.aclose()

    def _gather(self, asked: Sequence[_Asked]) -> None:
        if not self._gathered:
            loop = asyncio.get_running_loop()
            loop.call_later(self._gathered_for.total_seconds(), self._send_gathered)
        self._gathered.extend(asked)
        while len(self._gathered) >= self._batch:
            self._begin(self._gathered[: self._batch], Purpose.PASSAGE)
            del self._gathered[: self._batch]

    def _send_gathered(self) -> None:
        gathered, self._gathered = self._gathered, []
        if gathered:
            self._begin(gathered, Purpose.PASSAGE)

    def _begin(self, asked: Sequence[_Asked], purpose: Purpose) -> None:
        request = asyncio.create_task(self._answer(asked, purpose), name="embedding")
        self._requests.add(request)
        request.add_done_callback(self._requests.discard)

    async def _answer(self, asked: Sequence[_Asked], purpose: Purpose) -> None:
        wanted = [one for one in asked if not one.waiting.done()]
        try:
            outcomes = await self._outcomes([one.text for one in wanted], purpose)
        except asyncio.CancelledError:
            for one in wanted:
                one.waiting.cancel()
            raise
        for one, outcome in zip(wanted, outcomes, strict=True):
            if one.waiting.done():
                continue
            if isinstance(outcome, Exception):
                one.waiting.set_exception(outcome)
            else:
                one.waiting.set_result(outcome)

    async def _outcomes(self, texts: Sequence[str], purpose: Purpose) -> list[_Outcome]:
        if not texts:
            return []
        try:
            async with asyncio.timeout(self._timeout.total_seconds()):
                vectors = await self._source.vectors(texts, purpose)
        except Exception as error:  # it is handed to whoever asked, whatever it is
            failure = classify(error)
            self._metrics.embedder_called(failure.failure_class)
            if not failure.failure_class.is_content:
                return [error] * len(texts)
            if len(texts) == 1:
                return [Refused(reason=failure.reason, failure_class=failure.failure_class)]
        else:
            self._metrics.embedder_called("answered")
            return list(vectors)
        half = len(texts) // 2
        first = await self._outcomes(texts[:half], purpose)
        failed = next((each for each in first if isinstance(each, Exception)), None)
        if failed is not None:
            # Who is down now is not asked for the rest.
            return [*first, *[failed] * (len(texts) - half)]
        return [*first, *await self._outcomes(texts[half:], purpose)]


def _batches(asked: Sequence[_Asked], size: int) -> list[Sequence[_Asked]]:
    return [asked[start : start + size] for start in range(0, len(asked), size)]
