"""`memory configure`, `memory apply`, `memory status`: the settings of projects."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final
from uuid import uuid4

import typer
from pydantic import TypeAdapter, ValidationError

from cli.connecting import connected
from cli.environment import DATA_DIR, AsJson, DataDir, option_of, settings_for, who_calls
from cli.output import Output, counted
from cli.running import run
from consumers.status import held_back
from consumers.wiring import Installation
from pipeline.errors import ConfigurationError
from pipeline.projects.configuring import (
    Difference,
    Finding,
    RefusedSettingsError,
    differences,
    settings_of,
    without_effect,
)
from pipeline.settings import Settings
from pipeline.stores.operator_actions import MongoOperatorActions
from pipeline.stores.projects import MongoProjects, ProjectState
from schemas.identity import DEFAULT_PROJECT, Name
from schemas.operator_action import Act, OperatorAction
from schemas.project import NO_SETTINGS, ExtractionLLM, ProjectSettings

Project = Annotated[str, typer.Option(help="Whose settings.")]
FILE: Final = Path("project-config.yaml")
_NAME: Final[TypeAdapter[str]] = TypeAdapter(Name)


def register(application: typer.Typer) -> None:
    """Add the commands."""
    memory = typer.Typer(help="The settings of projects.", no_args_is_help=True)
    memory.command("configure")(configure)
    memory.command("apply")(apply)
    memory.command("status")(status)
    application.add_typer(memory, name="memory")


def configure(
    file: Annotated[Path, typer.Argument(help="A YAML file with a `memory:` block.")] = FILE,
    *,
    project: Project = DEFAULT_PROJECT,
    data_dir: DataDir = DATA_DIR,
    as_json: AsJson = False,
) -> None:
    """Store the `memory:` block of a file; it takes effect with `memory apply`."""
    _check(project)
    run(_configure(file, project, settings_for(data_dir), data_dir, Output(as_json=as_json)))


def apply(
    *,
    project: Project = DEFAULT_PROJECT,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change; change nothing.")
    ] = False,
    data_dir: DataDir = DATA_DIR,
    as_json: AsJson = False,
) -> None:
    """Let stored settings take effect, within a second and without a restart."""
    _check(project)
    output = Output(as_json=as_json)
    run(_apply(project, settings_for(data_dir), data_dir, output, dry_run=dry_run))


def status(
    *,
    project: Annotated[str | None, typer.Option(help="One project; else all with settings.")] = (
        None
    ),
    data_dir: DataDir = DATA_DIR,
    as_json: AsJson = False,
) -> None:
    """Show what is stored and what is applied, how they differ, and what does nothing here."""
    if project is not None:
        _check(project)
    run(_status(project, settings_for(data_dir), data_dir, Output(as_json=as_json)))


def _check(project: str) -> None:
    try:
        _NAME.validate_python(project)
    except ValidationError:
        raise ConfigurationError(
            "--project must be a name of 1 to 256 characters, not blank, without control characters"
        ) from None


def _text_of(file: Path) -> str:
    """Return what is in a file.

    Raises:
        ConfigurationError: It is no text file.
        OSError: It can't be read.
    """
    if not file.is_file():
        problem = "is no file" if file.exists() else "does not exist"
        raise ConfigurationError(f"{file} {problem}: name a YAML file with a `memory:` block")
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigurationError(
            f"{file} is no text file (not UTF-8): name a YAML file with a `memory:` block"
        ) from None


async def _configure(
    file: Path, project: str, settings: Settings, data_dir: Path, output: Output
) -> int:
    text, name = _text_of(file), str(file)
    async with connected(settings, data_dir) as parts:
        projects = MongoProjects(parts.database)
        state = await projects.state(project)
        stored = await _stored(projects, state)
        try:
            new = settings_of(text, name=name, stored=stored)
        except RefusedSettingsError as error:
            output.say(f"{name} is refused, and nothing was changed:")
            _say_findings(error.findings, output)
            output.result({"findings": _as_json(error.findings)}, error=str(error))
            return 1
        changed = differences(stored or NO_SETTINGS, new)
        is_new = stored is None or _written(stored) != _written(new)
        revision = state.stored_revision
        if is_new:
            await _note(parts, Act.PROJECT_CONFIGURE, project, revision + 1)
            kept = await projects.store(project, new, after=revision, now=await _now(parts))
            if kept is None:
                raise ConfigurationError(
                    f"somebody else stored settings of {project} meanwhile, and yours were not:"
                    " look at them with `./afterturn memory status`, then store yours again"
                )
            revision = kept
    idle = without_effect(new)
    place = option_of(data_dir)
    of = "" if project == DEFAULT_PROJECT else f" --project {project}"
    output.say(
        f"Stored as revision {revision} of {project}; `./afterturn memory apply{of}{place}` lets it"
        " take effect."
        if is_new
        else f"Revision {revision} of {project} is the same already; nothing was stored."
    )
    _say_differences(changed, output)
    _say_findings(idle, output)
    output.result(
        {
            "project": project,
            "revision": revision,
            "stored": is_new,
            "applied": state.applied_revision == revision,
            "changes": _changes(changed),
            "without_effect": _as_json(idle),
        }
    )
    return 0


async def _apply(
    project: str, settings: Settings, data_dir: Path, output: Output, *, dry_run: bool
) -> int:
    async with connected(settings, data_dir) as parts:
        projects = MongoProjects(parts.database)
        state = await projects.state(project)
        stored = await _stored(projects, state)
        if stored is None:
            raise ConfigurationError(
                f"nothing is stored for {project}: store the `memory:` block of a file with"
                " `./afterturn memory configure FILE`"
            )
        before = await projects.revision(project, state.applied_revision)
        changed = differences(before.settings if before else NO_SETTINGS, stored)
        if not dry_run:
            await _note(parts, Act.PROJECT_APPLY, project, state.stored_revision)
            now = await _now(parts)
            if not await projects.apply(project, state.stored_revision, now=now):
                raise ConfigurationError(
                    f"other settings of {project} were stored meanwhile: look at them with"
                    " `./afterturn memory status`, and apply again"
                )
    did = "would take" if dry_run else "takes"
    output.say(f"Revision {state.stored_revision} of {project} {did} effect.")
    _say_differences(changed, output)
    idle = without_effect(stored)
    _say_findings(idle, output)
    output.result(
        {
            "project": project,
            "revision": state.stored_revision,
            "applied": not dry_run,
            "changes": _changes(changed),
            "without_effect": _as_json(idle),
        }
    )
    return 0


async def _status(project: str | None, settings: Settings, data_dir: Path, output: Output) -> int:
    async with connected(settings, data_dir) as parts:
        projects = MongoProjects(parts.database)
        states = await projects.all() if project is None else [await projects.state(project)]
        held = await held_back(parts)
        shown = [await _shown(projects, state, held) for state in states]
    for each in shown:
        _say_project(each, output)
    if not shown:
        output.say("No project has settings: each is extracted as the process is set.")
    output.result({"projects": shown})
    return 0


async def _shown(
    projects: MongoProjects, state: ProjectState, held: list[dict[str, Any]]
) -> dict[str, Any]:
    stored = await _stored(projects, state)
    applied = await projects.revision(state.project_id, state.applied_revision)
    counting = applied.settings if applied else NO_SETTINGS
    llm = counting.extraction_llm
    return {
        "project": state.project_id,
        "stored": None if stored is None else _revision(state.stored_revision, state.stored_at),
        "applied": (
            _revision(state.applied_revision, state.applied_at) if state.applied_revision else None
        ),
        "drift": [] if stored is None else _changes(differences(counting, stored)),
        "extracts": [kind.value for kind in counting.kinds],
        "without_effect": _as_json(without_effect(counting)),
        "held_back": [one for one in held if llm.is_own and _may_be(llm, one["name"])],
    }


def _may_be(llm: ExtractionLLM, target: str) -> bool:
    """Return whether a breaker may be that of a model; whose key it is, only its process knows."""
    provider, _, rest = target.partition(":")
    return llm.provider in (None, provider) and rest.startswith(f"{llm.model or ''}")


async def _stored(projects: MongoProjects, state: ProjectState) -> ProjectSettings | None:
    if state.stored_revision == 0:
        return None
    found = await projects.revision(state.project_id, state.stored_revision)
    return None if found is None else found.settings


async def _note(parts: Installation, act: Act, project: str, revision: int) -> None:
    """Write down what is about to be done."""
    await MongoOperatorActions(parts.database).write(
        OperatorAction(
            action_id=uuid4().hex,
            at=await _now(parts),
            by=who_calls(),
            act=act,
            target=f"revision {revision}",
            project_id=project,
        )
    )


async def _now(parts: Installation) -> datetime:
    return datetime.fromtimestamp(await parts.server_time.now_ms() / 1000, UTC)


def _revision(number: int, at: datetime | None) -> dict[str, Any]:
    return {"revision": number, "at": None if at is None else at.isoformat()}


def _written(settings: ProjectSettings) -> dict[str, Any]:
    """Return what a file said, and nothing that it left out."""
    return settings.model_dump(mode="json", exclude_unset=True)


def _changes(changed: list[Difference]) -> list[dict[str, str]]:
    return [{"key": one.path, "before": one.before, "after": one.after} for one in changed]


def _as_json(findings: tuple[Finding, ...] | list[Finding]) -> list[dict[str, Any]]:
    return [{"key": one.path, "line": one.line, "detail": one.detail} for one in findings]


def _say_findings(findings: tuple[Finding, ...] | list[Finding], output: Output) -> None:
    for finding in findings:
        output.say(f"  {finding}")


def _say_differences(changed: list[Difference], output: Output) -> None:
    for one in changed:
        output.say(f"  {one.path}: {one.before} -> {one.after}")


def _say_project(shown: dict[str, Any], output: Output) -> None:
    output.say(f"project      {shown['project']}")
    for which in ("stored", "applied"):
        revision = shown[which]
        said = "nothing" if revision is None else f"revision {revision['revision']}"
        since = "" if revision is None else f", since {revision['at']}"
        output.say(f"{which:<12} {said}{since}")
    output.say(f"extracts     {', '.join(shown['extracts']) or 'nothing'}")
    if shown["drift"]:
        output.say(
            f"DRIFT        {counted(len(shown['drift']), 'key')} stored and not applied;"
            " `./afterturn memory apply` lets them take effect"
        )
    for one in shown["drift"]:
        output.say(f"  {one['key']}: {one['before']} -> {one['after']}")
    for one in shown["without_effect"]:
        output.say(f"  {one['key']}: {one['detail']}")
    for one in shown["held_back"]:
        output.say(
            f"HELD BACK    {one['kind']} {one['name']} is {one['state']} because of"
            f" {one['reason']}: {one['action']}"
        )
