"""A model whose calls are counted: what came of each, what it cost, what was not kept."""

import asyncio

from pipeline.errors import AnswerError
from pipeline.failing.failures import classify
from pipeline.metrics import Metrics, Provider
from pipeline.ports.model import Model, ModelRequest
from schemas.extraction import Reply
from schemas.failure import FailureClass


class MeteredModel:
    """The port `Model` around another one, which does the work."""

    def __init__(self, model: Model, *, provider: Provider, metrics: Metrics) -> None:
        self._model = model
        self._provider: Provider = provider
        self._metrics = metrics

    @property
    def name(self) -> str:
        """The vendor's name of the model, as configured."""
        return self._model.name

    @property
    def version(self) -> str:
        """The extractor version of the model."""
        return self._model.version

    @property
    def max_tokens(self) -> int:
        """The configured limit of an answer."""
        return self._model.max_tokens

    async def answer(self, request: ModelRequest) -> Reply:
        """Return the model's answer.

        Raises:
            Exception: What the model raised.
        """
        try:
            reply = await self._model.answer(request)
        except asyncio.CancelledError:
            self._metrics.model_called(self._provider, "cut_off")
            self._metrics.answer_unkept("cut_off")
            raise
        except Exception as error:  # only counted, whatever it is; raised again
            self._failed(error)
            raise
        self._metrics.model_called(self._provider, "answered")
        self._metrics.tokens_used(self._provider, reply.prompt_tokens, reply.completion_tokens)
        self._reasked(reply.calls - 1)
        return reply

    def _failed(self, error: Exception) -> None:
        failure_class = classify(error).failure_class
        self._metrics.model_called(self._provider, failure_class)
        if isinstance(error, AnswerError):
            self._metrics.answer_unkept(
                "unusable", prompt=error.prompt_tokens, completion=error.completion_tokens
            )
            self._metrics.tokens_used(self._provider, error.prompt_tokens, error.completion_tokens)
            self._reasked(error.calls - 1)
        elif failure_class is FailureClass.TIMEOUT:
            self._metrics.answer_unkept("cut_off")

    def _reasked(self, calls: int) -> None:
        if calls > 0:
            self._metrics.model_called(self._provider, "reask", calls)
            self._metrics.answer_unkept("reask", calls=calls)
