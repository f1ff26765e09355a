"""OpenAI and whatever speaks its protocol, through instructor.

instructor asks, parses and re-asks; what it would accept or lose silently is looked at on the raw
completion: the finish reason, a refusal, the number of calls, keys that stand twice. An attempt
makes at most 1 + re-asks requests, because the vendor client's own retries are off.
"""

import asyncio
import contextlib
import importlib
import logging
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from json import JSONDecodeError
from typing import Any, Final, Self, cast

import instructor
import openai
from instructor.core.exceptions import InstructorRetryException, ResponseParsingError
from openai.types.chat import ChatCompletion
from pydantic import BaseModel, JsonValue, ValidationError

from pipeline import prompting
from pipeline.clock import SystemClock
from pipeline.errors import AnswerError, ConfigurationError
from pipeline.failures import token
from pipeline.models.answers import DefectError, parse
from pipeline.ports import Clock, ModelRequest
from pipeline.reasons import Reason
from pipeline.redaction import redact_json, secrets_in
from pipeline.settings import LLMSettings
from schemas.extraction import Reply
from schemas.failure import FailureClass
from schemas.memory import Answer
from schemas.turn import Turn

_OPENAI_URL: Final = "https://api.openai.com/v1"
_CONNECT_TIMEOUT: Final = timedelta(seconds=5)
VENDOR_LOGGERS: Final = ("instructor", "openai", "httpx2", "httpcore2")
_BROKEN_OFF: Final = frozenset({"error", "abort"})


def quiet_vendor_loggers() -> None:
    """Let the libraries between us and a model log nothing: what they log quotes conversations."""
    for name in VENDOR_LOGGERS:
        logger = logging.getLogger(name)
        logger.setLevel(logging.CRITICAL + 1)
        # A level alone would not last: OPENAI_LOG sets another one.
        logger.addHandler(logging.NullHandler())
        logger.propagate = False


@dataclass(slots=True)
class _Exchange:
    """What was asked and answered for one `answer`, re-asks included."""

    calls: int = 0
    prompt_tokens: list[int | None] = field(default_factory=list[int | None])
    completion_tokens: list[int | None] = field(default_factory=list[int | None])
    defect: Reason | None = None
    """What is wrong with the latest completion."""
    finish_reason: str | None = None
    request_id: str | None = None
    model: str | None = None

    def error(self, failure_class: FailureClass, reason: Reason) -> AnswerError:
        """Return an error that says where this exchange ended."""
        return AnswerError(
            failure_class,
            reason,
            finish_reason=self.finish_reason,
            request_id=self.request_id,
            calls=self.calls,
        )

    def look_at(self, completion: object) -> None:
        """Note what a completion cost and what is wrong with it, before instructor touches it.

        Raises:
            AnswerError: No re-ask can help.
        """
        self.defect = None
        if not isinstance(completion, ChatCompletion):
            raise self.error(FailureClass.UNAVAILABLE, Reason.NOT_A_COMPLETION)
        self.request_id = token(getattr(completion, "_request_id", None))
        self.model = token(getattr(completion, "model", None))
        usage: Any = getattr(completion, "usage", None)
        self.prompt_tokens.append(_count(getattr(usage, "prompt_tokens", None)))
        self.completion_tokens.append(_count(getattr(usage, "completion_tokens", None)))
        # Anything may be missing: a server that merely resembles OpenAI's is not validated.
        choices: Any = getattr(completion, "choices", None)
        if not isinstance(choices, list) or not choices:
            raise self.error(FailureClass.UNAVAILABLE, Reason.NO_CHOICES)
        message: Any = getattr(cast("list[Any]", choices)[0], "message", None)
        if message is None:
            raise self.error(FailureClass.UNAVAILABLE, Reason.NOT_A_COMPLETION)
        self._look_at_ending(cast("list[Any]", choices)[0], message)
        self.defect = _defect(len(cast("list[Any]", choices)), message)

    def parse(self, arguments: str) -> dict[str, JsonValue]:
        """Return the arguments of the latest completion's one call.

        Raises:
            DefectError: There is not one right call, or it can't be read without losing something.
        """
        if self.defect is not None:
            raise DefectError(self.defect)
        return parse(arguments)

    def _look_at_ending(self, choice: Any, message: Any) -> None:
        self.finish_reason = token(getattr(choice, "finish_reason", None))
        if self.finish_reason == "content_filter":
            raise self.error(FailureClass.FILTERED, Reason.CONTENT_FILTER)
        if getattr(message, "refusal", None):
            raise self.error(FailureClass.REFUSED, Reason.REFUSAL)
        message.refusal = None  # instructor takes an empty one for a refusal
        if self.finish_reason == "length":
            raise self.error(FailureClass.TRUNCATED, Reason.FINISH_LENGTH)
        if self.finish_reason in _BROKEN_OFF:
            raise self.error(FailureClass.UNAVAILABLE, Reason.FINISH_ERROR)


