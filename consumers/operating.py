"""The composition root of what operators work with, by command line and console alike."""

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

from consumers.embedding_wiring import reembedder
from consumers.extraction_wiring import ReachedTargets, extractors
from consumers.jobs_app import JobsApp
from consumers.topic_reading import KafkaTopics
from consumers.wiring import Installation
from pipeline.embedding.ports import Embedder
from pipeline.embedding.reembedding_job import ReembedWork
from pipeline.failing.resuming import SwitchDesk
from pipeline.jobs.desk import JobDesk
from pipeline.jobs.running import JobRunner, Work
from pipeline.letters.desk import LetterDesk
from pipeline.letters.redrive_job import RedriveWork
from pipeline.letters.redriving import RedriveDesk
from pipeline.models.own import OwnModels
from pipeline.ports.model import Model
from pipeline.replaying.desk import ReplayDesk
from pipeline.replaying.previewing import PreviewDesk, PreviewWork, Said, tell_nobody
from pipeline.replaying.running import ReplayWork, Step
from pipeline.replaying.selecting import Selector
from pipeline.stores.deliveries import MongoDeliveries
from pipeline.stores.jobs import MongoJobs
from pipeline.stores.listings import MongoListings
from pipeline.stores.operator_actions import MongoOperatorActions
from pipeline.stores.switches import MongoBreakers, MongoGuards
from schemas.job import Previewed, PreviewJob, RedriveJob, ReembedJob


def letter_desk(parts: Installation, *, by: str) -> LetterDesk:
    """Return what sends letters back, discards and restores them.

    Args:
        parts: What it shares.
        by: Who does it, for the audit trail.
    """
    return LetterDesk(
        letters=parts.letters,
        extractions=parts.extractions,
        snapshots=parts.snapshots,
        turns=parts.turns,
        deliveries=MongoDeliveries(parts.database),
        embeddings=parts.embeddings,
        fates=parts.fates,
        publisher=parts.publisher,
        actions=MongoOperatorActions(parts.database),
        server_time=parts.server_time,
        clock=parts.clock,
        lost_after=parts.settings.waker.lost_after,
        new_name=lambda: uuid4().hex,
        by=by,
    )


def job_desk(parts: Installation, *, by: str) -> JobDesk:
    """Return what shows, pauses, resumes and cancels jobs; arguments as for `letter_desk`."""
    return JobDesk(
        jobs=MongoJobs(parts.database),
        actions=MongoOperatorActions(parts.database),
        server_time=parts.server_time,
        new_name=lambda: uuid4().hex[:20],
        by=by,
    )


def switch_desk(parts: Installation, *, by: str) -> SwitchDesk:
    """Return what lets breakers and guards go on.

    Args:
        parts: What it shares.
        by: Who does it, for the audit trail.
    """
    return SwitchDesk(
        breakers=MongoBreakers(parts.database),
        guards=MongoGuards(parts.database),
        actions=MongoOperatorActions(parts.database),
        server_time=parts.server_time,
        new_name=lambda: uuid4().hex,
        by=by,
    )


def redrive_desk(parts: Installation, *, by: str) -> RedriveDesk:
    """Return what starts redrives of many letters; arguments as for `letter_desk`."""
    return RedriveDesk(
        desk=job_desk(parts, by=by), letter_desk=letter_desk(parts, by=by), letters=parts.letters
    )


def replay_desk(parts: Installation, *, by: str) -> ReplayDesk:
    """Return what starts, pauses, resumes and cancels replays; arguments as for `letter_desk`."""
    return ReplayDesk(
        desk=job_desk(parts, by=by),
        jobs=MongoJobs(parts.database),
        selector=selector(parts),
        listings=MongoListings(parts.database),
        turns=parts.turns,
        extractions=parts.extractions,
    )


def selector(parts: Installation) -> Selector:
    """Return what finds the snapshots of selections."""
    return Selector(
        snapshots=parts.snapshots,
        runs=parts.extractions,
        letters=parts.letters,
        topics=KafkaTopics(parts.settings.kafka),
    )


