"""Which model is configured. What asks it is loaded only where one is, and of one vendor."""

from typing import TYPE_CHECKING, Final

from pipeline.errors import ConfigurationError
from pipeline.ports.clocks import Clock
from pipeline.settings import LLMSettings

if TYPE_CHECKING:
    from pipeline.models.asking import InstructedModel, Vendor

# ruff: noqa: PLC0415 (each takes seconds to load, and one is asked)

_KEY_WANTED: Final = frozenset({"openai", "anthropic", "gemini"})
PROVIDERS: Final = "openai, anthropic, gemini or openai_compatible"


def model_from(
    settings: LLMSettings, *, auth_header: str | None = None, clock: Clock | None = None
) -> "InstructedModel":
    """Return a model; nothing is sent yet.

    Args:
        settings: Which one, and how it is asked.
        auth_header: `api-key` where a gateway wants the key there; else as its protocol has it.
        clock: When an answer counts as given.

    Raises:
        ConfigurationError: Something is missing; the message says what to set.
    """
    missing = _missing(settings)
    if missing:
        raise ConfigurationError(f"No model can be asked: set {', '.join(missing)}.")
    from pipeline.models.asking import InstructedModel

    return InstructedModel(
        _vendor(settings, auth_header),
        model=settings.model or "",
        timeout=settings.timeout,
        reasks=settings.reasks,
        max_tokens=settings.max_tokens,
        temperature=settings.temperature,
        clock=clock,
    )


def _missing(settings: LLMSettings) -> list[str]:
    if settings.provider is None:
        return [f"AFTERTURN_LLM__PROVIDER to {PROVIDERS}", "AFTERTURN_LLM__MODEL"]
    missing: list[str] = []
    if not settings.model:
        missing.append("AFTERTURN_LLM__MODEL")
    if settings.provider in _KEY_WANTED and settings.api_key is None:
        missing.append("AFTERTURN_LLM__API_KEY")
    if settings.provider == "openai_compatible" and not settings.base_url:
        missing.append("AFTERTURN_LLM__BASE_URL")
    return missing


def _vendor(settings: LLMSettings, auth_header: str | None) -> "Vendor":
    # A server of one's own often wants no key, but the client insists on some.
    api_key = settings.api_key.get_secret_value() if settings.api_key else "none"
    match settings.provider:
        case "anthropic":
            from pipeline.models.anthropic import ANTHROPIC_URL, Anthropic

            return Anthropic(
                base_url=settings.base_url or ANTHROPIC_URL,
                api_key=api_key,
                timeout=settings.timeout,
            )
        case "gemini":
            from pipeline.models.gemini import GEMINI_URL, Gemini

            return Gemini(
                base_url=settings.base_url or GEMINI_URL,
                api_key=api_key,
                timeout=settings.timeout,
            )
        case _:
            from pipeline.models.openai import OPENAI_URL, OpenAI

            is_openai = settings.provider == "openai"
            return OpenAI(
                base_url=settings.base_url or OPENAI_URL,
                api_key=api_key,
                timeout=settings.timeout,
                limit_parameter="max_completion_tokens" if is_openai else "max_tokens",
                key_header=auth_header if auth_header == "api-key" else None,
            )
