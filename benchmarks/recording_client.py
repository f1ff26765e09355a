"""`bench recording-client`: what recording adds to a call of a model, for whoever waits for it."""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from benchmarks.endpoint import answering_after
from benchmarks.figures import Figure, latencies

ROOT: Final = Path(__file__).parents[1]
GOALS: Final = {50: "≤ 1.02", 99: "≤ 1.05"}
_MEASURED: Final = {
    "alone": 0.0,
    "busy": 0.1,
}
"""By the name of a measurement, after how many seconds the model answers."""


async def run(parts: object, progress: Callable[[str], None]) -> list[Figure]:
    """Return p50 and p99 of calls through the recorded client, by those of the bare one.

    The caller is a process of its own, which has of ours only what an agent has. `alone`: one
    call at a time, to a model that answers at once, with nothing left to do of the call before.
    `busy`: several conversations at once, to a model that takes a tenth of a second, and whatever
    recording does meanwhile is in the way.
    """
    figures: list[Figure] = []
    with answering_after(0) as memory:
        for name, seconds in _MEASURED.items():
            with answering_after(seconds) as model:
                progress(f"calls of a model that answers after {seconds:g} s, {name}")
                times = await _measured(name, model, memory)
            figures += latencies(
                f"recording-client {name}", times["recorded"], times["bare"], GOALS
            )
    return figures


async def _measured(name: str, model: str, memory: str) -> dict[str, Any]:
    path = os.pathsep.join((str(ROOT), str(ROOT / "sdk" / "src")))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.recording_calls", name, model, memory),
        env={**os.environ, "PYTHONPATH": path},
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"the process that calls ended with {process.returncode}")
    return json.loads(out)
