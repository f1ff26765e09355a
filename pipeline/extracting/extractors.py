"""Who extracts for a project: which model, with what it is told, for which kinds, at which gate.

What a project sets counts from its next extraction on. One whose first answer is stored goes on
under the settings it began with, so that no change mixes two versions in it: unless the model of
those can't be asked any more, for then it would wait for ever.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from pipeline.errors import SettingsUnreadableError
from pipeline.extracting import prompting
from pipeline.failing.gating import GUARD_REASON, Gate, HeldError
from pipeline.failing.limiting import Limiter
from pipeline.failing.reasons import Reason
from pipeline.ports.model import Model
from pipeline.ports.projects import Projects
from schemas.memory import Kind
from schemas.project import ExtractionLLM, Instructions, ProjectSettings, Revision

GATES: Final = 4096
"""How many gates a process remembers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A model as one process reaches it."""

    name: str
    """The breaker's."""
    model: Model
    limiter: Limiter
    is_own: bool
    """Whether it is some project's, and not the one of the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extractor:
    """Everything that one extraction needs to ask."""

    target: Target
    gate: Gate
    instructions: Instructions
    kinds: tuple[Kind, ...]
    """What is asked for; if nothing, nobody is asked."""
    version: str
    revision: int
    """Of the project's settings."""
    is_own_version: bool
    """Whether the version is not the one of the process."""

    @property
    def model(self) -> Model:
        """Who is asked."""
        return self.target.model

    def parks(self, held: HeldError) -> bool:
        """Return whether what holds an extraction back is its project's affair.

        Then it waits in a tier; else whatever is behind it would be held back, too, so it stays
        where it is.
        """
        return self.target.is_own or (self.is_own_version and held.reason == GUARD_REASON)


class Extractors(Protocol):
    """Knows who extracts."""

    async def of(self, project_id: str | None, *, began_under: int | None) -> Extractor:
        """Return who extracts for a project.

        Args:
            project_id: Whose turns they are; none where that can't be known any more.
            began_under: The revision of the settings that the first stored answer was given under;
                none where there is no answer.
        """
        ...


class Targets(Protocol):
    """Reaches models."""

    @property
    def default(self) -> Target:
        """The model of the process."""
        ...

    async def of(self, llm: ExtractionLLM) -> Target:
        """Return the model that a project names; the first time, this may take seconds."""
        ...

    def unaskable(self, reason: Reason) -> Target:
        """Return one that is a project's and always says why it can't be asked."""
        ...


class ProjectExtractors:
    """Port `Extractors`: by the settings of projects.

    Concurrency: any number of tasks of one event loop.
    """

    def __init__(
        self,
        *,
        projects: Projects,
        targets: Targets,
        new_gate: Callable[[Target, str], Gate],
        is_opt_in: bool,
    ) -> None:
        """Prepare; nothing is read yet.

        Args:
            projects: The settings.
            targets: The models.
            new_gate: Makes the gate to a target for a version of the extractor.
            is_opt_in: Whether projects without settings are not extracted.
        """
        self._projects = projects
        self._targets = targets
        self._new_gate = new_gate
        self._is_opt_in = is_opt_in
        self._gates: dict[tuple[str, str], Gate] = {}

    async def of(self, project_id: str | None, *, began_under: int | None) -> Extractor:
        """Return who extracts for a project."""
        if project_id is None:
            return self._extractor(Revision(), self._targets.default, tuple(Kind))
        try:
            current = await self._projects.applied(project_id)
        except SettingsUnreadableError:
            # An error here would hold whatever is behind it in its partition, whoever's it is.
            target = self._targets.unaskable(Reason.SETTINGS_UNREADABLE)
            return self._extractor(Revision(), target, tuple(Kind))
        if began_under in (None, current.number):
            return await self._current(current)
        began = await self._began(project_id, began_under)
        if began is None:
            return await self._current(current)
        return await self._going_on(began, current)

    async def _began(self, project_id: str, number: int) -> Revision | None:
        try:
            return await self._projects.revision(project_id, number)
        except SettingsUnreadableError:
            return None

    async def _current(self, revision: Revision) -> Extractor:
        kinds = revision.settings.kinds
        if revision.number == 0 and self._is_opt_in:
            kinds = ()
        return self._extractor(revision, await self._target(revision.settings), kinds)

    async def _going_on(self, began: Revision, current: Revision) -> Extractor:
        """Return who finishes what was begun under other settings."""
        now = await self._current(current)
        target = await self._target(_with_present_access(began.settings, current.settings))
        then = self._extractor(began, target, began.settings.kinds)
        is_there = target.name == now.target.name or await then.gate.is_closed_to_none()
        return then if is_there or not now.kinds else now

    async def _target(self, settings: ProjectSettings) -> Target:
        llm = settings.extraction_llm
        return await self._targets.of(llm) if llm.is_own else self._targets.default

    def _extractor(self, revision: Revision, target: Target, kinds: tuple[Kind, ...]) -> Extractor:
        told = revision.settings.instructions
        asked = kinds or tuple(Kind)
        version = prompting.project_version(target.model.version, told, asked)
        return Extractor(
            target=target,
            gate=self._gate(target, version),
            instructions=told,
            kinds=kinds,
            version=version,
            revision=revision.number,
            is_own_version=version != target.model.version,
        )

    def _gate(self, target: Target, version: str) -> Gate:
        key = (target.name, version)
        gate = self._gates.pop(key, None) or self._new_gate(target, version)
        if len(self._gates) >= GATES:
            del self._gates[next(iter(self._gates))]
        self._gates[key] = gate
        return gate


def _with_present_access(began: ProjectSettings, current: ProjectSettings) -> ProjectSettings:
    """Return settings with the key and address of now, where the provider is still the same.

    They are no part of the version, and the old ones may be what was mended.
    """
    then, now = began.extraction_llm, current.extraction_llm
    if then.provider is None or then.provider != now.provider:
        return began
    access = {
        "base_url": now.base_url,
        "api_key_secret": now.api_key_secret,
        "auth_header": now.auth_header,
    }
    return began.model_copy(update={"extraction_llm": then.model_copy(update=access)})
