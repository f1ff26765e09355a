"""The composition root of what operators work with, by command line and console alike."""

import asyncio
import os
import socket
from collections.abc import Callable
from uuid import uuid4

from consumers.extraction_wiring import ReachedTargets, extractors
from consumers.jobs_app import JobsApp
from consumers.wiring import Installation
from pipeline.failing.resuming import SwitchDesk
from pipeline.letters.desk import LetterDesk
from pipeline.models.own import OwnModels
from pipeline.ports.model import Model
from pipeline.replaying.desk import ReplayDesk
from pipeline.replaying.running import ReplayRunner, Step
from pipeline.stores.deliveries import MongoDeliveries
from pipeline.stores.jobs import MongoJobs
from pipeline.stores.operator_actions import MongoOperatorActions
from pipeline.stores.switches import MongoBreakers, MongoGuards


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


def replay_desk(parts: Installation, *, by: str) -> ReplayDesk:
    """Return what starts, pauses, resumes and cancels replays.

    Args:
        parts: What it shares.
        by: Who does it, for the audit trail.
    """
    return ReplayDesk(
        jobs=MongoJobs(parts.database),
        snapshots=parts.snapshots,
        turns=parts.turns,
        extractions=parts.extractions,
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


def replay_runner(
    parts: Installation,
    model: Model,
    *,
    own: OwnModels | None = None,
    tell: Callable[[Step], None] = lambda _step: None,
) -> ReplayRunner:
    """Return what runs replays in this process.

    Args:
        parts: What it shares.
        model: Who extracts for projects that name nobody: nobody is asked here, its version counts.
        own: Makes the models of those that do; the caller closes it. None: their keys are nowhere.
        tell: Is told how far it is.
    """
    targets = ReachedTargets(parts, model, own or OwnModels(parts.settings.llm, {}))
    return ReplayRunner(
        jobs=MongoJobs(parts.database),
        snapshots=parts.snapshots,
        extractions=parts.extractions,
        extractors=extractors(parts, targets),
        turns=parts.turns,
        fates=parts.fates,
        server_time=parts.server_time,
        clock=parts.clock,
        sleep=asyncio.sleep,
        owner=f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}",
        lost_after=parts.settings.waker.lost_after,
        tell=tell,
    )


def jobs_app(parts: Installation, model: Model, *, own: OwnModels | None = None) -> JobsApp:
    """Return what runs operators' jobs in this process; arguments as for `replay_runner`."""
    return JobsApp(MongoJobs(parts.database), replay_runner(parts, model, own=own))
