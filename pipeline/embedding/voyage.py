"""Vectors of Voyage AI.

Source: docs.voyageai.com/reference/embeddings-api.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from pipeline.embedding.judging import judged
from pipeline.embedding.openai import parsed
from pipeline.embedding.ports import Purpose, Vector
from pipeline.models.http import BoundedClient

VOYAGE_URL: Final = "https://api.voyageai.com/v1"
_INPUT_TYPES: Final = {Purpose.PASSAGE: "document", Purpose.QUERY: "query"}


class VoyageVectors:
    """Port `VectorSource`: `POST /embeddings`."""

    def __init__(
        self, *, base_url: str, api_key: str, model: str, dimension: int, timeout: timedelta
    ) -> None:
        """Build a client; nothing is sent.

        Args:
            base_url: Where the protocol is spoken, `/v1` included.
            api_key: What to say who we are.
            model: As the provider names it.
            dimension: How many numbers a vector has.
            timeout: How long the connection may be silent.
        """
        self._url = f"{base_url.rstrip('/')}/embeddings"
        self._headers = {"Authorization": f"Bearer {api_key}"}
        self._model = model
        self._dimension = dimension
        self._client = BoundedClient(timeout=timeout)

    async def vectors(self, texts: Sequence[str], purpose: Purpose) -> list[Vector]:
        """Return the vectors of one request.

        A text that is too long is refused, as elsewhere: by itself the service would embed how it
        begins, and it would be found for that alone.

        Raises:
            AnswerError: What came is not that.
            httpx2.HTTPError: There is no answer.
        """
        response = await self._client.post(
            self._url,
            headers=self._headers,
            json={
                "input": list(texts),
                "model": self._model,
                "input_type": _INPUT_TYPES[purpose],
                "output_dimension": self._dimension,
                "truncation": False,
            },
        )
        response.raise_for_status()
        return judged(parsed(response.content), texts=len(texts), dimension=self._dimension)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()
