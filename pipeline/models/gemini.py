"""Gemini, as Google's developer API serves it."""

import binascii
from base64 import b64decode
from datetime import timedelta
from json import JSONDecodeError
from typing import Any, Final, cast

import instructor
from google import genai
from google.genai import types
from google.genai.errors import APIError
from httpx2 import HTTPError
from openai.types import CompletionUsage

from pipeline.extracting import prompting
from pipeline.extracting.unchecked import field_of, list_of, object_of, text_of
from pipeline.failing.reasons import Reason
from pipeline.models.exchange import Call, Received, Seen
from pipeline.models.http import BoundedClient
from schemas.failure import FailureClass

GEMINI_URL: Final = "https://generativelanguage.googleapis.com"
_FILTERED: Final = (FailureClass.FILTERED, Reason.CONTENT_FILTER)
_BROKEN_OFF: Final = (FailureClass.UNAVAILABLE, Reason.FINISH_ERROR)
_ENDINGS: Final = {
    **dict.fromkeys(("MAX_TOKENS", "CONTINUATION"), (FailureClass.TRUNCATED, Reason.FINISH_LENGTH)),
    **dict.fromkeys(
        (
            *("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"),
            *("MODEL_ARMOR", "ESCALATION", "IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT"),
        ),
        _FILTERED,
    ),
    **dict.fromkeys(("OTHER", "PUP_LIMITED_DISABLED"), _BROKEN_OFF),
}
_MALFORMED: Final = frozenset({"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE"})


class _Response(types.GenerateContentResponse):
    """A response with what instructor looks for in any."""

    usage: CompletionUsage
    """Without one, instructor looks whether it is Anthropic's, and loads that for seconds."""


class Gemini:
    """How Gemini is asked to generate content. Implements the port `Vendor`."""

    provider = instructor.Provider.GENAI
    errors: tuple[type[Exception], ...] = (APIError, HTTPError, JSONDecodeError)

    def __init__(self, *, base_url: str, api_key: str, timeout: timedelta) -> None:
        """Build a client; nothing is sent.

        Args:
            base_url: Where the protocol is spoken, without its version.
            api_key: What to say who we are.
            timeout: How long the connection may be silent.
        """
        self._http = BoundedClient(timeout=timeout)
        self._client = genai.Client(
            api_key=api_key,
            vertexai=False,
            http_options=types.HttpOptions(
                base_url=base_url,
                api_version="v1beta",
                httpx_async_client=self._http,
                retry_options=types.HttpRetryOptions(attempts=1),
            ),
        )

    def parameters(self, *, max_tokens: int, temperature: float) -> dict[str, Any]:
        """Return what a request holds besides messages and model."""
        # Left to instructor, every filter would be switched off, also those that a model lacks.
        return {"temperature": temperature, "max_tokens": max_tokens, "safety_settings": []}

    async def send(self, **request: Any) -> Received:
        """Make one request.

        Raises:
            google.genai.errors.APIError: There is no answer.
            httpx2.TransportError: There is no connection.
        """
        config = cast("types.GenerateContentConfig", request.pop("config")).model_copy(
            update={
                "should_return_http_response": True,
                "automatic_function_calling": types.AutomaticFunctionCallingConfig(disable=True),
            }
        )
        response = await cast("Any", self._client.aio.models).generate_content(
            config=config, **request
        )
        raw = response.sdk_http_response
        return Received(
            body=raw.body or "", request_id=object_of(raw.headers).get("x-goog-request-id")
        )

    async def list_models(self) -> None:
        """Ask which models there are.

        Raises:
            google.genai.errors.APIError: There is no answer.
            httpx2.HTTPError: There is no connection.
            json.JSONDecodeError: It is none of Gemini's.
        """
        await cast("Any", self._client.aio.models).list()

    def read(self, completion: object) -> Seen:
        """Return what a response says. Pure and total."""
        usage = field_of(completion, "usageMetadata")
        candidates = list_of(field_of(completion, "candidates"))
        candidate = candidates[0] if candidates else None
        parts = list_of(field_of(field_of(candidate, "content"), "parts"))
        finish_reason = field_of(candidate, "finishReason")
        return Seen(
            model=field_of(completion, "modelVersion"),
            prompt_tokens=field_of(usage, "promptTokenCount"),
            completion_tokens=_completion_tokens(usage),
            finish_reason=finish_reason,
            calls=tuple(_call(part) for part in parts if "functionCall" in object_of(part)),
            ending=_ending(completion, candidate),
            defect=_defect(len(candidates), text_of(finish_reason)),
        )

    def rebuilt(self, seen: Seen) -> types.GenerateContentResponse:
        """Return a response of what was seen: always one call, for instructor knows no re-ask else.

        The answer itself is read from what was seen, so that one made up here is never taken.
        """
        call = seen.calls[0] if len(seen.calls) == 1 else None
        part = types.Part(
            function_call=types.FunctionCall(
                name=prompting.TOOL_NAME, args=object_of(call.arguments) if call else {}
            ),
            thought_signature=_signature(call.raw) if call else None,
        )
        return _Response(
            candidates=[types.Candidate(content=types.Content(role="model", parts=[part]))],
            usage=CompletionUsage(prompt_tokens=0, completion_tokens=0, total_tokens=0),
        )

    def load(self) -> None:
        """Load the part of the client that is loaded when it is first used."""
        _ = self._client.aio.models

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aio.aclose()
        await self._http.aclose()


def _ending(completion: object, candidate: object) -> tuple[FailureClass, Reason] | None:
    if field_of(field_of(completion, "promptFeedback"), "blockReason"):
        return _FILTERED
    if candidate is None:
        return FailureClass.UNAVAILABLE, Reason.NO_CHOICES
    if not isinstance(candidate, dict):
        return FailureClass.UNAVAILABLE, Reason.NOT_A_COMPLETION
    return _ENDINGS.get(text_of(field_of(cast("object", candidate), "finishReason")))


def _defect(candidates: int, finish_reason: str) -> Reason | None:
    if candidates > 1:
        return Reason.TWO_CHOICES
    return Reason.NOT_JSON if finish_reason in _MALFORMED else None


def _call(part: object) -> Call:
    call = field_of(part, "functionCall")
    return Call(name=field_of(call, "name"), arguments=field_of(call, "args"), raw=object_of(part))


def _signature(part: Any) -> bytes | None:
    """Return the signature of the thought behind a call, which a re-ask must give back."""
    try:
        return b64decode(text_of(field_of(part, "thoughtSignature")), validate=True) or None
    except (binascii.Error, ValueError):
        return None


def _completion_tokens(usage: object) -> object:
    """Return all tokens that were written: those of thoughts are counted apart from the others."""
    written = field_of(usage, "candidatesTokenCount")
    thought = field_of(usage, "thoughtsTokenCount")
    if not isinstance(written, int) or isinstance(written, bool):
        return None
    return written + (thought if isinstance(thought, int) and thought > 0 else 0)
