"""`reembed`: from the vectors of one model to those of another, while readers go on."""

from pathlib import Path
from typing import Annotated

import typer

from cli.connecting import connected
from cli.environment import DATA_DIR, AsJson, DataDir, settings_for
from cli.output import Output, counted
from cli.running import run
from consumers.embedding_wiring import configured_embedder, reembedder
from pipeline.embedding.checking import mending, probed
from pipeline.embedding.reembedding import Report
from pipeline.errors import ConfigurationError
from pipeline.settings import Settings


def register(application: typer.Typer) -> None:
    """Add the command."""
    application.command("reembed")(reembed)


def reembed(
    *,
    project: Annotated[
        str | None, typer.Option(help="Only build the vectors of this project; switch nothing.")
    ] = None,
    data_dir: DataDir = DATA_DIR,
    as_json: AsJson = False,
) -> None:
    """Build the vectors of the configured embedder beside those there are, then switch to them."""
    run(_reembed(project, settings_for(data_dir), data_dir, Output(as_json=as_json)))


async def _reembed(project: str | None, settings: Settings, data_dir: Path, output: Output) -> int:
    def progress(report: Report) -> None:
        output.progress(f"{report.records} records and turns looked at, {report.embedded} embedded")

    async with (
        configured_embedder(settings.embedding) as embedder,
        connected(settings, data_dir) as parts,
    ):
        failure = await probed(embedder)
        if failure is not None:
            raise ConfigurationError(
                f"The embedder {embedder.model} makes no vectors ({failure.reason}):"
                f" {mending(failure)}"
            )
        before = await parts.active_model.active()
        output.say(f"Searched are the vectors of {before or 'no model'}.")
        output.say(
            f"Building those of {embedder.model} beside them; cut off, the same command goes on."
        )
        work = reembedder(parts, embedder)
        report = (
            await work.run(progress) if project is None else await work.build(project, progress)
        )
        active = await parts.active_model.active()
    output.progress_ends()
    output.say(
        f"{report.embedded} records and turns embedded, {counted(report.refused, 'text')} refused,"
        f" {counted(report.deleted, 'vector')} of other models deleted"
    )
    output.say(f"Searched are the vectors of {active or 'no model'} now.")
    output.result(
        {
            "before": before,
            "active": active,
            "embedded": report.embedded,
            "refused": report.refused,
            "deleted": report.deleted,
        }
    )
    return 0
