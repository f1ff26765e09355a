"""`bench NAME`: a figure beside its yardstick, in one run on the same servers."""

import tempfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from benchmarks import (
    cpu,
    extraction,
    http,
    latency,
    recall,
    record,
    recording_client,
    search,
    soak,
)
from benchmarks.figures import Figure
from benchmarks.locomo import Conversation, conversations_of
from cli.environment import AsJson, configured
from cli.output import Output
from cli.running import run
from cli.system import embedded
from pipeline.errors import ConfigurationError
from pipeline.logs import configure_logs

PATIENCE: Final = timedelta(minutes=2)
RECALL: Final = "recall"
Name = Literal[
    "record", "http", "extraction", "cpu", "latency", "search", "soak", "recall", "recording-client"
]
_BENCHMARKS: Final[dict[Name, Any]] = {
    "record": record,
    "http": http,
    "extraction": extraction,
    "cpu": cpu,
    "latency": latency,
    "search": search,
    "soak": soak,
    "recording-client": recording_client,
}


def register(application: typer.Typer) -> None:
    """Add the command."""
    application.command("bench")(bench)


def bench(
    name: Annotated[Name, typer.Argument(help="Which figure.", show_choices=True)],
    file: Annotated[
        Path | None, typer.Argument(help="For recall: conversations in LoCoMo's format.")
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Measure a figure on embedded services, or on the servers the environment names.

    record: a turn as we record it, beside one bare insert of the same document.

    http: a turn over HTTP, beside that insert behind an otherwise empty route.

    extraction: snapshots a second, beside the same calls of a model in a bare loop.

    cpu: our CPU time a snapshot, beside the same commands sent bare.

    latency: from the last turn of a full snapshot to its records, less the model's time.

    search: a hybrid search in memory, beside a bare product and bm25s over the same.

    soak: what memory and open files grow by over 100,000 events; it takes half an hour.

    recording-client: a model called through the recorded client, beside the bare client.

    recall FILE: which of the turns that answer questions are found, beside plain searches.
    """
    if (name == RECALL) != (file is not None):
        raise ConfigurationError("`bench recall` takes a file with conversations, no other does")
    conversations = [] if file is None else conversations_of(file)
    run(_bench(name, conversations, Output(as_json=as_json)))


async def _bench(name: Name, conversations: Sequence[Conversation], output: Output) -> int:
    configure_logs("error")
    with tempfile.TemporaryDirectory(prefix="afterturn-bench-") as place:
        settings = configured()
        # What is overloaded on purpose answers late, and that is a figure, not an error.
        patient = settings.mongo.model_copy(update={"timeout": PATIENCE})
        longer = settings.extraction.attempt_deadline + 2 * PATIENCE
        extraction = settings.extraction.model_copy(update={"lease": longer})
        settings = settings.model_copy(update={"mongo": patient, "extraction": extraction})
        async with embedded(Path(place), settings, output) as parts:
            if name == RECALL:
                found = await recall.run(parts, output.step, conversations)
                figures, more = found.figures(), found.as_json()
                for line in found.lines():
                    output.say(line)
            else:
                figures: list[Figure] = await _BENCHMARKS[name].run(parts, output.step)
                more = dict[str, Any]()
    for figure in figures:
        beside = (
            f"{figure.ours:.2f} {figure.unit}"
            if figure.ratio is None
            else f"{figure.ours:.2f} against {figure.yardstick:.2f} {figure.unit}:"
            f" {figure.ratio:.2f} ×"
        )
        output.say(f"{figure.name}: {beside} (goal {figure.goal})")
    output.result({"bench": name, **more, "figures": [figure.as_json() for figure in figures]})
    return 0
