"""The installation that a command works on; where there is none, which address and what to do."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from pymongo.errors import OperationFailure, PyMongoError

from cli.environment import configured, option_of, was_killed
from cli.failing import MISADDRESSED, refusal
from compose.data_lock import is_held
from compose.processes import accepts
from consumers.wiring import Installation, installation
from pipeline.errors import ConfigurationError
from pipeline.settings import MongoSettings, Settings

_HOST: Final = r"(?:\[[\da-fA-F:.]+\]|[^@/?:,\[\]]+)(?::\d+)?"
_HOSTS: Final = re.compile(
    rf"mongodb(?:\+srv)?://(?:[^@/?]*@)?({_HOST}(?:,{_HOST})*)(?:[/?][^@]*)?"
)


@asynccontextmanager
async def connected(settings: Settings, data_dir: Path) -> AsyncGenerator[Installation]:
    """Yield the installation of the settings for a data directory.

    Raises:
        ConfigurationError: MongoDB does not answer; the message says where, and what to do.
    """
    if (absent := await absence(settings, data_dir)) is not None:
        raise ConfigurationError(absent)
    try:
        async with installation(settings) as parts:
            yield parts
    except MISADDRESSED:
        raise
    except OperationFailure as error:
        raise ConfigurationError(
            f"MongoDB at {mongo_address(settings.mongo)} {refusal(error)}"
        ) from error
    except PyMongoError as error:
        raise ConfigurationError(
            f"MongoDB at {mongo_address(settings.mongo)} does not answer ({type(error).__name__}):"
            f" {advice(data_dir)}; `./afterturn doctor` tells more"
        ) from error


async def absence(settings: Settings, data_dir: Path) -> str | None:
    """Return why no MongoDB can be there, found without waiting; none where one may be."""
    if "uri" in settings.mongo.model_fields_set:
        return None
    if was_killed(data_dir):
        return f"the `up` on {data_dir} was killed: {advice(data_dir, again=True)}"
    address = mongo_address(settings.mongo)
    if await accepts(int(address.rpartition(":")[2])):
        return None
    return (
        f"no `up` runs on {data_dir}, and nothing listens at {address}, where MongoDB is by"
        f" default: {advice(data_dir)}"
    )


def advice(data_dir: Path, *, again: bool = False) -> str:
    """Return what to do about a MongoDB that does not answer."""
    if "uri" in configured().mongo.model_fields_set:
        return "start it, or correct AFTERTURN_MONGO__URI"
    if is_held(data_dir):
        return (
            f"the `up` on {data_dir} runs, so see in its log what hinders it; else end it (Ctrl-C,"
            f" or SIGTERM) and start it again with `./afterturn up{option_of(data_dir)}`"
        )
    return (
        f"start it{' again' if again else ''} with `./afterturn up{option_of(data_dir)}`,"
        " or name a server in AFTERTURN_MONGO__URI"
    )


def mongo_address(settings: MongoSettings) -> str:
    """Return the hosts of the URI; nothing of it where they can't be told from a password."""
    found = _HOSTS.fullmatch(settings.uri.get_secret_value())
    return "the address in AFTERTURN_MONGO__URI" if found is None else found[1]
