"""A process that starts services and then only waits, for tests that end it roughly.

`python -m tests.compose.holder services DATA_DIR` runs the embedded services,
`python -m tests.compose.holder program LOG_FILE COMMAND…` a command that stops slowly; `forked`
before either leaves a copy of the process behind, which has every open file of the first.
It says one line of JSON about what it started.
"""

import asyncio
import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

from compose.embedded import embedded_services
from compose.processes import Child, Program

HOLD_SECONDS = 600


async def hold_services(data_dir: Path) -> None:
    """Run the embedded services."""
    async with embedded_services(data_dir) as services:
        say(groups=[services.mongo.pid, services.kafka.pid], mongo_uri=services.mongo_uri)
        await asyncio.sleep(HOLD_SECONDS)


def hold_program(log_file: Path, command: tuple[str, ...], *, is_forked: bool) -> None:
    """Run a command."""
    child = Child.start(
        Program(
            name="held",
            command=command,
            log_file=log_file,
            stop_timeout=timedelta(seconds=0.5),
        )
    )
    copy = os.fork() if is_forked else None
    if copy != 0:
        say(groups=[child.pid], copy=copy)
    time.sleep(HOLD_SECONDS)


def say(**facts: object) -> None:
    """Tell the test what was started."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> None:
    """Start what was asked for."""
    match arguments:
        case ["services", data_dir]:
            asyncio.run(hold_services(Path(data_dir)))
        case ["program" | "forked" as how, log_file, *command]:
            hold_program(Path(log_file), tuple(command), is_forked=how == "forked")
        case _:
            sys.exit(f"not understood: {arguments}")


if __name__ == "__main__":
    main(sys.argv[1:])
