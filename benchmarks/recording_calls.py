"""The process that `bench recording-client` measures: it calls a model, recorded and bare."""

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from agent_engine_sdk_memory import Memory
from openai import OpenAI

from afterturn import Recorder, conversation

PAIRS = 1_500
WARM_UP = 50
AT_ONCE = 4
ROUNDS = 40
CALLS = 5
TEXT = "I moved to Porto last spring, and I like the river there. " * 4


def main() -> None:
    """Print what was timed, in seconds, as one object."""
    name, model, memory = sys.argv[1:]
    bare = OpenAI(base_url=model, api_key="none", max_retries=0)
    with Recorder(lambda: Memory(base_url=memory)) as recorder:
        recorded = recorder.recorded(bare)
        measure = _alone if name == "alone" else _busy
        ours, theirs = measure(recorder, recorded, bare)
    sys.stdout.write(json.dumps({"recorded": ours, "bare": theirs}))


def _alone(recorder: Recorder, recorded: OpenAI, bare: OpenAI) -> tuple[list[float], list[float]]:
    """Time calls in pairs, so that a machine whose speed drifts drifts for both."""
    ours: list[float] = []
    theirs: list[float] = []
    sides = [(ours, recorded), (theirs, bare)]
    for number in range(-WARM_UP, PAIRS):
        for times, client in sides if number % 2 else reversed(sides):
            recorder.flush()
            took = _call(client, f"alone {number}")
            if number >= 0:
                times.append(took)
    return ours, theirs


def _busy(recorder: Recorder, recorded: OpenAI, bare: OpenAI) -> tuple[list[float], list[float]]:
    """Time calls of several at once, recorded and bare by turns, a few calls each."""
    ours: list[float] = []
    theirs: list[float] = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for number in range(ROUNDS):
            for times, client in ((ours, recorded), (theirs, bare)):
                for taken in pool.map(_calls(client, number), map(str, range(AT_ONCE))):
                    times.extend(taken)
                recorder.flush()
    return ours, theirs


def _calls(client: OpenAI, number: int) -> Callable[[str], list[float]]:
    return lambda name: [_call(client, f"{name} {number} {each}") for each in range(CALLS)]


def _call(client: OpenAI, session: str) -> float:
    with conversation(session_id=session, user_id="bench"):
        began = time.perf_counter()
        client.chat.completions.create(
            model="bench", messages=[{"role": "user", "content": TEXT + session}]
        )
        return time.perf_counter() - began


if __name__ == "__main__":
    main()
