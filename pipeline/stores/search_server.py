"""A MongoDB that searches by itself (Atlas, or a server with mongot), and its indexes."""

import time
from collections.abc import Sequence
from typing import Any, Final

from pymongo.errors import OperationFailure
from pymongo.operations import SearchIndexModel
from pymongo.read_concern import ReadConcern

from pipeline.reading.search_pipelines import Document, SearchIndex
from pipeline.stores.mongo import Database

FRESH_SECONDS: Final = 5.0
"""How old what is known of the indexes may be: to list them is slow."""
MISSING: Final = "search_index_missing"
BUILDING: Final = "search_index_building"


class MongoSearchServer:
    """Port `SearchServer`. Its stages take no read concern but `local`, whatever they read."""

    def __init__(self, database: Database) -> None:
        self._database = database.with_options(read_concern=ReadConcern("local"))
        self._known: dict[str, tuple[float, dict[str, Document]]] = {}

    async def found(self, collection: str, pipeline: list[Document]) -> list[Document]:
        """Return what a pipeline finds, best first."""
        return await (await self._database[collection].aggregate(pipeline)).to_list()

    async def lacks(self, collection: str, name: str) -> str | None:
        """Return why an index can't be asked, as it was some seconds ago at most."""
        read_at, there = self._known.get(collection, (0.0, dict[str, Document]()))
        if collection not in self._known or time.monotonic() - read_at > FRESH_SECONDS:
            read_at, there = time.monotonic(), await self.indexes(collection)
            self._known[collection] = (read_at, there)
        return reason_of(there.get(name))

    async def indexes(self, collection: str) -> dict[str, Document]:
        """Return the search indexes of a collection by name, as the server describes them."""
        listed: Any = await self._database[collection].list_search_indexes()
        return {str(each["name"]): each async for each in listed}

    async def absence(self) -> str | None:
        """Return why it can't search by itself, and what to do; none where it can.

        Raises:
            pymongo.errors.PyMongoError: It does not answer.
        """
        try:
            await self.indexes("records")
        except OperationFailure as error:
            return (
                f"this MongoDB has no search of its own (code {error.code}): set"
                " AFTERTURN_SEARCH__BACKEND=plain, or use Atlas or a server with mongot, and a"
                " user that may list search indexes"
            )
        return None

    async def apply(self, wanted: Sequence[SearchIndex]) -> list[str]:
        """Make what is missing; return `collection.name` of what was made. Idempotent.

        An index that is there is left as it is. The server builds them by itself, for as long as it
        takes.

        Raises:
            pymongo.errors.OperationFailure: It has no search of its own, or forbids it.
        """
        made: list[str] = []
        for index in wanted:
            if index.name in await self.indexes(index.collection):
                continue
            if index.collection not in await self._database.list_collection_names():
                await self._database.create_collection(index.collection)
            model = SearchIndexModel(index.definition, name=index.name, type=index.kind)
            await self._database[index.collection].create_search_index(model)
            made.append(f"{index.collection}.{index.name}")
        self._known.clear()
        return made


def reason_of(described: Document | None) -> str | None:
    """Return why an index can't be asked, by how the server describes it."""
    if described is None:
        return MISSING
    return None if described.get("queryable") is True else BUILDING
