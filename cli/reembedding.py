"""`reembed`: from the vectors of one model to those of another, while readers go on."""

from pathlib import Path
from typing import Annotated

import typer

from cli.connecting import connected
from cli.environment import DATA_DIR, AsJson, DataDir, settings_for, who_calls
from cli.job_reports import reembed_progress, tell_reembed, watched
from cli.output import Output
from cli.running import run
from consumers.embedding_wiring import configured_embedder
from consumers.operating import job_desk, reembed_work
from pipeline.embedding.checking import mending, probed
from pipeline.errors import ConfigurationError
from pipeline.settings import Settings
from schemas.job import Reembed, ReembedJob


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
        output.say(f"Building those of {embedder.model} beside them.")
        desk = job_desk(parts, by=who_calls())
        job = ReembedJob(
            job_id=desk.name("reembed"),
            reembed=Reembed(model=embedder.model, project_id=project),
            before=before,
            by=desk.by,
            created_at=await desk.now(),
        )
        await desk.start(job, project_id=project)
        work = reembed_work(
            parts, embedder, tell=lambda job: output.progress(reembed_progress(job))
        )
        ended = await watched(parts, {"reembed": work}, job, output)
        return await tell_reembed(parts, ended, output)
