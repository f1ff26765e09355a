"""Which embedder is configured. A vendor's client is loaded only where that vendor is asked."""

from typing import Final

from pipeline.embedding.batching import BatchedEmbedder, VectorSource
from pipeline.embedding.local import LOCAL_DIMENSION, LOCAL_MODEL, LocalVectors
from pipeline.errors import ConfigurationError
from pipeline.metrics import NO_METRICS, Metrics
from pipeline.settings import EmbeddingSettings

_KEY_WANTED: Final = frozenset({"openai", "voyage"})
PROVIDERS: Final = "openai, openai_compatible, voyage or local"


def embedder_from(settings: EmbeddingSettings, *, metrics: Metrics = NO_METRICS) -> BatchedEmbedder:
    """Return an embedder; nothing is sent or loaded yet.

    Raises:
        ConfigurationError: None is configured, or not enough of it; the message says what to set.
    """
    name = model_name(settings)
    model, dimension = named(settings)
    return BatchedEmbedder(
        _source(settings, model, dimension),
        model=name,
        dimension=dimension,
        batch=settings.batch,
        timeout=settings.timeout,
        metrics=metrics,
    )


def model_name(settings: EmbeddingSettings) -> str:
    """Return what the vectors of a configured embedder go by.

    Raises:
        ConfigurationError: None is configured, or not enough of it; the message says what to set.
    """
    if settings.provider == "none":
        raise ConfigurationError(f"No embedder: set AFTERTURN_EMBEDDING__PROVIDER to {PROVIDERS}.")
    problems = _problems(settings)
    if problems:
        raise ConfigurationError(f"The embedder can't be asked: set {', '.join(problems)}.")
    model, dimension = named(settings)
    return f"{settings.provider}:{model}:{dimension}"


def named(settings: EmbeddingSettings) -> tuple[str, int]:
    """Return the model and its dimension, of settings that are whole."""
    if settings.provider == "local":
        return LOCAL_MODEL, LOCAL_DIMENSION
    return settings.model or "", settings.dimension or 0


def _problems(settings: EmbeddingSettings) -> list[str]:
    if settings.provider == "local":
        is_its_own = settings.model in (None, LOCAL_MODEL)
        problems = [] if is_its_own else [f"AFTERTURN_EMBEDDING__MODEL to nothing or {LOCAL_MODEL}"]
        if settings.dimension not in (None, LOCAL_DIMENSION):
            problems.append(f"AFTERTURN_EMBEDDING__DIMENSION to nothing or {LOCAL_DIMENSION}")
        return problems
    problems = [
        f"AFTERTURN_EMBEDDING__{name}"
        for name, value in (("MODEL", settings.model), ("DIMENSION", settings.dimension))
        if not value
    ]
    if settings.provider in _KEY_WANTED and settings.api_key is None:
        problems.append("AFTERTURN_EMBEDDING__API_KEY")
    if settings.provider == "openai_compatible" and not settings.base_url:
        problems.append("AFTERTURN_EMBEDDING__BASE_URL")
    return problems


def _source(settings: EmbeddingSettings, model: str, dimension: int) -> VectorSource:
    # A server of one's own often wants no key, but the client insists on some.
    api_key = settings.api_key.get_secret_value() if settings.api_key else "none"
    # ruff: noqa: PLC0415 (each takes a while to load, and one is asked)
    match settings.provider:
        case "local":
            return LocalVectors()
        case "voyage":
            from pipeline.embedding.voyage import VOYAGE_URL, VoyageVectors

            return VoyageVectors(
                base_url=settings.base_url or VOYAGE_URL,
                api_key=api_key,
                model=model,
                dimension=dimension,
                timeout=settings.timeout,
            )
        case _:
            from pipeline.embedding.openai import OPENAI_URL, OpenAIVectors

            return OpenAIVectors(
                base_url=settings.base_url or OPENAI_URL,
                api_key=api_key,
                model=model,
                dimension=dimension,
                asks_dimension=settings.provider == "openai",
                timeout=settings.timeout,
            )
