"""Models of projects: what their settings, those of the process and its variables make together."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pipeline.errors import AnswerError
from pipeline.extracting.prompting import extractor_version
from pipeline.failing.reasons import Reason
from pipeline.models.choosing import model_from
from pipeline.ports.model import Model, ModelRequest
from pipeline.settings import LLMSettings
from schemas.extraction import Reply
from schemas.failure import FailureClass
from schemas.project import ExtractionLLM

if TYPE_CHECKING:
    from pipeline.models.asking import InstructedModel

CEREBRAS_URL: Final = "https://api.cerebras.ai/v1"
SHARED_SECRET: Final = "LLM_API_KEY"  # noqa: S105 (the name of a variable)
_SECRETS: Final = {
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "cerebras": "CEREBRAS_API_KEY",
}
"""What the variable of each provider's key is called, where a project names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """How a project's model is reached."""

    settings: LLMSettings
    auth_header: str | None


def resolved(
    own: ExtractionLLM, process: LLMSettings, secrets: Mapping[str, str]
) -> Resolved | Reason:
    """Return how a project's model is reached, or why it can't be asked. Pure.

    Args:
        own: What the project sets.
        process: What the process sets.
        secrets: The variables of the process.
    """
    provider = own.provider or process.provider
    is_same = own.provider is None or own.provider == process.provider
    model = own.model or (process.model if is_same else None)
    if model is None or provider is None:
        return Reason.MODEL_NOT_NAMED
    base_url = own.base_url or (process.base_url if is_same else None)
    if provider == "cerebras":
        provider, base_url = "openai_compatible", base_url or CEREBRAS_URL
    is_own_place = not is_same or own.base_url not in (None, process.base_url)
    changes: dict[str, object] = {"provider": provider, "model": model, "base_url": base_url}
    if own.api_key_secret is not None or is_own_place:
        secret = _secret(own, secrets)
        if secret is None and (own.provider in _SECRETS or own.api_key_secret is not None):
            return Reason.SECRET_MISSING
        changes["api_key"] = secret
    settings = LLMSettings.model_validate({**process.model_dump(), **changes})
    return Resolved(settings=settings, auth_header=own.auth_header)


def _secret(own: ExtractionLLM, secrets: Mapping[str, str]) -> str | None:
    if own.api_key_secret is not None:
        return _key_in(secrets, own.api_key_secret)
    named = _SECRETS.get(own.provider or "")
    # A server of one's own gets no key that was not meant for it.
    return None if named is None else _key_in(secrets, named) or _key_in(secrets, SHARED_SECRET)


def _key_in(secrets: Mapping[str, str], name: str) -> str | None:
    """Return what a variable holds without the space around it, if a header can carry that.

    What is read from a file often ends with a line; what no header can carry would fail each
    message as if that were at fault.
    """
    key = secrets.get(name, "").strip()
    return key if key and key.isascii() and key.isprintable() else None


class UnaskableModel:
    """Stands for a model that can't be asked as it is set. Implements the port `Model`."""

    def __init__(self, *, name: str, max_tokens: int, reason: Reason) -> None:
        self.name = name
        self.max_tokens = max_tokens
        self._reason = reason

    @property
    def version(self) -> str:
        """The version it would have."""
        return extractor_version(model=self.name, parameters={})

    async def answer(self, request: ModelRequest) -> Reply:
        """Say why there is no answer.

        Raises:
            AnswerError: Always; no request was made.
        """
        del request
        raise AnswerError(FailureClass.MODEL_UNKNOWN, self._reason, calls=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnModel:
    """A project's model, and what tells it from others."""

    model: Model
    name: str
    """`provider:model`."""
    credential: str
    """What it is known by and where it is: never to be shown."""


class OwnModels:
    """Makes the models that projects name, each once, and closes them.

    Concurrency: any number of tasks of one event loop.
    """

    def __init__(
        self,
        process: LLMSettings,
        secrets: Mapping[str, str],
        *,
        make: Callable[..., "InstructedModel"] = model_from,
    ) -> None:
        self._process = process
        self._secrets = secrets
        self._make = make
        self._made: dict[ExtractionLLM, OwnModel | None] = {}
        self._open: list[InstructedModel] = []
        self._making = asyncio.Lock()

    async def of(self, own: ExtractionLLM) -> OwnModel | None:
        """Return the model that a project names; none if it is the one of the process."""
        async with self._making:
            if own not in self._made:
                self._made[own] = await self._new(own)
            return self._made[own]

    async def aclose(self) -> None:
        """Close all connections."""
        while self._open:
            await self._open.pop().aclose()

    async def _new(self, own: ExtractionLLM) -> OwnModel | None:
        found = resolved(own, self._process, self._secrets)
        provider = own.provider or self._process.provider
        if isinstance(found, Reason):
            name = own.model or "unnamed"
            return OwnModel(
                model=UnaskableModel(name=name, max_tokens=self._process.max_tokens, reason=found),
                name=f"{provider}:{name}",
                credential=f"{found}:{own.api_key_secret}",
            )
        settings = found.settings
        if settings == self._process and found.auth_header is None:
            return None
        key = settings.api_key.get_secret_value() if settings.api_key else ""
        model = self._make(settings, auth_header=found.auth_header)
        await model.prepare()
        self._open.append(model)
        return OwnModel(
            model=model,
            name=f"{provider}:{settings.model}",
            credential="\n".join((key, settings.base_url or "", found.auth_header or "")),
        )