def _defect(choices: int, message: Any) -> Reason | None:
    calls: list[Any] = list(getattr(message, "tool_calls", None) or ())
    if choices > 1:
        return Reason.TWO_CHOICES
    if not calls:
        return Reason.NO_TOOL_CALL
    if len(calls) > 1:
        return Reason.TWO_TOOL_CALLS
    called: Any = getattr(calls[0], "function", None)
    return None if getattr(called, "name", None) == prompting.TOOL_NAME else Reason.WRONG_TOOL


def _count(tokens: object) -> int | None:
    return tokens if isinstance(tokens, int) else None


def _sum(counts: list[int | None]) -> int | None:
    """Return the total, or none where a request did not say what it cost."""
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


_EXCHANGE: ContextVar[_Exchange] = ContextVar("exchange")
"""The exchange of the running task: instructor's parser passes nothing of ours along."""


class _CheckedAnswer(Answer, instructor.ResponseSchema):
    """An answer that refuses what its parser would not see.

    It is made once: instructor would derive a class and its schema anew for every call.
    """

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **_options: Any) -> Self:
        """Return the answer that the one call's arguments hold.

        Raises:
            ResponseParsingError: instructor tells the model what is wrong and asks again.
            ValidationError: The same.
        """
        exchange = _EXCHANGE.get()
        try:
            answer = exchange.parse(str(json_data))
        except DefectError as defect:
            exchange.defect = defect.reason
            raise ResponseParsingError(
                str(defect), mode=instructor.Mode.TOOLS.value, raw_response=None
            ) from None
        try:
            return cls.model_validate(answer)
        except ValidationError:
            exchange.defect = Reason.WRONG_SHAPE
            raise


def _all(request: ModelRequest) -> tuple[Turn, ...]:
    return (*request.context, *request.turns)


