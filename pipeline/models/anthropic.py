"""Anthropic's messages."""

from datetime import timedelta
from typing import Any, Final, cast

import anthropic
import instructor
from anthropic.types import Message, TextBlock, ToolUseBlock, Usage

from pipeline.extracting.unchecked import field_of, list_of, object_of, text_of
from pipeline.failing.reasons import Reason
from pipeline.models.exchange import Call, Received, Seen
from pipeline.models.http import BoundedClient
from schemas.failure import FailureClass

ANTHROPIC_URL: Final = "https://api.anthropic.com"
_NOTHING: Final = "[nothing]"
"""Stands in a re-ask for an answer of no content, which the protocol does not take back."""
_ENDINGS: Final = {
    "max_tokens": (FailureClass.TRUNCATED, Reason.FINISH_LENGTH),
    "model_context_window_exceeded": (FailureClass.TRUNCATED, Reason.FINISH_LENGTH),
    "refusal": (FailureClass.REFUSED, Reason.REFUSAL),
    "pause_turn": (FailureClass.UNAVAILABLE, Reason.FINISH_ERROR),
}


class Anthropic:
    """How Anthropic's messages are asked for. Implements the port `Vendor`."""

    provider = instructor.Provider.ANTHROPIC
    errors: tuple[type[Exception], ...] = (anthropic.AnthropicError,)

    def __init__(self, *, base_url: str, api_key: str, timeout: timedelta) -> None:
        """Build a client; nothing is sent.

        Args:
            base_url: Where the protocol is spoken, without `/v1`.
            api_key: What to say who we are.
            timeout: How long the connection may be silent.
        """
        self._client = anthropic.AsyncAnthropic(
            base_url=base_url,
            api_key=api_key,
            max_retries=0,
            # Its own default would refuse long answers that are not streamed.
            timeout=timeout.total_seconds(),
            http_client=BoundedClient(timeout=timeout),
        )

    def parameters(self, *, max_tokens: int, temperature: float) -> dict[str, Any]:
        """Return what a request holds besides messages and model: no temperature is taken."""
        return {"max_tokens": max_tokens}

    async def send(self, **request: Any) -> Received:
        """Make one request.

        Raises:
            anthropic.AnthropicError: There is no answer.
        """
        create = cast("Any", self._client.messages.with_raw_response).create
        raw = await create(**request)
        return Received(body=await raw.read(), request_id=raw.headers.get("request-id"))

    async def list_models(self) -> None:
        """Ask which models there are.

        Raises:
            anthropic.AnthropicError: There is no answer.
        """
        await cast("Any", self._client.models.with_raw_response).list()

    def read(self, completion: object) -> Seen:
        """Return what a message says. Pure and total."""
        usage = field_of(completion, "usage")
        blocks = list_of(field_of(completion, "content"))
        stop_reason = field_of(completion, "stop_reason")
        no_message = (FailureClass.UNAVAILABLE, Reason.NOT_A_COMPLETION)
        is_message = isinstance(field_of(completion, "content"), list)
        return Seen(
            model=field_of(completion, "model"),
            prompt_tokens=_prompt_tokens(usage),
            completion_tokens=field_of(usage, "output_tokens"),
            finish_reason=stop_reason,
            calls=tuple(
                Call(
                    name=field_of(block, "name"),
                    arguments=field_of(block, "input"),
                    raw=object_of(block),
                )
                for block in blocks
                if field_of(block, "type") == "tool_use"
            ),
            text="".join(text_of(field_of(block, "text")) for block in blocks) or None,
            ending=_ENDINGS.get(text_of(stop_reason)) if is_message else no_message,
        )

    def rebuilt(self, seen: Seen) -> Message:
        """Return a message of what was seen."""
        calls = [
            ToolUseBlock(
                type="tool_use",
                id=text_of(call.raw.get("id")),
                name=text_of(call.name),
                input=object_of(call.arguments),
                caller=None,
            )
            for call in seen.calls
        ]
        said = seen.text or (None if calls else _NOTHING)
        texts = [TextBlock(type="text", text=said, citations=None)] if said else []
        return Message(
            id="",
            type="message",
            role="assistant",
            model="",
            content=[*texts, *calls],
            stop_reason="end_turn",
            stop_sequence=None,
            usage=Usage(input_tokens=0, output_tokens=0),
        )

    def load(self) -> None:
        """Load the part of the client that is loaded when it is first used."""
        _ = self._client.messages.with_raw_response

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()


def _prompt_tokens(usage: object) -> object:
    """Return all tokens that were read: those of a cache are counted apart from the others."""
    read = field_of(usage, "input_tokens")
    cached = [
        field_of(usage, name) for name in ("cache_creation_input_tokens", "cache_read_input_tokens")
    ]
    if not isinstance(read, int) or isinstance(read, bool):
        return None
    return read + sum(number for number in cached if isinstance(number, int) and number > 0)
