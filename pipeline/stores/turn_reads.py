"""The turns on MongoDB as searches read them."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any, Final

from pipeline.reading import filters
from pipeline.reading.ports import Narrowed
from pipeline.stores.mongo import Collection as Documents
from pipeline.stores.mongo import Database, Document
from pipeline.stores.turns import turn_from
from schemas.identity import ReadScope, Visibility
from schemas.turn import Turn

BATCH: Final = 200
"""Documents that are decoded before the event loop goes on."""
_NOBODYS: Final[Document] = {"_id": {"$in": []}}


class MongoTurnReads:
    """Port `TurnReads` on the collection `turns`."""

    def __init__(self, database: Database) -> None:
        self._collection: Documents = database["turns"]

    async def since(self, scope: ReadScope, known: Mapping[str, int]) -> AsyncIterator[Turn]:
        """Yield the turns of a scope that are not known."""
        of_others: Document = {**_within(scope), "session": {"$nin": sorted(known)}}
        later: list[Document] = [
            {"session": session, "seq": {"$gt": seq}} for session, seq in sorted(known.items())
        ]
        for query in (*later, of_others):
            async for document in self._each(query):
                yield turn_from(document)

    async def of_ids(self, ids: Collection[str], narrowed: Narrowed) -> list[Turn]:
        """Return those of a scope that pass, in no order."""
        query = {"_id": {"$in": list(ids)}, **_passing(narrowed)}
        turns = [turn_from(document) async for document in self._each(query)]
        return [turn for turn in turns if filters.matches(narrowed.filter, filterable(turn))]

    async def passing(self, narrowed: Narrowed) -> set[str]:
        """Return the ids of all turns of a scope that pass."""
        wanted = {"identity.agent_id": True, "metadata": True}
        return {
            str(document["_id"])
            async for document in self._each(_passing(narrowed), wanted)
            if filters.matches(
                narrowed.filter,
                {**document.get("identity", {}), "metadata": document.get("metadata")},
            )
        }

    async def _each(
        self, query: Document, wanted: Document | None = None
    ) -> AsyncIterator[Document]:
        read = 0
        async for document in self._collection.find(query, wanted, batch_size=BATCH):
            yield document
            read += 1
            if read % BATCH == 0:
                await asyncio.sleep(0)


def filterable(turn: Turn) -> Mapping[str, Any]:
    """Return what a filter may look at of a turn."""
    agent = turn.identity.agent_id
    return {"metadata": turn.metadata} | ({} if agent is None else {"agent_id": agent})


def _within(scope: ReadScope) -> Document:
    """Return the condition of a scope; turns are private: of another visibility there are none."""
    if scope.visibility not in (None, Visibility.PRIVATE):
        return _NOBODYS
    return {
        f"identity.{name}": value
        for name, value in scope
        if value is not None and name != "visibility"
    }


def _passing(narrowed: Narrowed) -> Document:
    if narrowed.filter == filters.EVERYTHING:
        return _within(narrowed.scope)
    condition = filters.to_query(narrowed.filter, _place)
    return {"$and": [_within(narrowed.scope), condition]}


def _place(path: str) -> str:
    """Return where a turn has what a filter's path names."""
    return f"identity.{path}" if path == "agent_id" else path