class OpenAIModel:
    """A model behind the chat completions protocol. Implements the port `Model`.

    Concurrency: one instance serves any number of tasks of one event loop.
    """

    def __init__(
        self,
        *,
        model: str,
        base_url: str,
        api_key: str,
        timeout: timedelta,
        reasks: int,
        max_tokens: int,
        temperature: float,
        limit_parameter: str = "max_tokens",
        clock: Clock | None = None,
    ) -> None:
        """Build a client; nothing is sent.

        Args:
            model: Its name, as the endpoint knows it.
            base_url: Where the protocol is spoken, `/v1` included.
            api_key: What to say who we are.
            timeout: The deadline of one request, from its first byte to the answer's last.
            reasks: How often an invalid answer is asked for again.
            max_tokens: The limit of one answer.
            temperature: How far the model may stray from its likeliest words.
            limit_parameter: What the endpoint calls the limit; OpenAI's newer models know
                `max_completion_tokens` only, and most others `max_tokens` only.
            clock: When an answer counts as given.
        """
        self._model = model
        self._timeout = timeout
        self._reasks = reasks
        self._max_tokens = max_tokens
        self._temperature = temperature
        self._limit_parameter = limit_parameter
        self._clock = clock or SystemClock()
        self._client = openai.AsyncOpenAI(
            base_url=base_url,
            api_key=api_key,
            max_retries=0,
            timeout=openai.Timeout(
                timeout.total_seconds(), connect=min(timeout, _CONNECT_TIMEOUT).total_seconds()
            ),
        )
        self._create = cast(
            "Any", instructor.patch(create=cast("Any", self._complete), mode=instructor.Mode.TOOLS)
        )
        self._version = prompting.extractor_version(
            model=model, parameters={"temperature": temperature, "max_tokens": max_tokens}
        )

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
        # instructor imports Anthropic's client at the first answer without a usage block, which
        # takes seconds; where it is not installed there is nothing to load.
        with contextlib.suppress(ImportError):
            importlib.import_module("instructor.v2.providers.anthropic.usage")
        instructor.openai_schema(_CheckedAnswer)
        _ = self._client.chat.completions

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def answer(self, request: ModelRequest) -> Reply:
        """Return a checked answer with secrets taken out.

        Raises:
            AnswerError: The answer is truncated, refused, filtered or stayed invalid.
            Exception: What the vendor's client raised, as it raised it.
        """
        exchange = _Exchange()
        previous = _EXCHANGE.set(exchange)
        try:
            # A `context` would run every turn through Jinja, so none is given.
            answer = await self._create(
                response_model=_CheckedAnswer,
                max_retries=self._reasks,
                model=self._model,
                messages=prompting.messages(request),
                temperature=self._temperature,
                **{self._limit_parameter: request.max_tokens or self._max_tokens},
            )
        except InstructorRetryException as error:
            # It holds the whole prompt and every answer; only its cause goes on.
            failure = error.__cause__
        else:
            return self._reply(exchange, request, answer)
        finally:
            _EXCHANGE.reset(previous)
        if isinstance(failure, ValidationError | ResponseParsingError):
            reason = exchange.defect or Reason.WRONG_SHAPE
            raise exchange.error(FailureClass.INVALID_OUTPUT, reason)
        if failure is None:
            raise exchange.error(FailureClass.UNAVAILABLE, Reason.NOT_A_COMPLETION)
        raise failure

    async def _complete(self, **request: Any) -> object:
        """Make one request, and look at what comes before instructor does."""
        exchange = _EXCHANGE.get()
        exchange.calls += 1
        # The client's own timeout starts anew with every byte; this one does not.
        async with asyncio.timeout(self._timeout.total_seconds()):
            try:
                completion = cast("object", await self._client.chat.completions.create(**request))
            except JSONDecodeError:
                raise exchange.error(FailureClass.UNAVAILABLE, Reason.NOT_A_COMPLETION) from None
        exchange.look_at(completion)
        return completion

    def _reply(self, exchange: _Exchange, request: ModelRequest, answer: BaseModel) -> Reply:
        # Secrets of the turns too: a model may repeat one where nothing tells that it is one.
        said = {secret for turn in _all(request) for secret in secrets_in(turn.content)}
        clean, secrets_removed = redact_json(answer.model_dump(mode="json"), known=said)
        return Reply(
            answer=cast("dict[str, Any]", clean),
            model=exchange.model or self._model,
            finish_reason=exchange.finish_reason,
            request_id=exchange.request_id,
            calls=exchange.calls,
            prompt_tokens=_sum(exchange.prompt_tokens),
            completion_tokens=_sum(exchange.completion_tokens),
            secrets_removed=secrets_removed,
            answered_at=self._clock.now(),
        )


def model_from(settings: LLMSettings, *, clock: Clock | None = None) -> OpenAIModel:
    """Return the configured model; nothing is sent yet.

    Raises:
        ConfigurationError: Something is missing; the message says what to set.
    """
    missing = _missing(settings)
    if missing:
        raise ConfigurationError(f"No model can be asked: set {', '.join(missing)}.")
    is_openai = settings.provider == "openai"
    return OpenAIModel(
        model=settings.model or "",
        base_url=settings.base_url or _OPENAI_URL,
        # A server of one's own often wants none, but the client insists on some.
        api_key=settings.api_key.get_secret_value() if settings.api_key else "none",
        timeout=settings.timeout,
        reasks=settings.reasks,
        max_tokens=settings.max_tokens,
        temperature=settings.temperature,
        limit_parameter="max_completion_tokens" if is_openai else "max_tokens",
        clock=clock,
    )


def _missing(settings: LLMSettings) -> list[str]:
    if settings.provider is None:
        return ["AFTERTURN_LLM__PROVIDER to openai or openai_compatible", "AFTERTURN_LLM__MODEL"]
    missing: list[str] = []
    if not settings.model:
        missing.append("AFTERTURN_LLM__MODEL")
    if settings.provider == "openai" and settings.api_key is None:
        missing.append("AFTERTURN_LLM__API_KEY")
    if settings.provider == "openai_compatible" and not settings.base_url:
        missing.append("AFTERTURN_LLM__BASE_URL")
    return missing
