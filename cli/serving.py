"""`up` and `run`: the system in the foreground, whole or one process of it."""

from pathlib import Path
from typing import Annotated

import typer

from cli.environment import DATA_DIR, DataDir, configured, settings_for
from cli.output import Output
from cli.running import run
from cli.system import ROLES, Role, apps_of, embedded
from consumers.deadlines import STOP_CAP
from consumers.health_wiring import health_served
from consumers.running import run_until_signal
from consumers.wiring import installation
from pipeline.logs import configure_logs
from pipeline.settings import Settings


def register(application: typer.Typer) -> None:
    """Add the commands."""
    application.command("up")(up)
    application.command("run")(run_role)


def up(*, data_dir: DataDir = DATA_DIR) -> None:
    """Run the whole system on embedded services until it is interrupted."""
    run(_up(data_dir, Output(as_json=False)))


def run_role(
    role: Annotated[Role, typer.Argument(help="Which process.")],
    *,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Run one process of a real deployment until it is told to end."""
    run(_run(role, settings_for(data_dir)))


async def _up(data_dir: Path, output: Output) -> int:
    settings = configured()
    configure_logs(settings.log_level)
    async with embedded(data_dir, settings, output) as parts, apps_of(parts, ROLES) as apps:
        output.say(f"MongoDB at {parts.settings.mongo.uri.get_secret_value()}")
        output.say(f"Kafka at {parts.settings.kafka.bootstrap_servers}")
        output.say(
            "Up. `./afterturn import FILE` and `./afterturn status` find it; Ctrl-C ends it."
        )
        async with health_served(parts, apps) as running:
            await run_until_signal(running, cap=STOP_CAP)
    return 0


async def _run(role: Role, settings: Settings) -> int:
    configure_logs(settings.log_level)
    async with (
        installation(settings) as parts,
        apps_of(parts, [role]) as apps,
        health_served(parts, apps) as running,
    ):
        await run_until_signal(running, cap=STOP_CAP)
    return 0
