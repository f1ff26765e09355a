"""What kills its process is a letter after five tries, and its neighbours have their records."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from consumers.lag import group_lag
from pipeline.settings import KafkaSettings
from schemas.extraction import Outcome
from schemas.failure import FailureClass
from schemas.identity import SessionIdentity
from schemas.topics import GROUPS, SNAPSHOT_READY, TURN_RECORDED, Stage
from tests.faults.poison import MURDERED, Poison
from tests.faults.system import System
from tests.faults.test_crash_points import home, installed
from tests.faults.worker import Said
from tests.scripted_endpoint import Json, Reply, ScriptedEndpoint, delayed

NEIGHBOURS = 6
DEATHS = 7
"""Five tries, the first death before anything is counted, and one on the way through a tier."""
WITHIN = timedelta(seconds=90)
LOOK = timedelta(seconds=1)
"""How long a worker must live to be asked whether all is done."""
QUICK = {
    "AFTERTURN_EXTRACTION__ATTEMPT_DEADLINE": "2",
    "AFTERTURN_EXTRACTION__LEASE": "4.1",
    "AFTERTURN_LLM__TIMEOUT": "1.5",
    "AFTERTURN_SNAPSHOT__STALE": "60",
}
VICTIM = SessionIdentity(user_id="victor", session_id="victim")
NEIGHBOURHOOD = [SessionIdentity(user_id=f"ana {n}", session_id=f"s{n}") for n in range(NEIGHBOURS)]
SAID: list[Said] = [
    (whose, f"I live in town number {turn}.")
    for turn in range(2)
    for whose in [*NEIGHBOURHOOD[:3], VICTIM, *NEIGHBOURHOOD[3:]]
]


def slow(request: Json) -> Reply:
    return delayed(home(request), timedelta(seconds=0.8))


async def deaths_until_settled(running: System, poison: Poison, *, but_open: int = 0) -> int:
    """Restart whenever a worker dies; return how often, once nothing is left to do."""
    deaths = 0
    worker = running.start(SAID, poison=poison, environment=QUICK)
    async with asyncio.timeout(WITHIN.total_seconds()):
        while True:
            # Whether all is done is much to ask of the database, so it is asked of the living.
            while await running.dies(worker, LOOK):
                assert worker.exitcode == MURDERED
                deaths += 1
                worker = running.start(SAID, poison=poison, environment=QUICK)
            if await running.is_settled(len(SAID), but_open=but_open) and await passed(running):
                break
    worker.terminate()
    assert await running.dies(worker)
    assert worker.exitcode == 0
    return deaths


async def passed(running: System) -> bool:
    """Return whether every offset was committed."""
    kafka = KafkaSettings(
        bootstrap_servers=running.environment["AFTERTURN_KAFKA__BOOTSTRAP_SERVERS"]
    )
    for stage, topic in ((Stage.SNAPSHOT, TURN_RECORDED), (Stage.EXTRACTION, SNAPSHOT_READY)):
        lags = await group_lag(kafka, GROUPS[stage], [topic])
        if any(lag.messages for lag in lags):
            return False
    return True


async def victim(running: System) -> str:
    return (await running.parts.sessions.open(VICTIM)).session


def beside(running: System) -> list[int]:
    """Return how many neighbours the model was being asked for at each death."""
    lines = (running.folder / "workers.log").read_text().splitlines()
    return [json.loads(line)["beside"] for line in lines if '"murdered"' in line]


async def assert_letter_is_the_message(running: System) -> dict[str, Any]:
    """Return the one letter, which holds byte for byte what lies in Kafka."""
    (letter,) = await running.parts.database["letters"].find({}).to_list()
    at = letter["original"]
    consumer: Any = AIOKafkaConsumer(
        bootstrap_servers=running.environment["AFTERTURN_KAFKA__BOOTSTRAP_SERVERS"]
    )
    partition = TopicPartition(at["topic"], at["partition"])
    async with consumer:
        consumer.assign([partition])
        consumer.seek(partition, at["offset"])
        record = await consumer.getone()
    assert (letter["key"], letter["value"]) == (record.key, record.value)
    assert letter["headers"] == [list(header) for header in record.headers]
    return letter


async def assert_neighbours_are_whole(running: System) -> None:
    """Also: of all that was counted, nothing is left but what must not run again.

    The dead's marks on partitions stay where nothing was read since.
    """
    records = await running.records()
    assert {record.scope.owner for record in records} == {one.user_id for one in NEIGHBOURHOOD}
    assert all(len(record.runs) == 2 for record in records)
    letters = await running.parts.database["letters"].find({}).to_list()
    assert [letter["failure_class"] for letter in letters] == [FailureClass.CRASH_LOOP]
    assert (await running.audit()).violations == []
    session = await victim(running)
    (snapshot,) = await running.parts.snapshots.covering(session, 1) or [None]
    never_again = session if snapshot is None else f"snapshot.ready:{snapshot.snapshot_id}:0"
    marks = await running.parts.database["deliveries"].distinct("subject")
    assert [mark for mark in marks if not mark.startswith("afterturn.")] in ([], [never_again])


async def test_a_turn_that_kills_while_the_model_is_asked_takes_no_neighbour_with_it(
    mongo_uri: str, endpoint: ScriptedEndpoint, tmp_path: Path
) -> None:
    endpoint.respond_with(slow)
    async with installed(mongo_uri, endpoint, tmp_path) as running:
        session = await victim(running)
        poison = Poison(session=session, at="model", company=NEIGHBOURS)

        deaths = await deaths_until_settled(running, poison)

        assert deaths <= DEATHS
        alone = beside(running)
        assert max(alone) > 0
        assert alone[-2:] == [0, 0]
        await assert_neighbours_are_whole(running)
        report = await running.audit()
        assert report.outcomes == {Outcome.RECORDS: NEIGHBOURS, Outcome.DEAD: 1}
        letter = await assert_letter_is_the_message(running)
        assert (letter["stage"], letter["session"], letter["part"]) == (
            Stage.EXTRACTION,
            session,
            0,
        )


async def test_a_message_that_kills_while_it_is_decoded_is_buried_in_the_ledger(
    mongo_uri: str, endpoint: ScriptedEndpoint, tmp_path: Path
) -> None:
    endpoint.respond_with(slow)
    async with installed(mongo_uri, endpoint, tmp_path) as running:
        session = await victim(running)

        deaths = await deaths_until_settled(running, Poison(session=session, at="ready"))

        assert deaths <= DEATHS
        await assert_neighbours_are_whole(running)
        await assert_letter_is_the_message(running)
        report = await running.audit()
        assert report.outcomes == {Outcome.RECORDS: NEIGHBOURS, Outcome.DEAD: 1}


async def test_a_session_that_kills_while_it_is_cut_is_left_open_and_passed_by(
    mongo_uri: str, endpoint: ScriptedEndpoint, tmp_path: Path
) -> None:
    endpoint.respond_with(slow)
    async with installed(mongo_uri, endpoint, tmp_path) as running:
        session = await victim(running)

        deaths = await deaths_until_settled(running, Poison(session=session, at="cut"), but_open=2)

        assert deaths <= DEATHS
        await assert_neighbours_are_whole(running)
        letter = await assert_letter_is_the_message(running)
        assert (letter["stage"], letter["key"]) == (Stage.SNAPSHOT, session.encode())
