"""Vectors of OpenAI and of whatever speaks its protocol."""

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final, cast

import openai

from pipeline.embedding.judging import judged
from pipeline.embedding.ports import Purpose, Vector
from pipeline.errors import AnswerError
from pipeline.failing.reasons import Reason
from pipeline.models.http import BoundedClient
from schemas.failure import FailureClass

OPENAI_URL: Final = "https://api.openai.com/v1"
_FIXED_DIMENSION: Final = frozenset({"text-embedding-ada-002"})
"""Models of OpenAI that know no parameter for it."""


class OpenAIVectors:
    """Port `VectorSource`: `POST /embeddings`. Passages and queries are the same to it."""

    def __init__(
        self,
        *,
        base_url: str,
        api_key: str,
        model: str,
        dimension: int,
        asks_dimension: bool,
        timeout: timedelta,
    ) -> None:
        """Build a client; nothing is sent.

        Args:
            base_url: Where the protocol is spoken, `/v1` included.
            api_key: What to say who we are.
            model: As the provider names it.
            dimension: How many numbers a vector must have.
            asks_dimension: Whether to ask for so many; not every server knows what that is.
            timeout: How long the connection may be silent.
        """
        self._model = model
        self._dimension = dimension
        self._more: dict[str, Any] = (
            {"dimensions": dimension} if asks_dimension and model not in _FIXED_DIMENSION else {}
        )
        self._client = openai.AsyncOpenAI(
            base_url=base_url,
            api_key=api_key,
            max_retries=0,
            http_client=BoundedClient(timeout=timeout),
        )

    async def vectors(self, texts: Sequence[str], purpose: Purpose) -> list[Vector]:
        """Return the vectors of one request.

        Raises:
            AnswerError: What came is not that.
            openai.OpenAIError: There is no answer.
        """
        del purpose
        create = cast("Any", self._client.embeddings.with_raw_response).create
        raw = await create(
            model=self._model, input=list(texts), encoding_format="float", **self._more
        )
        return judged(parsed(raw.content), texts=len(texts), dimension=self._dimension)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()


def parsed(body: bytes) -> object:
    """Return a body that should be JSON.

    Raises:
        AnswerError: It is none: a proxy's page, not the service.
    """
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise AnswerError(FailureClass.UNAVAILABLE, Reason.NOT_A_COMPLETION) from None
