"""Previews: what they would change is said record by record, and nothing counts or is kept."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.operating import job_desk, job_runner, preview_desk, preview_work, replay_desk
from consumers.wiring import Installation
from pipeline.errors import AnswerError, JobError
from pipeline.jobs.running import JobRunner
from pipeline.replaying.previewing import PreviewDesk, Said, stratified
from schemas.failure import FailureClass
from schemas.job import JobState, Preview, Previewed, PreviewJob, Selection
from tests.integration.test_extracting import (
    PATIENCE_SECONDS,
    Broker,
    ScriptedModel,
    broker,
    home,
    parts,
)
from tests.integration.test_replaying import DRINK, PORTO, Newer, live

__all__ = ["broker", "parts"]

ALL = Preview(selection=Selection(), sample=5, seed=1)
UNTOUCHED = ("turns", "snapshots", "extractions", "assertions", "records", "letters")


@pytest.fixture
def desk(parts: Installation) -> PreviewDesk:
    return preview_desk(parts, by="an operator")


async def stored(parts: Installation) -> dict[str, list[Any]]:
    return {name: await parts.database[name].find({}).to_list() for name in UNTOUCHED}


def runner(parts: Installation, model: ScriptedModel, told: list[Said] | None = None) -> JobRunner:
    def tell(job: PreviewJob, found: Previewed, before: Said, after: Said) -> None:
        del job, found
        if told is not None:
            told.extend((before, after))

    return job_runner(parts, {"preview": preview_work(parts, model, tell=tell)})


async def previewed(parts: Installation, desk: PreviewDesk, model: ScriptedModel) -> PreviewJob:
    job = await desk.start(ALL)
    ended = await runner(parts, model).run(job.job_id)
    assert isinstance(ended, PreviewJob)
    return ended


async def test_it_says_what_would_change_and_stores_nothing_but_that(
    parts: Installation, broker: Broker, desk: PreviewDesk
) -> None:
    await live(parts, broker, PORTO)
    before = await stored(parts)
    moved = home(1) | {"label": "Portugal", "text": "The user lives in Portugal."}
    elsewhere = home(1) | {"quote": "live in Porto."}

    (same,) = (await previewed(parts, desk, ScriptedModel({"semantic": [PORTO]}))).previewed
    (more,) = (await previewed(parts, desk, Newer({"semantic": [PORTO, DRINK]}))).previewed
    (less,) = (await previewed(parts, desk, Newer({}))).previewed
    (other,) = (await previewed(parts, desk, Newer({"semantic": [moved]}))).previewed
    (rests,) = (await previewed(parts, desk, Newer({"semantic": [elsewhere]}))).previewed

    def counts(one: Previewed) -> tuple[int, ...]:
        changes = (one.added, one.gone, one.changed_content, one.changed_evidence)
        return (*(len(each) for each in changes), one.kept)

    assert counts(same) == (0, 0, 0, 0, 1)
    assert counts(more) == (1, 0, 0, 0, 1)
    assert counts(less) == (0, 1, 0, 0, 0)
    assert counts(other) == (0, 0, 1, 0, 0)
    assert counts(rests) == (0, 0, 0, 1, 0)
    assert less.gone == other.changed_content == rests.changed_evidence
    assert same.turn_tokens > 0
    assert (same.prompt_tokens, same.completion_tokens) == (1, 1)
    assert await stored(parts) == before
    assert broker.waiting == type(broker.waiting)()


async def test_its_words_are_only_in_the_hands_of_whoever_runs_it(
    parts: Installation, broker: Broker, desk: PreviewDesk
) -> None:
    await live(parts, broker, PORTO)
    job = await desk.start(ALL)
    told: list[Said] = []
    await runner(parts, Newer({"semantic": [DRINK]}), told).run(job.job_id)
    document = await parts.database["jobs"].find_one({"_id": job.job_id})

    assert [len(each) for each in told] == [1, 1]
    assert not any(word in str(document) for word in ("tea", "Porto"))
    listed = await replay_desk(parts, by="").all()
    assert listed == []


async def test_what_fails_is_said_and_an_outage_pauses_it_where_it_is(
    parts: Installation, broker: Broker, desk: PreviewDesk
) -> None:
    await live(parts, broker, PORTO)
    refused = await previewed(parts, desk, Newer(AnswerError(FailureClass.REFUSED, "refusal")))
    truncated = AnswerError(FailureClass.TRUNCATED, "truncated")
    halved = await previewed(
        parts, desk, Newer(truncated, {"semantic": [PORTO]}, {"semantic": [DRINK]})
    )
    down = AnswerError(FailureClass.UNAVAILABLE, "http_503")
    job = await desk.start(ALL)
    paused = await runner(parts, Newer(down)).run(job.job_id)
    await job_desk(parts, by="an operator").resume(job.job_id)
    ended = await runner(parts, Newer({"semantic": [PORTO]})).run(job.job_id)

    assert [one.failure for one in refused.previewed] == ["refusal"]
    assert refused.state is JobState.DONE
    assert (len(halved.previewed[0].added), halved.previewed[0].kept) == (1, 1)
    assert isinstance(paused, PreviewJob)
    assert (paused.state, paused.previewed) == (JobState.PAUSED, ())
    assert "http_503" in (paused.reason or "")
    assert isinstance(ended, PreviewJob)
    assert [one.failure for one in ended.previewed] == [None]
    await parts.database["turns"].delete_many({})
    gone = await previewed(parts, desk, Newer({}))
    assert [one.failure for one in gone.previewed] == ["gone"]


async def test_of_nothing_there_is_no_sample(desk: PreviewDesk) -> None:
    with pytest.raises(JobError, match="no snapshot"):
        await desk.start(ALL)


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 50).map(str)), unique=True),
    st.integers(1, 20),
    st.integers(0, 9),
)
def test_a_sample_is_drawn_over_all_sessions_and_the_same_every_time(
    found: list[tuple[str, str]], size: int, seed: int
) -> None:
    named = [(session, f"{session}{number}") for session, number in found]
    drawn = stratified(named, size, seed)
    each = [sum(one.startswith(session) for one in drawn) for session in {a for a, _ in named}]
    held = [sum(session == a for a, _ in named) for session in {a for a, _ in named}]

    assert stratified(named[::-1], size, seed) == drawn
    assert len(drawn) == len(set(drawn)) == min(size, len(named))
    assert set(drawn) <= {name for _, name in named}
    full = max(each, default=0) - 1
    assert all(got >= min(full, has) for got, has in zip(each, held, strict=True))


async def test_cut_off_it_goes_on_at_the_next_of_the_sample(
    parts: Installation, broker: Broker, desk: PreviewDesk
) -> None:
    await live(parts, broker, PORTO)
    job = await desk.start(ALL)
    gate = asyncio.Event()
    model = Newer({"semantic": [PORTO]}, gate=gate)
    running = asyncio.create_task(runner(parts, model).run(job.job_id))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not model.requests:  # noqa: ASYNC110 (nothing tells)
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait({running})
    gate.set()
    ended = await runner(parts, model).run(job.job_id)
    again = await runner(parts, model).run(job.job_id)

    assert isinstance(ended, PreviewJob)
    assert [one.kept for one in ended.previewed] == [1]
    assert again is not None
    assert again.state is JobState.DONE
    assert len(model.requests) == 2
