"""What commands say of a job: while it runs, and what it came to."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict
from typing import Any, Final, TypeVar

from cli.output import Output, counted
from consumers.operating import job_desk, job_runner, redrive_desk, replay_desk
from consumers.wiring import Installation
from pipeline.jobs.running import Work
from schemas.job import Job, JobState, Previewed, PreviewJob, RedriveJob, ReembedJob, ReplayJob

LOOK_EVERY: Final = 1.0
"""Seconds between two looks at a job that somebody else runs."""

J = TypeVar("J", bound=Job)


async def watched(parts: Installation, works: Mapping[str, Work[Any]], job: J, output: Output) -> J:
    """Show how a job goes until it is done, paused or cancelled; return it as it is then.

    It is run here unless somebody else is faster. Interrupted, it says how it goes on.

    Args:
        parts: The installation.
        works: What can be done here; nothing: it is only looked at.
        job: Which.
        output: Where it is shown.
    """
    runner, desk = job_runner(parts, works), job_desk(parts, by="")
    try:
        while True:
            await runner.run(job.job_id)
            now = await desk.read(job.job_id)
            if not isinstance(now, type(job)) or now.state is not JobState.OPEN:
                break
            output.progress(PROGRESS[now.kind](now))
            await asyncio.sleep(LOOK_EVERY)
    except asyncio.CancelledError:
        output.progress_ends()
        output.say(
            f"Job {job.job_id} goes on where `up` or `run jobs` runs;"
            f" `./afterturn jobs pause {job.job_id}` stops it, `jobs show` tells how it goes."
        )
        raise
    output.progress_ends()
    return now if isinstance(now, type(job)) else job


def replay_progress(job: ReplayJob) -> str:
    """Return how far a replay is, in a line."""
    return f"{job.begun} begun, {job.skipped} skipped, {job.tokens} tokens"


def redrive_progress(job: RedriveJob) -> str:
    """Return how far a redrive is, in a line."""
    return f"{job.sent} of {job.of} sent back, {job.refused} not"


def reembed_progress(job: ReembedJob) -> str:
    """Return how far going over to other vectors is, in a line."""
    return f"{job.records} records and turns looked at, {job.embedded} embedded"


async def tell_replay(parts: Installation, job: ReplayJob, output: Output) -> int:
    """Say what a replay came to, so far; return the exit code."""
    found = await replay_desk(parts, by="").report(job)
    output.say(f"Replay {job.job_id} is {standing(job)}")
    output.say(
        f"  {counted(job.begun, 'run')} begun with {job.tokens} tokens of turns, {job.skipped}"
        " snapshots skipped (this very version, or nothing to extract)"
    )
    for outcome, count in sorted(found.outcomes.items()):
        output.say(f"  {count} {outcome}")
    output.say(
        f"  {found.took_over} took over: {found.added} contents added, {found.gone} gone,"
        f" {found.kept} as they were"
    )
    if found.left_alone:
        output.say(
            f"  {found.left_alone} left alone, since they found less: {found.would_lose} contents"
            " would have been lost"
        )
    output.result({**told(job), "report": asdict(found)})
    return 0


async def tell_redrive(parts: Installation, job: RedriveJob, output: Output) -> int:
    """Say what became of letters that were sent back; return the exit code."""
    tally = await redrive_desk(parts, by="").tally(job)
    output.say(
        f"{job.sent} of {counted(job.of, 'letter')} sent back; so far {tally.resolved}"
        f" resolved, {tally.died_again} dead again"
    )
    for refusal in job.refusals:
        output.say(f"  not sent back: {refusal}")
    is_stopped = job.state is JobState.PAUSED
    if is_stopped:
        output.say(
            f"  stopped: {job.reason}; the rest is dead still: `./afterturn jobs resume"
            f" {job.job_id}` goes on, perhaps with another --stop-above"
        )
    refused = job.refusals[0] if job.refusals else None
    output.result(
        {
            **told(job),
            "letters": job.of,
            "resolved": tally.resolved,
            "died_again": tally.died_again,
            "waiting": tally.waiting,
        },
        error=job.reason if is_stopped else refused,
    )
    return int(is_stopped or bool(job.refused))


async def tell_reembed(parts: Installation, job: ReembedJob, output: Output) -> int:
    """Say what going over to other vectors came to, so far; return the exit code."""
    active = await parts.active_model.active()
    output.say(f"Going over to {job.reembed.model} is {standing(job)}")
    output.say(
        f"{job.embedded} records and turns embedded, {counted(job.refused, 'text')} refused,"
        f" {counted(job.deleted, 'vector')} of other models deleted"
    )
    output.say(f"Searched are the vectors of {active or 'no model'} now.")
    output.result({**told(job), "active": active}, error=job.reason)
    return int(job.state is JobState.PAUSED)


def preview_progress(job: PreviewJob) -> str:
    """Return how far a preview is, in a line."""
    return f"{len(job.previewed)} of {len(job.snapshot_ids)} tried, of {job.snapshots} selected"


async def tell_preview(parts: Installation, job: PreviewJob, output: Output) -> int:
    """Say what a preview found, so far, in ids and numbers; return the exit code."""
    del parts
    output.say(f"Preview {job.job_id} is {standing(job)}: {preview_progress(job)}")
    for one in job.previewed:
        output.say(f"  {one.snapshot_id}: {one.failure or changes_of(one)}")
    names = ("added", "gone", "changed_content", "changed_evidence")
    total: dict[str, int] = {
        name: sum(len(getattr(one, name)) for one in job.previewed) for name in names
    }
    for name in ("kept", "turn_tokens", "prompt_tokens", "completion_tokens"):
        total[name] = sum(getattr(one, name) for one in job.previewed)
    total["failed"] = sum(one.failure is not None for one in job.previewed)
    used = total["prompt_tokens"] + total["completion_tokens"]
    tried = total["turn_tokens"]
    estimate = round(used / tried * job.tokens) if tried else None
    output.say(
        f"In sum {total['added']} records added, {total['gone']} gone, {total['changed_content']}"
        f" with other content, {total['changed_evidence']} with other evidence, {total['kept']} as"
        f" they were; {total['failed']} snapshots failed"
    )
    if estimate is not None:
        output.say(f"{used} tokens were used; the whole would use about {estimate}")
    output.result(
        {**told(job), "sum": total, "estimated_tokens": estimate},
        error=job.reason if job.state is JobState.PAUSED else None,
    )
    return int(job.state is JobState.PAUSED)


def changes_of(one: Previewed) -> str:
    """Return what a snapshot would change, in ids of records."""
    found = [
        f"{label} {', '.join(ids)}"
        for label, ids in (
            ("added", one.added),
            ("gone", one.gone),
            ("other content", one.changed_content),
            ("other evidence", one.changed_evidence),
        )
        if ids
    ]
    return "; ".join([*found, f"{one.kept} as they were"])


PROGRESS: Final[dict[str, Callable[[Any], str]]] = {
    "replay": replay_progress,
    "preview": preview_progress,
    "redrive": redrive_progress,
    "reembed": reembed_progress,
}
"""By kind of job: how far it is, in a line."""
TELL: Final[dict[str, Callable[[Installation, Any, Output], Coroutine[Any, Any, int]]]] = {
    "replay": tell_replay,
    "preview": tell_preview,
    "redrive": tell_redrive,
    "reembed": tell_reembed,
}
"""By kind of job: says what it came to."""


def standing(job: Job) -> str:
    """Return how a job stands, and why."""
    return f"{job.state}" if job.reason is None else f"{job.state}: {job.reason}"


def told(job: Job) -> dict[str, Any]:
    """Return what programs are told of a job."""
    return job.model_dump(mode="json", exclude={"lease", "rev"})
