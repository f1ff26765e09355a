"""A primary that steps down in the middle of cutting, extracting and folding."""

from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from pydantic import SecretStr

from pipeline.auditing import Audit
from pipeline.settings import MongoSettings
from pipeline.stores.audit_reads import MongoAuditReads
from pipeline.stores.mongo import Database, connect, database
from schemas.extraction import Outcome
from tests import scripted_endpoint as scripted
from tests.faults.stepping_down import stepping_down
from tests.faults.test_cases import World, contents, fact, world_on
from tests.scripted_endpoint import ScriptedEndpoint

SAID = ["I live in Lima", "I like tea", "I manage payroll"]
MOST_DELIVERIES = 40


@pytest.mark.parametrize("share", [0.2, 0.5])
@pytest.mark.parametrize("is_done", [False, True], ids=["refused", "done and refused"])
async def test_a_primary_that_steps_down_doubles_and_loses_nothing(
    share: float,
    is_done: bool,
    db: Database,
    mongo_uri: str,
    endpoint: ScriptedEndpoint,
) -> None:
    """The driver tries again; what it does not get through is held, and no attempt is spent."""
    endpoint.script(
        scripted.answers(semantic=[fact(text, seq) for seq, text in enumerate(SAID, start=1)])
    )
    port = urlsplit(mongo_uri).port or 27017
    async with stepping_down(port, share, is_done=is_done) as primary:
        settings = MongoSettings(
            # A server that steps down tells its monitors at once; this one is asked.
            uri=SecretStr(
                f"mongodb://127.0.0.1:{primary.port}/?directConnection=true"
                "&serverMonitoringMode=poll&heartbeatFrequencyMS=500"
            ),
            database=db.name,
            timeout=timedelta(seconds=1),
        )
        client = connect(settings)
        async with world_on(database(client, settings), endpoint) as world:
            await world.says(*SAID)
            primary.is_on = True
            held = await delivered_to_the_end(world)
            primary.is_on = False
            (settled,) = await world.ledger()
            records = await world.records()
            tiles = await world.tiles()
            violations = await audited(world)
        await client.close()

    assert primary.refused > 3
    assert held > 0 or share < 0.5
    assert (settled.outcome, settled.attempts, settled.crashes) == (Outcome.RECORDS, (), 0)
    assert contents(records) == sorted(SAID)
    assert [len(run.assertions) for record in records for run in record.runs] == [1, 1, 1]
    assert tiles == [(1, 3)]
    assert violations == []
    assert endpoint.count == 1
    assert world.queue.retries == world.queue.dead == []


async def delivered_to_the_end(world: World) -> int:
    """Deliver what is held again until nothing is; return how often something was."""
    held = 0
    for _ in range(MOST_DELIVERIES):
        await world.deliver()
        if not world.held:
            return held
        held += len(world.held)
        world.queue.waiting.extend(world.held)
        world.held.clear()
    raise AssertionError("it is held for ever")


async def audited(world: World) -> list[object]:
    """Return what breaks a law."""
    parts = world.parts
    reads = MongoAuditReads(
        parts.database,
        sessions=parts.sessions,
        turns=parts.turns,
        extractions=parts.extractions,
        assertions=parts.assertions,
        records=parts.records,
    )
    report = await Audit(reads, parts.ids, pause_seconds=0.1).run(lambda _session, _record: None)
    return list(report.violations)
