"""Where a command finds the system: the environment, else the `up` that runs on this machine."""

import getpass
import json
import os
import shlex
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated, Final, get_origin

import typer
from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_settings import SettingsError

from compose.data_lock import is_held
from compose.embedded import Services
from pipeline.errors import ConfigurationError
from pipeline.settings import Settings

DATA_DIR: Final = Path(".afterturn")
_ADDRESSES: Final = "services.json"

DataDir = Annotated[
    Path,
    typer.Option(
        "--data-dir",
        help="Where `up` and `demo` keep their data; relative to the current directory.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object as the last line.")]


def configured() -> Settings:
    """Return the settings of the environment.

    Raises:
        ConfigurationError: It can't be used; the message names each variable, never its value.
    """
    try:
        return Settings()
    except ValidationError as error:
        problems = (
            f"AFTERTURN_{'__'.join(str(step).upper() for step in problem['loc'])}: {problem['msg']}"
            for problem in error.errors(include_input=False, include_url=False)
        )
        raise ConfigurationError("settings can't be used: " + "; ".join(problems)) from None
    except SettingsError:
        named = ", ".join(_no_json()) or "one that holds a whole group"
        raise ConfigurationError(
            f"settings can't be used: {named}: must be JSON; or set each member by itself, as in"
            " AFTERTURN_LLM__MODEL"
        ) from None


def _no_json() -> list[str]:
    """Return the variables that must hold JSON and hold none."""
    named: list[str] = []
    for name, value in os.environ.items():
        if _must_be_json(name.lower()):
            try:
                json.loads(value)
            except ValueError:
                named.append(name.upper())
    return named


def _must_be_json(name: str) -> bool:
    """Return whether a variable holds more than one value: a group, or a table in one."""
    _, prefix, rest = name.partition("afterturn_")
    group, *members = rest.split("__")
    if not prefix or group not in Settings.model_fields:
        return False
    kind = Settings.model_fields[group].annotation
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return False
    member = kind.model_fields.get(members[0]) if members else None
    return not members or (member is not None and get_origin(member.annotation) is dict)


def settings_for(data_dir: Path) -> Settings:
    """Return the settings; servers that none names are those of the `up` on this directory."""
    settings = configured()
    running = _running(data_dir)
    if running is None:
        return settings
    return settings_on(settings, mongo_uri=running["mongo_uri"], kafka=running["kafka"])


def settings_on(settings: Settings, *, mongo_uri: str, kafka: str) -> Settings:
    """Return settings whose servers are these, save those the environment names."""
    if "uri" not in settings.mongo.model_fields_set:
        mongo = settings.mongo.model_copy(update={"uri": SecretStr(mongo_uri)})
        settings = settings.model_copy(update={"mongo": mongo})
    if "bootstrap_servers" not in settings.kafka.model_fields_set:
        brokers = settings.kafka.model_copy(update={"bootstrap_servers": kafka})
        settings = settings.model_copy(update={"kafka": brokers})
    return settings


@asynccontextmanager
async def announced(data_dir: Path, services: Services) -> AsyncGenerator[None]:
    """Let other commands on this machine find the embedded services while they run."""
    path = data_dir / _ADDRESSES
    path.write_text(
        json.dumps({"mongo_uri": services.mongo_uri, "kafka": services.bootstrap_servers})
    )
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def was_killed(data_dir: Path) -> bool:
    """Return whether an `up` on the directory ended without an end in order."""
    return (data_dir / _ADDRESSES).exists() and not is_held(data_dir)


def who_calls() -> str:
    """Return who called a command, for the audit trail; in a container that may be nobody."""
    try:
        return f"command line: {getpass.getuser()}"
    except (KeyError, OSError):
        return "command line: unknown"


def option_of(data_dir: Path) -> str:
    """Return what is typed after a command to name the directory; nothing for the usual one."""
    return "" if data_dir == DATA_DIR else f" --data-dir {shlex.quote(str(data_dir))}"


def _running(data_dir: Path) -> dict[str, str] | None:
    """Return the addresses of a live `up`; one that was killed leaves a file that counts not."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        addresses = json.loads((data_dir / _ADDRESSES).read_text())
        if is_held(data_dir):
            return {"mongo_uri": addresses["mongo_uri"], "kafka": addresses["kafka"]}
    return None
