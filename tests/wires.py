"""The vendors' wire formats: the same answers and failures, each as its vendor sends them."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, Protocol

from tests import scripted_endpoint as scripted
from tests.scripted_endpoint import TOOL_NAME, Json, Received, Reply

Provider = Literal["openai", "anthropic", "gemini"]
End = Literal["good", "cut_off", "refused", "filtered", "broken_off"]


class Wire(Protocol):
    """How one vendor says it."""

    @property
    def provider(self) -> Provider:
        """Its name in the settings."""
        ...

    @property
    def ends(self) -> Mapping[End, str]:
        """What the vendor calls each end that its answers can have."""
        ...

    def calls(self, *arguments: Json, end: End = "good", name: str = TOOL_NAME) -> Reply:
        """Return an answer that calls the function so often: 100 tokens read, 20 written."""
        ...

    def says(self, text: str) -> Reply:
        """Return an answer of plain text."""
        ...

    def status(self, code: int, *, said: str | None = None) -> Reply:
        """Return a failure in the vendor's shape, with its code for what is wrong."""
        ...

    def told(self, received: Received) -> str:
        """Return what a re-ask tells the model, as the JSON of its last message."""
        ...


class OpenAIWire:
    """Chat completions."""

    provider: Provider = "openai"
    ends: Mapping[End, str] = {
        "good": "tool_calls",
        "cut_off": "length",
        "filtered": "content_filter",
        "broken_off": "error",
    }

    def calls(self, *arguments: Json, end: End = "good", name: str = TOOL_NAME) -> Reply:
        return scripted.calls_tool(*arguments, finish_reason=self.ends[end], tool_name=name)

    def says(self, text: str) -> Reply:
        return scripted.says(text)

    def status(self, code: int, *, said: str | None = None) -> Reply:
        return scripted.status(code, error_code=said)

    def told(self, received: Received) -> str:
        return json.dumps(received.json["messages"][-1])


class AnthropicWire:
    """Messages."""

    provider: Provider = "anthropic"
    ends: Mapping[End, str] = {
        "good": "tool_use",
        "cut_off": "max_tokens",
        "refused": "refusal",
        "broken_off": "pause_turn",
    }

    def calls(self, *arguments: Json, end: End = "good", name: str = TOOL_NAME) -> Reply:
        blocks: list[Json] = [
            {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": call}
            for number, call in enumerate(arguments, start=1)
        ]
        return self._message(blocks, self.ends[end])

    def says(self, text: str) -> Reply:
        return self._message([{"type": "text", "text": text}], "end_turn")

    def status(self, code: int, *, said: str | None = None) -> Reply:
        error = {"type": said or "scripted_error", "message": "scripted"}
        return replace(scripted.sends({"type": "error", "error": error}), status=code)

    def told(self, received: Received) -> str:
        return json.dumps(received.json["messages"][-1])

    def _message(self, blocks: list[Json], stop_reason: str) -> Reply:
        message = {
            "id": "msg_scripted",
            "type": "message",
            "role": "assistant",
            "model": "scripted-1",
            "content": blocks,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": {"input_tokens": 90, "cache_read_input_tokens": 10, "output_tokens": 20},
        }
        return replace(scripted.sends(message), headers={"request-id": "req-scripted"})


class GeminiWire:
    """Generated content."""

    provider: Provider = "gemini"
    ends: Mapping[End, str] = {
        "good": "STOP",
        "cut_off": "MAX_TOKENS",
        "filtered": "SAFETY",
        "broken_off": "OTHER",
    }

    def calls(self, *arguments: Json, end: End = "good", name: str = TOOL_NAME) -> Reply:
        parts: list[Json] = [{"functionCall": {"name": name, "args": call}} for call in arguments]
        return self._response(parts, self.ends[end])

    def says(self, text: str) -> Reply:
        return self._response([{"text": text}], "STOP")

    def status(self, code: int, *, said: str | None = None) -> Reply:
        details = [] if said is None else [{"@type": "ErrorInfo", "reason": said}]
        error = {"code": code, "status": "SCRIPTED", "message": "scripted", "details": details}
        return replace(scripted.sends({"error": error}), status=code)

    def told(self, received: Received) -> str:
        return json.dumps(received.json["contents"][-1])

    def _response(self, parts: list[Json], finish_reason: str) -> Reply:
        response = {
            "candidates": [
                {"content": {"role": "model", "parts": parts}, "finishReason": finish_reason}
            ],
            "usageMetadata": {
                "promptTokenCount": 100,
                "candidatesTokenCount": 15,
                "thoughtsTokenCount": 5,
            },
            "modelVersion": "scripted-1",
        }
        return scripted.sends(response)


WIRES: tuple[Wire, ...] = (OpenAIWire(), AnthropicWire(), GeminiWire())
