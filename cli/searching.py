"""`search-indexes apply|status`: the indexes of the database's own search."""

from pathlib import Path

import typer
from pymongo.errors import OperationFailure

from cli.connecting import connected
from cli.environment import DATA_DIR, AsJson, DataDir, settings_for
from cli.output import Output, counted
from cli.running import run
from consumers.reading_wiring import search_indexes
from pipeline.errors import ConfigurationError
from pipeline.settings import Settings
from pipeline.stores.search_server import MongoSearchServer


def register(application: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        help="The indexes of MongoDB's own search, for AFTERTURN_SEARCH__BACKEND=mongodb.",
        no_args_is_help=True,
    )
    group.command("apply")(apply)
    group.command("status")(status)
    application.add_typer(group, name="search-indexes")


def apply(*, data_dir: DataDir = DATA_DIR, as_json: AsJson = False) -> None:
    """Create the search indexes that are missing; the server builds them by itself."""
    run(_apply(settings_for(data_dir), data_dir, Output(as_json=as_json)))


def status(*, data_dir: DataDir = DATA_DIR, as_json: AsJson = False) -> None:
    """Say of each search index whether it can be asked; exit with 1 where one can't."""
    run(_status(settings_for(data_dir), data_dir, Output(as_json=as_json)))


async def _apply(settings: Settings, data_dir: Path, output: Output) -> int:
    wanted = search_indexes(settings)
    async with connected(settings, data_dir) as parts:
        server = await _server(MongoSearchServer(parts.database))
        try:
            made = await server.apply(wanted)
        except OperationFailure as error:
            raise ConfigurationError(
                f"MongoDB refuses to make search indexes (code {error.code}): give its user the"
                " privilege createSearchIndexes, or make them by hand as docs/operations.md says"
            ) from None
    output.say(f"{counted(len(made), 'search index')} created of {len(wanted)}: see `status`")
    output.result({"created": made, "wanted": len(wanted)})
    return 0


async def _status(settings: Settings, data_dir: Path, output: Output) -> int:
    wanted = search_indexes(settings)
    async with connected(settings, data_dir) as parts:
        server = await _server(MongoSearchServer(parts.database))
        states = {
            f"{index.collection}.{index.name}": await server.lacks(index.collection, index.name)
            for index in wanted
        }
    for name, reason in states.items():
        output.say(f"{'ready' if reason is None else reason}  {name}")
    lacking = sum(reason is not None for reason in states.values())
    output.result(
        {"indexes": {name: reason or "ready" for name, reason in states.items()}},
        error=f"{counted(lacking, 'index')} to wait for or make" if lacking else None,
    )
    return 1 if lacking else 0


async def _server(server: MongoSearchServer) -> MongoSearchServer:
    absence = await server.absence()
    if absence is not None:
        raise ConfigurationError(absence)
    return server