def preview_desk(parts: Installation, *, by: str) -> PreviewDesk:
    """Return what starts previews; arguments as for `letter_desk`."""
    return PreviewDesk(desk=job_desk(parts, by=by), selector=selector(parts), turns=parts.turns)


def preview_work(
    parts: Installation,
    model: Model,
    *,
    own: OwnModels | None = None,
    tell: Callable[[PreviewJob, Previewed, Said, Said], None] = tell_nobody,
) -> PreviewWork:
    """Return the work of previews: here the model is asked; arguments as for `replay_work`."""
    targets = ReachedTargets(parts, model, own or OwnModels(parts.settings.llm, {}))
    return PreviewWork(
        snapshots=parts.snapshots,
        turns=parts.turns,
        assertions=parts.assertions,
        extractors=extractors(parts, targets),
        folder=parts.folder,
        ids=parts.ids,
        clock=parts.clock,
        settings=parts.settings.extraction,
        tell=tell,
    )


def replay_work(
    parts: Installation,
    model: Model,
    *,
    own: OwnModels | None = None,
    tell: Callable[[Step], None] = lambda _step: None,
) -> ReplayWork:
    """Return the work of replays.

    Args:
        parts: What it shares.
        model: Who extracts for projects that name nobody: nobody is asked here, its version counts.
        own: Makes the models of those that do; the caller closes it. None: their keys are nowhere.
        tell: Is told how far it is.
    """
    targets = ReachedTargets(parts, model, own or OwnModels(parts.settings.llm, {}))
    return ReplayWork(
        selector=selector(parts),
        listings=MongoListings(parts.database),
        extractions=parts.extractions,
        extractors=extractors(parts, targets),
        turns=parts.turns,
        fates=parts.fates,
        server_time=parts.server_time,
        clock=parts.clock,
        sleep=asyncio.sleep,
        lost_after=parts.settings.waker.lost_after,
        tell=tell,
    )


def redrive_work(
    parts: Installation, *, tell: Callable[[RedriveJob], None] = lambda _job: None
) -> RedriveWork:
    """Return the work of redrives, which asks nobody.

    Args:
        parts: What it shares.
        tell: Is told how far it is.
    """
    return RedriveWork(
        letters=parts.letters,
        desk_for=lambda by: letter_desk(parts, by=by),
        clock=parts.clock,
        sleep=asyncio.sleep,
        tell=tell,
    )


def reembed_work(
    parts: Installation,
    embedder: Embedder,
    *,
    tell: Callable[[ReembedJob], None] = lambda _job: None,
) -> ReembedWork:
    """Return the work of going over to an embedder's vectors.

    Args:
        parts: What it shares.
        embedder: Whose; the caller closes it.
        tell: Is told how far it is.
    """
    return ReembedWork(
        reembedder=reembedder(parts, embedder), model=embedder.model, clock=parts.clock, tell=tell
    )


def job_runner(parts: Installation, works: Mapping[str, Work[Any]]) -> JobRunner:
    """Return what runs jobs in this process.

    Args:
        parts: What it shares.
        works: By kind of job; those of other kinds are left to other processes.
    """
    return JobRunner(
        jobs=MongoJobs(parts.database),
        server_time=parts.server_time,
        owner=f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}",
        works=works,
    )


def jobs_app(
    parts: Installation,
    model: Model,
    *,
    own: OwnModels | None = None,
    embedder: Embedder | None = None,
) -> JobsApp:
    """Return what runs operators' jobs in this process.

    Args:
        parts: What it shares.
        model: As for `replay_work`.
        own: As for `replay_work`.
        embedder: As for `reembed_work`; none: who goes over to another model runs that elsewhere.
    """
    works: dict[str, Work[Any]] = {
        "replay": replay_work(parts, model, own=own),
        "preview": preview_work(parts, model, own=own),
        "redrive": redrive_work(parts),
    }
    if embedder is not None:
        works["reembed"] = reembed_work(parts, embedder)
    return JobsApp(MongoJobs(parts.database), job_runner(parts, works))
