"""Replays at the console: counted first, started, changed and reported, each in its own project."""

import pytest

from api.console.session import CONSOLE, NOBODY
from consumers.operating import replay_desk
from pipeline.stores.jobs import MongoJobs
from pipeline.stores.mongo import Database
from pipeline.stores.operator_actions import MongoOperatorActions
from schemas.access import Role
from schemas.job import JobState, Replay, Selection
from schemas.operator_action import Act
from tests.console_world import Loopback, converse, extract, fact
from tests.integration.browsing import browser, read
from tests.integration.serving import Server, served
from tests.integration.signing import account
from tests.integration.test_extracting import ScriptedModel


async def extracted(server: Server, broker: Loopback, session_id: str, project_id: str) -> None:
    await converse(
        server.parts, broker, "I live in Porto.", session_id=session_id, project_id=project_id
    )
    model = ScriptedModel({"semantic": [fact(1, "I live in Porto.")]})
    await extract(server.parts, broker, model)


async def test_a_replay_is_counted_then_started_then_changed_and_each_act_is_noted(
    db: Database,
) -> None:
    broker = Loopback()
    async with served(db, publisher=broker) as server, browser(server) as person:
        for project in ("alpha", "beta"):
            await extracted(server, broker, "s", project)
        jobs = MongoJobs(server.parts.database)

        counted = await person.open("/replays/new", project="alpha", count="on", force="on")
        nothing_yet = await jobs.all()
        started = await person.send("/replays/start", project="alpha", force="on", budget="500")
        where = started.url.path.removeprefix(CONSOLE)
        paused = await person.send(f"{where}/act", act="pause")
        twice = await person.send(f"{where}/act", act="pause")
        resumed = await person.send(f"{where}/act", act="resume", budget="900")
        listed = await person.open("/replays")
        cancelled = await person.send(f"{where}/act", act="cancel")

        assert "1 snapshot, " in read(counted)
        assert nothing_yet == []
        assert "The replay is started" in read(started)
        assert "an operator paused it" in read(paused)
        assert (twice.status_code, "it is paused" in read(twice).lower()) == (409, True)
        assert "of 900" in read(resumed)
        assert "alpha" in read(listed)
        assert "It is cancelled" in read(cancelled)
        (job,) = await jobs.all()
        assert (job.state, job.by) == (JobState.CANCELLED, NOBODY)
        assert job.replay.is_forced
        trail = await MongoOperatorActions(server.parts.database).of_target(job.job_id)
        assert next(act.act for act in trail) is Act.REPLAY_START
        assert {Act.REPLAY_PAUSE, Act.REPLAY_RESUME, Act.REPLAY_CANCEL} <= {a.act for a in trail}


async def test_an_account_replays_its_own_project_and_sees_no_others(db: Database) -> None:
    async with served(db, auth="on") as server, browser(server) as operator:
        await operator.sign_in(await account(server.parts, "op", "alpha", Role.OPERATOR))
        desk = replay_desk(server.parts, by="another")
        foreign = await desk.start(Replay(selection=Selection(project_id="beta")))
        everybodys = await desk.start(Replay(selection=Selection()))

        await operator.open("/replays/new", project="beta", count="on")
        started = await operator.send("/replays/start", project="beta")
        listed = await operator.open("/replays")
        hidden = await operator.open(f"/replays/{foreign.job_id}")
        shown = await operator.open(f"/replays/{everybodys.job_id}")
        refused = [
            await operator.send(f"/replays/{foreign.job_id}/act", act="cancel"),
            await operator.send(f"/replays/{everybodys.job_id}/act", act="cancel"),
        ]

        own = await desk.read(started.url.path.rpartition("/")[2])
        assert own.replay.selection.project_id == "alpha"
        assert foreign.job_id not in listed.text
        assert everybodys.job_id in listed.text
        assert hidden.status_code == 404
        assert "the command line can change it" in read(shown)
        assert [each.status_code for each in refused] == [404, 409]
        for job in (foreign, everybodys):
            assert (await desk.read(job.job_id)).state is JobState.OPEN


@pytest.mark.parametrize(
    ("field", "value"),
    [("budget", "0"), ("since", "soon"), ("user", "x" * 300), ("project", "a\x00b")],
)
async def test_a_field_that_can_not_be_meant_is_named(
    server: Server, field: str, value: str
) -> None:
    async with browser(server) as person:
        page = await person.open("/replays/new", **{field: value})

    assert page.status_code == 422
    assert field in read(page).lower()
