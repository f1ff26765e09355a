"""The service accounts on MongoDB: made once, changed if unchanged, never deleted."""

from pymongo import ASCENDING
from pymongo.errors import DuplicateKeyError

from pipeline.stores.indexes import INDEXES
from pipeline.stores.mongo import Collection, Database, Document
from schemas.access import ServiceAccount


class MongoAccounts:
    """Port `Accounts` on the collection `service_accounts`."""

    def __init__(self, database: Database) -> None:
        self._collection: Collection = database["service_accounts"]

    async def prepare(self) -> None:
        """Make the index that keeps names apart: an account may be what is made first of all."""
        await self._collection.create_indexes(list(INDEXES[self._collection.name]))

    async def by_id(self, account_id: str) -> ServiceAccount | None:
        """Return the account of a client id."""
        document = await self._collection.find_one({"_id": {"$eq": account_id}})
        return None if document is None else _account(document)

    async def by_name(self, name: str) -> ServiceAccount | None:
        """Return the account that operators call so."""
        document = await self._collection.find_one({"name": {"$eq": name}})
        return None if document is None else _account(document)

    async def all(self) -> list[ServiceAccount]:
        """Return all there are, revoked ones too, by name."""
        cursor = self._collection.find({}, sort=[("name", ASCENDING)])
        return [_account(document) async for document in cursor]

    async def add(self, account: ServiceAccount) -> bool:
        """Store a new one; return whether its name was free."""
        try:
            await self._collection.insert_one(_document(account))
        except DuplicateKeyError:
            return False
        return True

    async def swap(self, before: ServiceAccount, after: ServiceAccount) -> bool:
        """Store an account where the one it was made from still stands; return whether it did."""
        result = await self._collection.replace_one(
            {"_id": before.account_id, "rev": before.rev}, _document(after)
        )
        return result.matched_count == 1


def _document(account: ServiceAccount) -> Document:
    document = account.model_dump()
    return {"_id": document.pop("account_id"), **document}


def _account(document: Document) -> ServiceAccount:
    return ServiceAccount.model_validate({"account_id": document.pop("_id"), **document})
