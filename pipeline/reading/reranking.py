"""Rerankers: models that read a query beside each text and put the texts in a better order."""

import asyncio
import json
import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final, Protocol, cast

from pipeline.errors import AnswerError, ConfigurationError
from pipeline.failing.reasons import Reason
from pipeline.models.http import BoundedClient
from pipeline.settings import RerankSettings
from schemas.failure import FailureClass

VOYAGE_URL: Final = "https://api.voyageai.com/v1"
VOYAGE_MODEL: Final = "rerank-2.5"


class Reranker(Protocol):
    """Puts texts in order."""

    @property
    def name(self) -> str:
        """What the order that it makes is called."""
        ...

    async def order(self, query: str, texts: Sequence[str]) -> list[int]:
        """Return the places of texts, best first, each once.

        Raises:
            Exception: The service failed; `pipeline.failing.failures` says what is to be done.
        """
        ...


class VoyageReranker:
    """Port `Reranker`: `POST /rerank`.

    Source: docs.voyageai.com/reference/reranker-api.
    """

    def __init__(
        self, *, base_url: str, api_key: str | None, model: str, timeout: timedelta
    ) -> None:
        """Build a client; nothing is sent.

        Args:
            base_url: Where the protocol is spoken, `/v1` included.
            api_key: What to say who we are.
            model: As the provider names it.
            timeout: The deadline of one request.
        """
        self.name = "voyage_rerank"
        self._url = f"{base_url.rstrip('/')}/rerank"
        self._headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._model = model
        self._timeout = timeout
        self._client = BoundedClient(timeout=timeout)

    async def order(self, query: str, texts: Sequence[str]) -> list[int]:
        """Return the places of texts, best first; ties as they came.

        Raises:
            AnswerError: What came is no score for each text.
            TimeoutError: It takes too long.
            httpx2.HTTPError: There is no answer.
        """
        asked = {"query": query, "documents": list(texts), "model": self._model}
        async with asyncio.timeout(self._timeout.total_seconds()):
            response = await self._client.post(self._url, headers=self._headers, json=asked)
        response.raise_for_status()
        scores = _scores(response.content, len(texts))
        return sorted(range(len(texts)), key=lambda place: -scores[place])

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def reranker_from(settings: RerankSettings) -> VoyageReranker | None:
    """Return the reranker that is configured; nothing is sent yet.

    Raises:
        ConfigurationError: Not enough of it is configured; the message says what to set.
    """
    if settings.provider == "none":
        return None
    if settings.base_url is None and settings.api_key is None:
        raise ConfigurationError("The reranker can't be asked: set AFTERTURN_RERANK__API_KEY.")
    return VoyageReranker(
        base_url=settings.base_url or VOYAGE_URL,
        api_key=None if settings.api_key is None else settings.api_key.get_secret_value(),
        model=settings.model or VOYAGE_MODEL,
        timeout=settings.timeout,
    )


def _scores(body: bytes, texts: int) -> dict[int, float]:
    try:
        answer: Any = json.loads(body)
    except (ValueError, RecursionError):
        raise AnswerError(FailureClass.UNAVAILABLE, Reason.NOT_A_COMPLETION) from None
    listed: Any = cast("dict[str, Any]", answer).get("data") if isinstance(answer, dict) else None
    scores: dict[int, float] = {}
    for each in cast("list[Any]", listed) if isinstance(listed, list) else []:
        fields = cast("dict[str, Any]", each) if isinstance(each, dict) else {}
        place, score = fields.get("index"), fields.get("relevance_score")
        if isinstance(place, int) and isinstance(score, int | float) and math.isfinite(score):
            scores[place] = float(score)
    if scores.keys() != set(range(texts)):
        raise AnswerError(FailureClass.INVALID_OUTPUT, Reason.WRONG_SHAPE)
    return scores
