"""What becomes of a run that kills: it ends in the ledger, step by step, whatever of it kills."""

from typing import Any

import pytest

from consumers.extraction_wiring import extraction_step
from consumers.wiring import Installation, wire
from pipeline.extracting import step as extracting
from pipeline.extracting.planning import new_extraction, ready_data
from pipeline.failing.crash_loops import CRASHES, SUSPECT_CLAIMS, SuspectError
from pipeline.ports.model import ModelRequest
from pipeline.settings import Settings
from pipeline.stores.mongo import Database
from schemas.extraction import Extraction, Outcome, Part, PartState
from schemas.failure import FailureClass
from schemas.memory import Kind
from schemas.message import IncomingMessage
from schemas.snapshot import Snapshot
from tests.integration.test_extracting import Broker, ScriptedModel, announced, home, run

SAID = ("I live in Porto.", "I live in Braga.")


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
async def parts(db: Database, broker: Broker) -> Installation:
    return await wire(Settings(), db, broker)


async def crashed(parts: Installation, cut: Snapshot, fields: dict[str, Any]) -> Extraction:
    """Store the extraction of a snapshot as dead processes have left it."""
    extraction = new_extraction(ready_data(cut), await parts.server_time.now_ms())
    await parts.extractions.ensure(extraction)
    await parts.database["extractions"].update_one(
        {"_id": extraction.extraction_id}, {"$set": fields}
    )
    return extraction


async def with_one_answer(parts: Installation, cut: Snapshot) -> None:
    """Leave an extraction with one part answered and one waiting."""
    halves = [Part(first_seq=seq, last_seq=seq, kinds=tuple(Kind)) for seq in (1, 2)]
    extraction = await crashed(parts, cut, {"parts": [half.model_dump() for half in halves]})
    request = ModelRequest(turns=(), context=(), kinds=tuple(Kind), max_tokens=None)
    reply = await ScriptedModel({"semantic": [home(1)]}).answer(request)
    await parts.extractions.store_reply(extraction, 0, reply, version="v1")


async def states(parts: Installation, extraction: Extraction) -> list[PartState]:
    found = await parts.extractions.get(extraction.extraction_id)
    assert found is not None
    return [part.state for part in found.parts]


@pytest.mark.parametrize("crashes", range(CRASHES + 1))
async def test_a_run_that_was_claimed_too_often_without_an_end_is_worked_on_alone(
    parts: Installation, broker: Broker, crashes: int
) -> None:
    cut = await announced(parts, broker, *SAID)
    extraction = await crashed(parts, cut, {"crashes": crashes})
    model = ScriptedModel({"semantic": [home(1)]})
    step = extraction_step(parts, model, is_alone=lambda: False)
    is_suspected = False
    try:
        await step(broker.waiting[0])
    except SuspectError:
        is_suspected = True
    left = await parts.extractions.get(extraction.extraction_id)
    assert left is not None

    assert is_suspected == (crashes >= SUSPECT_CLAIMS)
    assert bool(model.requests) is not is_suspected
    assert (left.claim, left.crashes) == (None, crashes if is_suspected else 0)


async def test_after_five_claims_only_what_waits_is_set_aside(
    parts: Installation, broker: Broker
) -> None:
    cut = await announced(parts, broker, *SAID)
    await with_one_answer(parts, cut)
    extraction = await crashed(parts, cut, {"crashes": CRASHES})
    first = broker.waiting[0]
    model = ScriptedModel({})

    settled = await run(parts, broker, model)

    assert settled.outcome is Outcome.PARTIAL
    assert await states(parts, extraction) == [PartState.ANSWERED, PartState.DEAD]
    assert model.requests == []
    assert len(await parts.assertions.of_extraction(extraction.extraction_id)) == 1
    assert [(one.key, one.value) for one in broker.dead] == [(first.key, first.value)]


async def test_when_that_kills_too_the_answers_go_and_then_the_reading_of_the_turns(
    parts: Installation, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each claim comes one step further, so there is a last one."""
    cut = await announced(parts, broker, *SAID)
    await with_one_answer(parts, cut)
    extraction = await crashed(parts, cut, {"crashes": CRASHES})

    async def dies(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(parts.turns, "read", dies)
    seen: list[list[PartState]] = []
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            await extraction_step(parts, ScriptedModel({}))(broker.waiting[0])
        seen.append(await states(parts, extraction))
        await parts.extractions.expire_claims()

    settled = await run(parts, broker, ScriptedModel({}))

    assert seen == [[PartState.ANSWERED, PartState.DEAD], [PartState.DEAD, PartState.DEAD]]
    assert settled.outcome is Outcome.DEAD
    assert len(broker.dead) == await parts.letters.count() == 2


async def test_a_message_that_kills_when_decoded_is_set_aside_by_its_headers(
    parts: Installation, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when nobody ever came as far as making its extraction, and again when it comes again."""
    cut = await announced(parts, broker, *SAID)

    def dies(_: IncomingMessage) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(extracting, "decode", dies)
    model = ScriptedModel({})
    step = extraction_step(parts, model)
    buried = [await step.bury(broker.waiting[0]) for _ in range(2)]
    settled = await parts.extractions.get(f"{cut.snapshot_id}:0")
    letters = await parts.database["letters"].find({}).to_list()

    assert buried == [True, True]
    assert settled is not None
    assert settled.outcome is Outcome.DEAD
    assert model.requests == []
    assert [(one["part"], one["failure_class"]) for one in letters] == [
        (0, FailureClass.CRASH_LOOP)
    ]
    assert letters[0]["value"] == broker.waiting[0].value


@pytest.mark.parametrize(
    "headers", [(), (("ce_id", b"snapshot.ready:snp_0:0"),), (("ce_id", b"snapshot.ready:x"),)]
)
async def test_a_message_of_no_snapshot_of_ours_is_a_letter_as_it_is(
    parts: Installation, headers: tuple[tuple[str, bytes | None], ...], broker: Broker
) -> None:
    await announced(parts, broker, *SAID)
    alien = broker.waiting[0].model_copy(
        update={"key": b"\xff", "value": b"\x00\xff", "headers": headers}
    )
    is_over = await extraction_step(parts, ScriptedModel({})).bury(alien)
    (letter,) = await parts.database["letters"].find({}).to_list()

    assert is_over
    assert (letter["key"], letter["value"]) == (alien.key, alien.value)
    assert letter["headers"] == [list(header) for header in headers]
    assert letter["failure_class"] == FailureClass.CRASH_LOOP


async def test_what_somebody_else_works_on_is_not_set_aside(
    parts: Installation, broker: Broker
) -> None:
    cut = await announced(parts, broker, *SAID)
    extraction = await parts.extractions.ensure(
        new_extraction(ready_data(cut), await parts.server_time.now_ms())
    )
    await parts.extractions.claim(
        extraction,
        owner="another",
        message="elsewhere",
        now_ms=await parts.server_time.now_ms(),
        lease=Settings().extraction.lease,
    )
    is_over = await extraction_step(parts, ScriptedModel({})).bury(broker.waiting[0])

    assert not is_over
    assert await parts.letters.count() == 0
