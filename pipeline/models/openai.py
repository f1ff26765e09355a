"""OpenAI and whatever speaks its protocol."""

import json
from datetime import timedelta
from typing import Any, Final, cast

import instructor
import openai
from openai.types import CompletionUsage
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionMessage,
    ChatCompletionMessageFunctionToolCall,
)
from openai.types.chat.chat_completion import Choice

from pipeline.extracting.unchecked import field_of, list_of, object_of, text_of
from pipeline.failing.reasons import Reason
from pipeline.models.exchange import Call, Received, Seen
from pipeline.models.http import BoundedClient
from schemas.failure import FailureClass

OPENAI_URL: Final = "https://api.openai.com/v1"
_ENDINGS: Final = {
    "content_filter": (FailureClass.FILTERED, Reason.CONTENT_FILTER),
    "length": (FailureClass.TRUNCATED, Reason.FINISH_LENGTH),
    "error": (FailureClass.UNAVAILABLE, Reason.FINISH_ERROR),
    "abort": (FailureClass.UNAVAILABLE, Reason.FINISH_ERROR),
}


class OpenAI:
    """How OpenAI's chat completions are asked for. Implements the port `Vendor`."""

    provider = instructor.Provider.OPENAI
    errors: tuple[type[Exception], ...] = (openai.OpenAIError,)

    def __init__(
        self,
        *,
        base_url: str,
        api_key: str,
        timeout: timedelta,
        limit_parameter: str,
        key_header: str | None = None,
    ) -> None:
        """Build a client; nothing is sent.

        Args:
            base_url: Where the protocol is spoken, `/v1` included.
            api_key: What to say who we are.
            timeout: How long the connection may be silent.
            limit_parameter: What the endpoint calls the limit of an answer; OpenAI's newer models
                know `max_completion_tokens` only, and most others `max_tokens` only.
            key_header: Where the key goes in place of `Authorization`, as some gateways have it.
        """
        self._limit_parameter = limit_parameter
        self._headers: dict[str, Any] = (
            {} if key_header is None else {key_header: api_key, "Authorization": openai.Omit()}
        )
        self._client = openai.AsyncOpenAI(
            base_url=base_url,
            api_key=api_key,
            max_retries=0,
            http_client=BoundedClient(timeout=timeout),
        )

    def parameters(self, *, max_tokens: int, temperature: float) -> dict[str, Any]:
        """Return what a request holds besides messages and model."""
        return {"temperature": temperature, self._limit_parameter: max_tokens}

    async def send(self, **request: Any) -> Received:
        """Make one request.

        Raises:
            openai.OpenAIError: There is no answer.
        """
        create = cast("Any", self._client.chat.completions.with_raw_response).create
        raw = await create(**request, extra_headers=self._headers)
        return Received(body=raw.content, request_id=raw.headers.get("x-request-id"))

    async def list_models(self) -> None:
        """Ask which models there are.

        Raises:
            openai.OpenAIError: There is no answer.
        """
        models = cast("Any", self._client.models.with_raw_response)
        await models.list(extra_headers=self._headers)

    def read(self, completion: object) -> Seen:
        """Return what a chat completion says. Pure and total."""
        usage = field_of(completion, "usage")
        choices = list_of(field_of(completion, "choices"))
        choice = choices[0] if choices else None
        message = field_of(choice, "message")
        return Seen(
            model=field_of(completion, "model"),
            prompt_tokens=field_of(usage, "prompt_tokens"),
            completion_tokens=field_of(usage, "completion_tokens"),
            finish_reason=field_of(choice, "finish_reason"),
            calls=tuple(_call(raw) for raw in list_of(field_of(message, "tool_calls"))),
            text=text_of(field_of(message, "content")) or None,
            ending=_ending(choices),
            defect=Reason.TWO_CHOICES if len(choices) > 1 else None,
        )

    def rebuilt(self, seen: Seen) -> ChatCompletion:
        """Return a chat completion of what was seen."""
        message = ChatCompletionMessage(
            role="assistant",
            content=seen.text,
            tool_calls=[_tool_call(call) for call in seen.calls] or None,
        )
        return ChatCompletion(
            id="",
            object="chat.completion",
            created=0,
            model="",
            choices=[Choice(index=0, finish_reason="stop", message=message)],
            # Without one, instructor looks whether it is Anthropic's, and loads that for seconds.
            usage=CompletionUsage(prompt_tokens=0, completion_tokens=0, total_tokens=0),
        )

    def load(self) -> None:
        """Load the part of the client that is loaded when it is first used."""
        _ = self._client.chat.completions.with_raw_response

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()


def _ending(choices: list[Any]) -> tuple[FailureClass, Reason] | None:
    if not choices:
        return FailureClass.UNAVAILABLE, Reason.NO_CHOICES
    message = field_of(choices[0], "message")
    if not object_of(message):
        return FailureClass.UNAVAILABLE, Reason.NOT_A_COMPLETION
    finish_reason = text_of(field_of(choices[0], "finish_reason"))
    if finish_reason != "content_filter" and field_of(message, "refusal"):
        return FailureClass.REFUSED, Reason.REFUSAL
    return _ENDINGS.get(finish_reason)


def _call(raw: object) -> Call:
    function = field_of(raw, "function")
    return Call(
        name=field_of(function, "name"),
        arguments=field_of(function, "arguments"),
        raw=object_of(raw),
    )


def _tool_call(call: Call) -> ChatCompletionMessageFunctionToolCall:
    # What a server adds to a call, such as the signature of a thought, it wants to have back.
    return ChatCompletionMessageFunctionToolCall.model_validate(
        {
            **call.raw,
            "id": text_of(call.raw.get("id")),
            "type": "function",
            "function": {
                "name": text_of(call.name),
                "arguments": call.arguments
                if isinstance(call.arguments, str)
                else json.dumps(call.arguments),
            },
        }
    )
