"""A deterministic embedder: texts that share words are near each other, and nothing else is."""

import hashlib
import re
from collections.abc import Collection, Sequence
from typing import Final

import numpy as np

from pipeline.embedding.ports import Purpose, Refused, Vector

_WORD: Final = re.compile(r"\w+")


class HashedEmbedder:
    """Hashes each word to one of 64 places. Implements the port `Embedder`.

    Args:
        refusing: Texts it refuses, as `content.too_long`.
        model: What its vectors go by.
        dimension: How many places there are.
    """

    def __init__(
        self,
        *,
        refusing: Collection[str] = (),
        model: str = "hashed:words:64",
        dimension: int = 64,
    ) -> None:
        self.model = model
        self.dimension = dimension
        self.refusing = frozenset(refusing)
        self.asked: list[tuple[str, ...]] = []
        """The texts of each call, in order."""

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> list[Vector | Refused]:
        """Return the vectors; both purposes have the same."""
        del purpose
        self.asked.append(tuple(texts))
        return [
            Refused(reason="content.too_long") if text in self.refusing else self.vector(text)
            for text in texts
        ]

    def vector(self, text: str) -> Vector:
        """Return the vector of a text; one without words has the vector of no word."""
        counts = np.zeros(self.dimension, dtype=np.float32)
        for word in _WORD.findall(text.casefold()) or [""]:
            digest = hashlib.sha256(word.encode("utf-8", "surrogatepass")).digest()
            counts[int.from_bytes(digest[:4], "big") % self.dimension] += 1
        return (counts / np.linalg.norm(counts)).astype(np.float32)
