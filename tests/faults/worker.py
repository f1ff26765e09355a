"""A process of the system for tests that kill it; the composition roots are the real ones."""

import asyncio
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import count
from pathlib import Path

from cli.system import ROLES, apps_of
from consumers.recording_wiring import recorder
from consumers.running import run_until_signal
from consumers.wiring import Installation, installation
from pipeline.crash_points import CrashPoint, arm
from pipeline.errors import RecordingUnavailableError
from pipeline.logs import configure_logs
from pipeline.settings import Settings
from schemas.identity import SessionIdentity
from tests.faults.poison import Poison, spread

Said = tuple[SessionIdentity, str]
"""Who says what; the place among what is said in its session is its idempotency key."""


def turn_key(place: int) -> str:
    """Return the idempotency key of what is said at a place in its session."""
    return f"turn {place}"


def work(
    environment: dict[str, str],
    log_file: Path,
    crash_at: CrashPoint | None,
    said: Sequence[Said],
    *,
    closes: bool,
    poison: Poison | None = None,
) -> None:
    """Record what was said, then run every role until killed; die at a point if one is named.

    Embedding is one of them where an embedder is set.

    Args:
        environment: The settings.
        log_file: Where its log goes.
        crash_at: The point.
        said: What is recorded.
        closes: Whether the sessions are closed then.
        poison: What kills the process whenever it is met.
    """
    descriptor = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 2)
    os.environ.update(environment)
    if crash_at is not None:
        arm(crash_at)
    if poison is not None:
        spread(poison)
    configure_logs("info")
    asyncio.run(_work(said, closes=closes))


async def _work(said: Sequence[Said], *, closes: bool) -> None:
    settings = Settings()
    roles = (*ROLES, "embedding") if settings.embedding.provider != "none" else ROLES
    async with installation(settings) as parts, apps_of(parts, roles) as apps:
        recording = asyncio.create_task(_record(parts, said, closes=closes))
        await run_until_signal(apps, cap=timedelta(seconds=30), leave=os._exit)
        await recording


async def _record(parts: Installation, said: Sequence[Said], *, closes: bool) -> None:
    async with recorder(parts) as recording:
        places = defaultdict[SessionIdentity, Iterator[int]](count)
        for identity, content in said:
            key = turn_key(next(places[identity]))
            draft = {"role": "user", "content": content, "idempotency_key": key}
            while True:
                try:
                    await recording.record(identity, draft)
                except RecordingUnavailableError:
                    await asyncio.sleep(0.1)
                else:
                    break
        if closes:
            for identity in {identity.session_id: identity for identity, _ in said}.values():
                await recording.close(identity)
