"""Asking any vendor's model through instructor: what all adapters do alike.

instructor asks, parses and re-asks; what it would accept or lose silently is looked at on the raw
completion: the finish reason, a refusal, the number of calls, keys that stand twice. An attempt
makes at most 1 + re-asks requests, because the vendor clients' own retries are off.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Protocol, cast

import instructor
from instructor.core.exceptions import InstructorRetryException, ResponseParsingError
from pydantic import BaseModel, ValidationError

from pipeline.clock import SystemClock
from pipeline.errors import AnswerError
from pipeline.extracting import prompting
from pipeline.extracting.redaction import NO_SECRETS, redact_json
from pipeline.failing.failures import classify
from pipeline.failing.reasons import Reason
from pipeline.models.answers import DefectError, loads
from pipeline.models.exchange import EXCHANGE, Exchange, Memories, Received, Seen, total
from pipeline.offloading import apart
from pipeline.ports.clocks import Clock
from pipeline.ports.model import ModelRequest
from schemas.extraction import Reply
from schemas.failure import Failure, FailureClass
from schemas.turn import Turn


class Vendor(Protocol):
    """How one vendor is asked. Concurrency: safe for any number of tasks of one event loop."""

    provider: instructor.Provider
    errors: tuple[type[Exception], ...]
    """What its client raises when there is no answer."""

    def parameters(self, *, max_tokens: int, temperature: float) -> dict[str, Any]:
        """Return what a request holds besides messages and model, in the vendor's words."""
        ...

    async def send(self, **request: Any) -> Received:
        """Make one request, as instructor has prepared it.

        Raises:
            Exception: What the vendor's client raised, as it raised it.
        """
        ...

    async def list_models(self) -> None:
        """Ask which models there are, which costs nothing.

        Raises:
            Exception: One of `errors`.
        """
        ...

    def read(self, completion: object) -> Seen:
        """Return what the JSON of a response says. Pure and total."""
        ...

    def rebuilt(self, seen: Seen) -> object:
        """Return a completion for instructor, made of nothing but what was seen."""
        ...

    def load(self) -> None:
        """Load what would else be loaded during the first call; may take seconds."""
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...


class InstructedModel:
    """A model behind a vendor's protocol. Implements the port `Model`.

    Concurrency: one instance serves any number of tasks of one event loop.
    """

    def __init__(
        self,
        vendor: Vendor,
        *,
        model: str,
        timeout: timedelta,
        reasks: int,
        max_tokens: int,
        temperature: float,
        clock: Clock | None = None,
    ) -> None:
        """Prepare to ask; nothing is sent.

        Args:
            vendor: How to ask.
            model: Its name, as the endpoint knows it.
            timeout: The deadline of one request, from its first byte to the answer's last.
            reasks: How often an invalid answer is asked for again.
            max_tokens: The limit of one answer.
            temperature: How far the model may stray from its likeliest words.
            clock: When an answer counts as given.
        """
        self._vendor = vendor
        self._model = model
        self._timeout = timeout
        self._reasks = reasks
        self._max_tokens = max_tokens
        self._temperature = temperature
        self._clock = clock or SystemClock()
        self._create = cast(
            "Any",
            instructor.patch(
                create=cast("Any", self._complete),
                mode=instructor.Mode.TOOLS,
                provider=vendor.provider,
            ),
        )
        self._version = prompting.extractor_version(
            model=model, parameters={"temperature": temperature, "max_tokens": max_tokens}
        )

    @property
    def name(self) -> str:
        """The vendor's name of the model, as configured."""
        return self._model

    @property
    def version(self) -> str:
        """The extractor version: a hash of prompt, schema, model and parameters."""
        return self._version

    @property
    def max_tokens(self) -> int:
        """The configured limit of an answer."""
        return self._max_tokens

    async def prepare(self) -> None:
        """Load now, off the event loop, what would else be loaded during the first call."""
        await asyncio.to_thread(self._load)

    def _load(self) -> None:
        instructor.openai_schema(Memories)
        self._vendor.load()

    async def check(self) -> Failure | None:
        """Return why nothing could be asked now; none if the endpoint answers and takes the key."""
        try:
            async with asyncio.timeout(self._timeout.total_seconds()):
                await self._vendor.list_models()
        except (*self._vendor.errors, AnswerError, TimeoutError) as error:
            return classify(error)
        return None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._vendor.aclose()

    async def answer(self, request: ModelRequest) -> Reply:
        """Return a checked answer with secrets taken out.

        Raises:
            AnswerError: The answer is truncated, refused, filtered or stayed invalid.
            Exception: What the vendor's client raised, as it raised it.
        """
        messages = await apart(_all(request), lambda: prompting.messages(request))
        exchange = Exchange()
        previous = EXCHANGE.set(exchange)
        try:
            # A `context` would run every turn through Jinja, so none is given.
            answer = await self._create(
                response_model=Memories,
                max_retries=self._reasks,
                model=self._model,
                messages=messages,
                **self._vendor.parameters(
                    max_tokens=request.max_tokens or self._max_tokens,
                    temperature=self._temperature,
                ),
            )
        except InstructorRetryException as error:
            # It holds the whole prompt and every answer; only its cause goes on.
            failure = error.__cause__
        else:
            return await apart(_all(request), lambda: self._reply(exchange, request, answer))
        finally:
            EXCHANGE.reset(previous)
        if isinstance(failure, ValidationError | ResponseParsingError):
            reason = exchange.defect or Reason.WRONG_SHAPE
            raise exchange.error(FailureClass.INVALID_OUTPUT, reason)
        if failure is None:
            raise exchange.error(FailureClass.UNAVAILABLE, Reason.NOT_A_COMPLETION)
        raise failure

    async def _complete(self, **request: Any) -> object:
        """Make one request, and look at what comes before instructor does."""
        exchange = EXCHANGE.get()
        exchange.calls += 1
        # The client's own timeout starts anew with every byte; this one does not.
        async with asyncio.timeout(self._timeout.total_seconds()):
            received = await self._vendor.send(**request)
        try:
            completion = loads(received.body)
        except DefectError:
            raise exchange.error(FailureClass.UNAVAILABLE, Reason.NOT_A_COMPLETION) from None
        if not isinstance(completion, Mapping):
            raise exchange.error(FailureClass.UNAVAILABLE, Reason.NOT_A_COMPLETION)
        seen = self._vendor.read(cast("object", completion))
        exchange.note(seen, received.request_id)
        return self._vendor.rebuilt(seen)

    def _reply(self, exchange: Exchange, request: ModelRequest, answer: BaseModel) -> Reply:
        # Secrets of the turns too: a model may repeat one where nothing tells that it is one.
        said = NO_SECRETS.and_those_in(turn.content for turn in _all(request))
        clean, secrets_removed = redact_json(answer.model_dump(mode="json"), known=said)
        return Reply(
            answer=cast("dict[str, Any]", clean),
            model=exchange.model or self._model,
            finish_reason=exchange.finish_reason,
            request_id=exchange.request_id,
            calls=exchange.calls,
            prompt_tokens=total(exchange.prompt_tokens),
            completion_tokens=total(exchange.completion_tokens),
            secrets_removed=secrets_removed,
            answered_at=self._clock.now(),
        )


def _all(request: ModelRequest) -> tuple[Turn, ...]:
    return (*request.context, *request.turns)
