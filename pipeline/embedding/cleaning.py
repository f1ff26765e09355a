"""Deletes the vectors of what an owner says no more, at once and whoever embeds it meanwhile."""

import asyncio
from collections.abc import Callable

from pipeline.crash_points import CrashPoint, reached
from pipeline.embedding.ledger import again, begun, left, texts_of
from pipeline.embedding.ports import EmbeddingLedger, Vectors
from pipeline.ports.clocks import ServerTime
from schemas.embedding import EmbeddingState


class Cleaner:
    """Cleans records and turns, of whatever models they have vectors.

    It counts as a writer while it deletes, for what it read may be old by then: who embeds what was
    said meanwhile does not end before it has left.
    """

    def __init__(
        self,
        *,
        ledger: EmbeddingLedger,
        vectors: Vectors,
        server_time: ServerTime,
        new_name: Callable[[], str],
    ) -> None:
        self._ledger = ledger
        self._vectors = vectors
        self._server_time = server_time
        self._new_name = new_name

    async def clean(self, record_id: str) -> None:
        """Delete what is of no text of a record. Idempotent."""
        name = self._new_name()
        found = await self._ledger.get(record_id)
        while found is not None:
            before = found.embedding
            is_in = any(writer.name == name for writer in before.writers)
            if is_in:
                await self._vectors.keep_only(record_id, texts_of(found.owner).keys())
                reached(CrashPoint.VECTORS_CLEANED)
                after = left(before, name)
            else:
                after = begun(before, name, now_ms=await self._server_time.now_ms())
            is_mine = await self._ledger.swap(record_id, before, after)
            reached(CrashPoint.CLEANER_NOTED)
            if is_in and is_mine:
                return
            await asyncio.sleep(0)
            found = await self._ledger.get(record_id)

    async def renew(self, owner_id: str) -> bool:
        """Let an owner be embedded anew; return whether there is one that was not to be."""
        while (found := await self._ledger.get(owner_id)) is not None:
            before = found.embedding
            if before.state is EmbeddingState.PENDING:
                return False
            now_ms = await self._server_time.now_ms()
            is_mine = await self._ledger.swap(owner_id, before, again(before, now_ms=now_ms))
            reached(CrashPoint.EMBEDDING_RENEWED)
            if is_mine:
                return True
            await asyncio.sleep(0)
        return False
