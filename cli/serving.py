"""`up` and `run`: the system in the foreground, whole or one process of it."""

import os
from pathlib import Path
from typing import Annotated

import typer

from cli.connecting import connected, mongo_address
from cli.environment import DATA_DIR, AsJson, DataDir, configured, option_of, settings_for
from cli.output import Output
from cli.running import run
from cli.system import ROLES, Role, apps_of, embedded, say_who_answers
from consumers.deadlines import STOP_CAP
from consumers.health_wiring import health_served
from consumers.running import run_until_signal
from pipeline.logs import configure_logs
from pipeline.settings import Settings


def register(application: typer.Typer) -> None:
    """Add the commands."""
    application.command("up")(up)
    application.command("run")(run_role)


def up(*, data_dir: DataDir = DATA_DIR, as_json: AsJson = False) -> None:
    """Run the whole system on embedded services until it is interrupted."""
    run(_up(data_dir, Output(as_json=as_json)))


def run_role(
    role: Annotated[Role, typer.Argument(help="Which process.")],
    *,
    data_dir: DataDir = DATA_DIR,
    as_json: AsJson = False,
) -> None:
    """Run one process of a real deployment until it is told to end."""
    run(_run(role, settings_for(data_dir), data_dir, Output(as_json=as_json)))


async def _up(data_dir: Path, output: Output) -> int:
    # `run` needs it for one of its processes only, and it takes a second.
    from api.server import HttpApp  # noqa: PLC0415

    settings = configured()
    configure_logs(settings.log_level)
    async with (
        embedded(data_dir, settings, output) as parts,
        apps_of(parts, (*ROLES, "embedding", "http")) as apps,
        health_served(parts, apps) as running,
    ):
        say_who_answers(parts.settings, output)
        is_named = "uri" in settings.mongo.model_fields_set
        uri = parts.settings.mongo.uri.get_secret_value()
        mongo = mongo_address(settings.mongo) if is_named else uri
        kafka = parts.settings.kafka.bootstrap_servers
        output.say(f"MongoDB at {mongo}")
        output.say(f"Kafka at {kafka}")
        (http,) = (app.address for app in apps if isinstance(app, HttpApp))
        output.say(f"Agents' memory at {http}")
        output.say(f"Operators' console at {http}/console/")
        place = option_of(data_dir)
        output.say(
            f"Up. `./afterturn import FILE{place}` and `./afterturn status{place}` find it;"
            " Ctrl-C ends it."
        )
        output.result({"mongo": mongo, "kafka": kafka, "http": http, "data_dir": str(data_dir)})
        await run_until_signal(running, cap=STOP_CAP, leave=os._exit)
    return 0


async def _run(role: Role, settings: Settings, data_dir: Path, output: Output) -> int:
    configure_logs(settings.log_level)
    async with (
        connected(settings, data_dir) as parts,
        apps_of(parts, [role]) as apps,
        health_served(parts, apps) as running,
    ):
        await run_until_signal(running, cap=STOP_CAP, leave=os._exit)
    output.result({"role": role, "ended": "by a signal"})
    return 0
