"""The installation's key: made once, the root of every opaque id."""

import secrets

from pymongo.errors import DuplicateKeyError

from pipeline.errors import ConfigurationError
from pipeline.ids import KEY_BYTES
from pipeline.stores.mongo import Database

_ID = "ids"


async def installation_key(database: Database) -> bytes:
    """Return the key of this installation's ids, made where there is none.

    Concurrency: of processes that start at once, one makes it and all return that one.

    Raises:
        ConfigurationError: What is stored is no key. It is not replaced: every id hangs on it.
    """
    collection = database["installation"]
    while True:
        document = await collection.find_one({"_id": _ID})
        if document is not None:
            return _checked(document.get("key"))
        try:
            await collection.insert_one({"_id": _ID, "key": secrets.token_bytes(KEY_BYTES)})
        except DuplicateKeyError:
            continue


def _checked(key: object) -> bytes:
    if not isinstance(key, bytes) or len(key) < KEY_BYTES:
        raise ConfigurationError(
            "the document 'ids' of the collection 'installation' holds no key: restore it from a"
            " backup, or start with an empty database"
        )
    return key
