"""`resume`: let go on what breakers and mass guards hold back, once its cause is mended."""

from pathlib import Path
from typing import Annotated

import typer

from cli.connecting import connected
from cli.environment import DATA_DIR, AsJson, DataDir, settings_for, who_calls
from cli.output import Output
from cli.running import run
from consumers.operating import switch_desk
from consumers.status import held_back
from pipeline.settings import Settings


def register(application: typer.Typer) -> None:
    """Add the command."""
    application.command("resume")(resume)


def resume(
    name: Annotated[str, typer.Argument(help="A breaker or guard, as `status` names it.")],
    *,
    data_dir: DataDir = DATA_DIR,
    as_json: AsJson = False,
) -> None:
    """Let a breaker be tried at once, or a mass guard let letters through again."""
    run(_resume(name, settings_for(data_dir), data_dir, Output(as_json=as_json)))


async def _resume(name: str, settings: Settings, data_dir: Path, output: Output) -> int:
    async with connected(settings, data_dir) as parts:
        held = await held_back(parts)
        if name not in {one["name"] for one in held}:
            known = ", ".join(one["name"] for one in held) or "nothing is held back"
            output.say(f"{name} holds nothing back. What does: {known}")
            output.result({"resumed": None, "held_back": held})
            return 1
        await switch_desk(parts, by=who_calls()).resume(name)
    output.say(f"{name} is resumed; `./afterturn status` tells how it goes")
    output.result({"resumed": name})
    return 0
