"""A consumer in a process of its own: `consumer_process.py '{"servers": …}'`.

It prints a line when it has started, and one for each message that it begins and ends.
"""

import asyncio
import json
import os
import sys
from datetime import timedelta
from typing import Any

from consumers.apps import ConsumerApp, Subscription
from consumers.running import run_until_signal
from pipeline.crash_points import CrashPoint, arm
from schemas.message import IncomingMessage
from tests.integration.consuming import declared, kafka_settings


async def main(given: dict[str, Any]) -> None:
    """Run until told to stop."""

    async def step(message: IncomingMessage) -> None:
        say("begin", message)
        await asyncio.sleep(given["step_seconds"])
        say("end", message)

    settings = kafka_settings(given["servers"], instance_id="process")
    app = ConsumerApp(
        settings.model_copy(
            update={
                "drain_timeout": timedelta(seconds=given["drain_seconds"]),
                "request_timeout": timedelta(seconds=given["request_seconds"]),
            }
        ),
        [
            Subscription(
                name="main",
                group=given["group"],
                topics=declared(given["topic"], partitions=given["partitions"]),
                step=step,
                concurrency=4,
            )
        ],
    )
    if given.get("crashes"):
        arm(CrashPoint.BEFORE_COMMIT)
    await run_until_signal([app], cap=timedelta(seconds=given["cap_seconds"]), leave=os._exit)


def say(word: str, message: IncomingMessage) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{word} {(message.value or b'').decode()}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
