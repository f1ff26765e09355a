"""Gives a record or a turn the vectors of its texts, whoever changes it or does the same meanwhile.

Who writes says so in the ledger, writes, reads the owner again, deletes what is of no text of it
any more, and ends where the ledger is still as it was read: else once more. So when an embedding is
not pending, nobody may write, and the vectors are those of the owner's texts, each once; whoever
dies in between leaves it pending, to be found by an index. A turn may be gone when it is read
again: then all its vectors are deleted. Who dies before that leaves some to the second pass of
whoever forgot it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

from pipeline.crash_points import CrashPoint, reached
from pipeline.embedding.ledger import begun, ended, left, texts_of
from pipeline.embedding.ports import (
    Embedded,
    Embedder,
    EmbeddingLedger,
    Owner,
    Purpose,
    Refused,
    StoredVector,
    Vector,
    Vectors,
)
from pipeline.ports.clocks import ServerTime
from schemas.embedding import Embedding, EmbeddingState
from schemas.identity import Scope, Visibility
from schemas.record import Record

TURN: Final = "turn"
"""The kind of a turn's vectors."""
Answered = Callable[[Sequence[Refused]], Awaitable[None]]
"""Told each time the embedder has answered, of what it refused; what it raises ends the filling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """An owner as it was read, and which of its texts have no vector yet."""

    found: Embedded
    missing: dict[str, str]
    """By content hash."""


class Filler:
    """Fills records and turns with the vectors of one model.

    Concurrency: any number of them, of any models, on the same owners.
    """

    def __init__(
        self,
        *,
        ledger: EmbeddingLedger,
        vectors: Vectors,
        embedder: Embedder,
        server_time: ServerTime,
        new_name: Callable[[], str],
        grace: timedelta,
    ) -> None:
        """Bring the parts together.

        Args:
            ledger: How far each owner is.
            vectors: Where vectors are kept.
            embedder: Who makes them.
            server_time: The clock of the ledger.
            new_name: Makes a name that no other writer ever has.
            grace: How long a writer may write after it has begun; longer than the commands of it.
        """
        self._ledger = ledger
        self._vectors = vectors
        self._embedder = embedder
        self._server_time = server_time
        self._new_name = new_name
        self._grace = grace

    @property
    def model(self) -> str:
        """Whose vectors it writes."""
        return self._embedder.model

    async def look(self, found: Embedded) -> Outlook:
        """Return what an owner lacks."""
        texts = texts_of(found.owner)
        there = await self._hashes_of(found.owner_id) if texts else frozenset[str]()
        return Outlook(
            found=found, missing={one: text for one, text in texts.items() if one not in there}
        )

    async def fill(
        self, outlook: Outlook, answered: Answered, *, settles: bool = True
    ) -> Embedding | None:
        """Give an owner what it lacks, and delete what it has of texts that it has no more.

        Args:
            outlook: The owner.
            answered: Told of each answer.
            settles: Whether its embedding is done then. Else its state stays, whatever it is, and
                the vectors stand beside those of another model.

        Returns its embedding as it is then: still pending where somebody else may write. None where
        it is gone meanwhile, and so are its vectors.

        Raises:
            Exception: What the embedder or `answered` raised; nothing is left begun.
            pymongo.errors.PyMongoError: It is pending still, or was begun and is not ended.
        """
        known: dict[str, Vector | Refused] = {}
        while True:
            await self._ask(outlook, known, answered)
            found, name = outlook.found, self._new_name()
            before = found.embedding
            if settles and before.state is not EmbeddingState.PENDING:
                return before
            writing = begun(before, name, now_ms=await self._server_time.now_ms())
            has_begun = await self._ledger.swap(found.owner_id, before, writing)
            reached(CrashPoint.EMBEDDING_BEGUN)
            if has_begun:
                await self._put(outlook, known)
                done = await self._end(found.owner_id, name, known, settles=settles)
                if done != "more":
                    return None if done == "gone" else done
            again = await self._ledger.get(found.owner_id)
            if again is None:
                return None
            outlook = await self.look(again)
            await asyncio.sleep(0)

    async def _ask(
        self, outlook: Outlook, known: dict[str, Vector | Refused], answered: Answered
    ) -> None:
        asked = {one: text for one, text in outlook.missing.items() if one not in known}
        if not asked:
            return
        answers = await self._embedder.embed(list(asked.values()), Purpose.PASSAGE)
        reached(CrashPoint.EMBEDDER_ANSWERED)
        await answered([answer for answer in answers if isinstance(answer, Refused)])
        known.update(zip(asked, answers, strict=True))

    async def _put(self, outlook: Outlook, known: dict[str, Vector | Refused]) -> None:
        found = outlook.found
        made = [
            stored_vector(found.owner, self.model, one, vector)
            for one in outlook.missing
            if not isinstance(vector := known[one], Refused)
        ]
        if made:
            await self._vectors.put(made)
            reached(CrashPoint.VECTORS_PUT)

    async def _end(
        self, owner_id: str, name: str, known: dict[str, Vector | Refused], *, settles: bool
    ) -> Embedding | Literal["more", "gone"]:
        """Delete what is of no text any more and write no more; more is to do where texts came."""
        while True:
            found = await self._ledger.get(owner_id)
            texts = {} if found is None else texts_of(found.owner)
            await self._vectors.keep_only(owner_id, texts.keys())
            reached(CrashPoint.VECTORS_CLEANED)
            if found is None:
                return "gone"
            before = found.embedding
            refused = {
                one: answer.reason for one in texts if isinstance(answer := known.get(one), Refused)
            }
            there = await self._hashes_of(owner_id) if texts else frozenset[str]()
            is_whole = texts.keys() == there | refused.keys()
            if settles and is_whole and before.state is EmbeddingState.PENDING:
                after = ended(
                    before,
                    name,
                    model=self.model,
                    refused=refused,
                    now_ms=await self._server_time.now_ms(),
                    grace=self._grace,
                )
            else:
                after = left(before, name)
            has_ended = await self._ledger.swap(owner_id, before, after)
            reached(CrashPoint.EMBEDDING_ENDED)
            if has_ended:
                return after if is_whole else "more"
            await asyncio.sleep(0)

    async def _hashes_of(self, owner_id: str) -> frozenset[str]:
        return await self._vectors.hashes_of(self.model, owner_id)


def stored_vector(owner: Owner, model: str, content_hash: str, vector: Vector) -> StoredVector:
    """Return a vector of an owner as it is stored."""
    if isinstance(owner, Record):
        return StoredVector(
            owner=owner.record_id,
            model=model,
            content_hash=content_hash,
            vector=vector,
            scope=owner.scope,
            kind=owner.kind.value,
        )
    whose = owner.identity
    return StoredVector(
        owner=owner.turn_id,
        model=model,
        content_hash=content_hash,
        vector=vector,
        scope=Scope(
            project_id=whose.project_id,
            owner=whose.user_id,
            visibility=Visibility.PRIVATE,
            org_id=whose.org_id,
        ),
        kind=TURN,
        session_id=whose.session_id,
    )
