"""The composition of extraction: who is asked, through which gate, and the step itself."""

import os
import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

from consumers.wiring import (
    Installation,
    cooldowns,
    retry_tiers,
)
from pipeline.extracting.extractors import ProjectExtractors, Target, Targets
from pipeline.extracting.settling import Settler
from pipeline.extracting.step import ExtractionStep
from pipeline.failing.failed_attempts import FailedAttempts
from pipeline.failing.gating import Gate, Share
from pipeline.failing.limiting import Limiter
from pipeline.failing.reasons import Reason
from pipeline.metrics import Provider
from pipeline.models.choosing import model_from
from pipeline.models.loggers import quiet_vendor_loggers
from pipeline.models.metering import MeteredModel
from pipeline.models.own import OwnModels, UnaskableModel
from pipeline.ports.model import Model
from pipeline.replaying.succession import Succession
from pipeline.settings import LLMSettings
from pipeline.stores.switches import MongoBreakers, MongoGuards
from schemas.project import ExtractionLLM
from schemas.topics import Stage

if TYPE_CHECKING:
    from pipeline.models.asking import InstructedModel


class ReachedTargets:
    """Port `Targets`: the model of the process, and those that projects name."""

    def __init__(self, parts: Installation, model: Model, own: OwnModels) -> None:
        llm = parts.settings.llm
        secret = llm.api_key.get_secret_value() if llm.api_key else ""
        self._parts = parts
        self._own = own
        self._known: dict[ExtractionLLM, Target] = {}
        self._default = Target(
            name=f"{llm.provider}:{llm.model}:{parts.ids.credential(secret)}",
            model=_metered(parts, model, llm.provider),
            limiter=Limiter(parts.settings.extraction.permits),
            is_own=False,
        )

    @property
    def default(self) -> Target:
        """The model of the process."""
        return self._default

    async def of(self, llm: ExtractionLLM) -> Target:
        """Return the model that a project names; the first time, this may take seconds."""
        known = self._known.get(llm)
        return known or self._known.setdefault(llm, await self._new(llm))

    def unaskable(self, reason: Reason) -> Target:
        """Return one that is a project's and always says why it can't be asked."""
        llm = self._parts.settings.llm
        return Target(
            name=f"settings:{reason}",
            model=UnaskableModel(name="unnamed", max_tokens=llm.max_tokens, reason=reason),
            limiter=Limiter(self._parts.settings.extraction.permits),
            is_own=True,
        )

    async def _new(self, llm: ExtractionLLM) -> Target:
        own = await self._own.of(llm)
        if own is None:
            return self._default
        name = f"{own.name}:{self._parts.ids.credential(own.credential)}"
        # Two projects may have one model, each with words of its own for it.
        for target in self._known.values():
            if target.name == name:
                return target
        model = own.model
        if not isinstance(model, UnaskableModel):
            provider = "openai_compatible" if llm.provider == "cerebras" else llm.provider
            process = self._parts.settings.llm.provider
            model = _metered(self._parts, model, provider or process)
        return Target(
            name=name,
            model=model,
            limiter=Limiter(self._parts.settings.extraction.permits),
            is_own=True,
        )


def extractors(parts: Installation, targets: Targets) -> ProjectExtractors:
    """Return who extracts for each project."""
    share = Share(parts.settings.extraction.permits)

    def new_gate(target: Target, version: str) -> Gate:
        return Gate(
            breakers=MongoBreakers(parts.database),
            guards=MongoGuards(parts.database),
            server_time=parts.server_time,
            target=target.name,
            version=version,
            limiter=target.limiter,
            cooldowns=cooldowns(parts.settings),
            answer_within=parts.settings.extraction.attempt_deadline,
            share=share if target.is_own else None,
        )

    return ProjectExtractors(
        projects=parts.projects,
        targets=targets,
        new_gate=new_gate,
        is_opt_in=parts.settings.extraction.opt_in,
    )


def extraction_step(
    parts: Installation,
    model: Model,
    *,
    own: OwnModels | None = None,
    is_alone: Callable[[], bool] = lambda: True,
) -> ExtractionStep:
    """Return the step of the extraction consumers and of their retry tiers.

    Args:
        parts: What it shares.
        model: Who is asked for projects that name nobody.
        own: Makes the models of those that do; the caller closes it. None: their keys are nowhere.
        is_alone: Whether nothing else runs in this process.
    """
    targets = ReachedTargets(parts, model, own or OwnModels(parts.settings.llm, {}))
    settler = Settler(
        extractions=parts.extractions,
        snapshots=parts.snapshots,
        folder=parts.folder,
        fates=parts.fates,
        dead_letters=parts.dead_letters,
        clock=parts.clock,
        metrics=parts.metrics,
    )
    failed_attempts = FailedAttempts(
        extractions=parts.extractions,
        turns=parts.turns,
        fates=parts.fates,
        settler=settler,
        clock=parts.clock,
        server_time=parts.server_time,
        tiers=retry_tiers(parts.settings, Stage.EXTRACTION),
        age_cap=parts.settings.retry.age_cap,
        metrics=parts.metrics,
    )
    return ExtractionStep(
        extractions=parts.extractions,
        snapshots=parts.snapshots,
        turns=parts.turns,
        extractors=extractors(parts, targets),
        folder=parts.folder,
        fates=parts.fates,
        dead_letters=parts.dead_letters,
        ids=parts.ids,
        settler=settler,
        succession=Succession(
            extractions=parts.extractions,
            snapshots=parts.snapshots,
            assertions=parts.assertions,
            letters=parts.letters,
            folder=parts.folder,
        ),
        failed_attempts=failed_attempts,
        server_time=parts.server_time,
        owner=f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}",
        settings=parts.settings.extraction,
        metrics=parts.metrics,
        is_alone=is_alone,
    )


def _metered(parts: Installation, model: Model, provider: Provider | None) -> MeteredModel:
    return MeteredModel(model, provider=provider or "openai_compatible", metrics=parts.metrics)


@asynccontextmanager
async def own_models(
    settings: LLMSettings, secrets: Mapping[str, str]
) -> AsyncGenerator[OwnModels]:
    """Make models for projects that name their own; close their connections at the end.

    Args:
        settings: The model of the process.
        secrets: The environment, where their keys are.
    """
    own = OwnModels(settings, secrets)
    try:
        yield own
    finally:
        await own.aclose()


@asynccontextmanager
async def configured_model(settings: LLMSettings) -> AsyncGenerator["InstructedModel"]:
    """Make the configured model ready; close its connections at the end.

    Raises:
        ConfigurationError: None is configured, or not enough of it.
    """
    quiet_vendor_loggers()
    model = model_from(settings)
    await model.prepare()
    try:
        yield model
    finally:
        await model.aclose()
