"""What makes vectors of texts, and what keeps them."""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from schemas.embedding import Embedding
from schemas.failure import FailureClass
from schemas.identity import Scope
from schemas.record import Record
from schemas.turn import Turn

Vector = npt.NDArray[np.float32]
"""Of unit length, so that a dot product is the cosine."""


class Purpose(StrEnum):
    """What a text is: models that were trained on pairs of them embed the two differently."""

    PASSAGE = "passage"
    QUERY = "query"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """One text that a model won't take, whoever asks and however often."""

    reason: str
    """A stable code; no word of the text."""
    failure_class: FailureClass = FailureClass.REFUSED


class Embedder(Protocol):
    """Makes vectors."""

    @property
    def model(self) -> str:
        """Provider, model and dimension as one name: vectors of two names are never compared."""
        ...

    @property
    def dimension(self) -> int:
        """How many numbers a vector has."""
        ...

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> list[Vector | Refused]:
        """Return a vector for each text, or why it has none; in the order of the texts.

        Raises:
            Exception: The service failed; `pipeline.failing.failures` says what is to be done.
        """
        ...


Owner = Record | Turn
"""What has vectors: they are those of its texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVector:
    """The vector of one text of its owner.

    Beside the vector it has what never changes of its owner: a database that searches vectors
    itself has only this to go by.
    """

    owner: str
    """A record's or a turn's id."""
    model: str
    content_hash: str
    vector: Vector
    scope: Scope
    """Whose it is."""
    kind: str
    """A record's kind, or `turn`."""
    session_id: str | None = None
    """A turn's conversation."""


class Vectors(Protocol):
    """The vectors of every model, beside each other. An index: all of it can be made again."""

    async def put(self, vectors: Sequence[StoredVector]) -> None:
        """Store vectors; those that are there are replaced. Idempotent, not atomic over several."""
        ...

    async def of_owners(self, model: str, owners: Sequence[str]) -> dict[str, dict[str, Vector]]:
        """Return owner -> content hash -> vector, of those owners that have any of the model."""
        ...

    async def hashes_of(self, model: str, owner: str) -> frozenset[str]:
        """Return which texts of an owner have a vector of a model."""
        ...

    async def keep_only(self, owner: str, hashes: Collection[str]) -> None:
        """Delete what an owner has, of every model, that is of none of these texts. Idempotent."""
        ...

    async def delete_of(self, owners: Sequence[str]) -> None:
        """Delete whatever owners have, of every model. Idempotent."""
        ...

    async def delete_of_others(self, model: str) -> int:
        """Delete every vector of other models; return how many there were. Idempotent."""
        ...


class ActiveModel(Protocol):
    """Which model's vectors readers search: one pointer for an installation."""

    async def active(self) -> str | None:
        """Return its name (`Embedder.model`); none until something was embedded."""
        ...

    async def claim(self, model: str) -> str:
        """Return the active model; this one, from now on, where there was none."""
        ...

    async def switch(self, model: str) -> None:
        """Let readers search the vectors of another model from now on."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """A record or a turn, and how far its embedding is."""

    owner: Owner
    embedding: Embedding

    @property
    def owner_id(self) -> str:
        """A record's or a turn's id."""
        return self.owner.record_id if isinstance(self.owner, Record) else self.owner.turn_id

    @property
    def session(self) -> str:
        """What it counts as where failures are counted by session: a record is one by itself."""
        return self.owner.record_id if isinstance(self.owner, Record) else self.owner.session


class EmbeddingLedger(Protocol):
    """How far the embedding of each owner is. It is kept with the owner and changes with it."""

    async def get(self, owner_id: str) -> Embedded | None:
        """Return one, from the primary.

        None where it is gone, or nothing was ever to be embedded; or it is a turn, and its project
        wants none embedded.
        """
        ...

    async def swap(self, owner_id: str, before: Embedding, after: Embedding) -> bool:
        """Store a state where the one it was made from still stands; return whether it did.

        A change of what the owner says counts as a change of its state.
        """
        ...

    async def due(self, before_ms: int, limit: int) -> list[Embedded]:
        """Return pending ones that were due before then (server time), the oldest first.

        Turns that are pending though their project wants none embedded any more are let go.
        """
        ...

    async def after(self, owner_id: str, limit: int, *, project_id: str | None) -> list[Embedded]:
        """Return those whose ids follow one, in the order of ids; of a project where one is named.

        An empty text comes before every id. Turns are all those of projects that want them
        embedded, whether that was begun or not.
        """
        ...


class EmbedsTurns(Protocol):
    """Which projects want their turns embedded (`short_term.embed_on_write`)."""

    async def that_embed_turns(self) -> frozenset[str]:
        """Return their ids, as they were some seconds ago at most."""
        ...


def content_hash(text: str) -> str:
    """Return what a text's vectors are found by: 128 bits of SHA-256. Lone surrogates are taken."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
