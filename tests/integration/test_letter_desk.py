"""Dead letters sent back, discarded and restored, on a real database, cut off after every write."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from consumers.extraction_wiring import extraction_step
from consumers.operating import letter_desk
from consumers.wiring import Installation
from pipeline.crash_points import CrashPoint
from pipeline.errors import AnswerError, LetterError
from pipeline.letters import desk as desk_module
from pipeline.letters.changing import Change
from pipeline.letters.desk import DiscardReason, LetterDesk
from pipeline.messages import LETTER_HEADER
from pipeline.stores.deliveries import MongoDeliveries
from pipeline.stores.operator_actions import MongoOperatorActions
from schemas.extraction import Outcome, PartState
from schemas.failure import Coordinates, FailureClass, Letter, LetterQuery, LetterState
from schemas.message import IncomingMessage
from schemas.operator_action import Act
from schemas.topics import SNAPSHOT_READY, Stage
from tests.integration.test_extracting import (
    PATIENCE_SECONDS,
    Broker,
    ScriptedModel,
    announced,
    broker,
    home,
    parts,
    run,
)

__all__ = ["broker", "parts"]

REFUSAL = AnswerError(FailureClass.REFUSED, "refusal")
GOOD = {"semantic": [home(1)]}


@pytest.fixture
def desk(parts: Installation) -> LetterDesk:
    return letter_desk(parts, by="an operator")


async def letters(parts: Installation) -> list[Letter]:
    return await parts.letters.matching(LetterQuery())


async def dead_letter(parts: Installation, broker: Broker, *contents: str) -> Letter:
    """Have a snapshot refused by the model; return its letter."""
    await announced(parts, broker, *(contents or ("I live in Porto.",)))
    await run(parts, broker, ScriptedModel(REFUSAL))
    (letter,) = await letters(parts)
    return letter


async def test_a_letter_that_is_sent_back_becomes_records_and_is_resolved(
    parts: Installation, broker: Broker, desk: LetterDesk
) -> None:
    letter = await dead_letter(parts, broker)

    await desk.redrive(letter)
    (under_way,) = await letters(parts)
    settled = await run(parts, broker, ScriptedModel(GOOD))

    assert under_way.state is LetterState.WAITING
    assert settled.outcome is Outcome.RECORDS
    assert len(await parts.assertions.of_extraction(settled.extraction_id)) == 1
    assert [one.state for one in await letters(parts)] == [LetterState.RESOLVED]
    snapshot = await parts.snapshots.get(settled.snapshot_id)
    assert snapshot is not None
    assert snapshot.settled


async def test_a_letter_that_dies_again_is_the_same_letter_counted(
    parts: Installation, broker: Broker, desk: LetterDesk
) -> None:
    first = await dead_letter(parts, broker)

    await desk.redrive(first)
    await run(parts, broker, ScriptedModel(REFUSAL))
    (second,) = await letters(parts)
    await desk.redrive(second)
    await run(parts, broker, ScriptedModel(REFUSAL))
    (third,) = await letters(parts)

    assert [one.deaths for one in (first, second, third)] == [1, 2, 3]
    assert {one.letter_id for one in (first, second, third)} == {first.letter_id}
    assert third.state is LetterState.DEAD
    assert third.created_at == first.created_at
    assert third.last_death >= second.last_death >= first.last_death
    assert [len(one.attempts) for one in (first, second, third)] == [1, 2, 3]
    assert len(broker.dead) == 3


async def test_the_ladders_of_what_is_sent_back_begin_anew(
    parts: Installation, broker: Broker, desk: LetterDesk
) -> None:
    """Else an operator who sends back what had no luck for a day would see it die at once."""
    await announced(parts, broker, "I live in Porto.")
    ended = await run(parts, broker, ScriptedModel(KeyError("a bug")))
    (letter,) = await letters(parts)

    await desk.redrive(letter)
    again = await run(parts, broker, ScriptedModel(KeyError("a bug")))

    assert len(ended.attempts) > 1
    assert len(again.attempts) == 2 * len(ended.attempts)


async def test_what_it_was_sent_back_with_is_what_the_model_is_asked(
    parts: Installation, broker: Broker, desk: LetterDesk
) -> None:
    letter = await dead_letter(parts, broker, "One.", "Two.", "Three.")
    model = ScriptedModel({})

    await desk.redrive(letter, Change(max_tokens=9000, leave_out=(2,)))
    await run(parts, broker, model)

    (request,) = model.requests
    assert [turn.seq for turn in request.turns] == [1, 3]
    assert request.max_tokens == 9000


async def test_a_letter_can_be_sent_back_in_halves(
    parts: Installation, broker: Broker, desk: LetterDesk
) -> None:
    letter = await dead_letter(parts, broker, "One.", "Two.", "Three.", "Four.")
    model = ScriptedModel({})

    await desk.redrive(letter, Change(split=True, leave_out=(4,)))
    settled = await run(parts, broker, model)

    shown = [turn.seq for request in model.requests for turn in request.turns]
    assert shown == [1, 2, 3]
    assert len(model.requests) == 2
    assert settled.parts[0].state is PartState.SPLIT
    assert [one.state for one in await letters(parts)] == [LetterState.RESOLVED]


async def test_what_nothing_would_be_left_of_is_refused_and_stays_as_it_is(
    parts: Installation, broker: Broker, desk: LetterDesk
) -> None:
    letter = await dead_letter(parts, broker)

    for change in (Change(leave_out=(1,)), Change(leave_out=(7,)), Change(split=True)):
        with pytest.raises(LetterError):
            await desk.redrive(letter, change)

    assert await letters(parts) == [letter]
    assert not broker.waiting


async def test_of_two_operators_one_sends_it_back_and_the_other_is_told(
    parts: Installation, broker: Broker, desk: LetterDesk
) -> None:
    letter = await dead_letter(parts, broker)
    other = letter_desk(parts, by="another operator")

    results = await asyncio.gather(
        desk.redrive(letter), other.redrive(letter), return_exceptions=True
    )
    model = ScriptedModel(GOOD)
    await run(parts, broker, model)

    assert len(model.requests) == 1
    assert sum(isinstance(one, LetterError) for one in results) <= 1
    with pytest.raises(LetterError):
        await desk.redrive((await letters(parts))[0])


async def test_every_act_is_in_the_audit_trail_before_it_is_done(
    parts: Installation, broker: Broker, desk: LetterDesk
) -> None:
    letter = await dead_letter(parts, broker)
    await desk.discard(letter, DiscardReason.NOT_NEEDED)
    (discarded,) = await letters(parts)
    with pytest.raises(LetterError):
        await desk.redrive(discarded)
    await desk.restore(discarded)
    (restored,) = await letters(parts)
    await desk.redrive(restored)

    acts = await MongoOperatorActions(parts.database).of_target(letter.letter_id)
    assert (discarded.state, discarded.discarded_for) == (LetterState.DISCARDED, "not_needed")
    assert restored == letter
    assert [one.act for one in acts] == [Act.LETTER_DISCARD, Act.LETTER_RESTORE, Act.LETTER_REDRIVE]
    assert {one.by for one in acts} == {"an operator"}


async def test_a_message_is_sent_back_as_it_was_and_is_the_same_letter_if_it_dies_again(
    parts: Installation, broker: Broker, desk: LetterDesk
) -> None:
    at = Coordinates(topic=SNAPSHOT_READY.name, partition=1, offset=5, timestamp_ms=7, group="g")
    rubbish = IncomingMessage(at=at, key=b"k", value=b"\xff{", headers=(("h", b"\xfe"),))
    step = extraction_step(parts, ScriptedModel({}))
    await step(rubbish)
    (letter,) = await letters(parts)

    await desk.redrive(letter)
    back = broker.waiting.popleft()
    (sent,) = await letters(parts)
    await step(back)
    (again,) = await letters(parts)

    assert (back.at.topic, back.key, back.value) == (at.topic, rubbish.key, rubbish.value)
    assert back.headers == (*rubbish.headers, (LETTER_HEADER, letter.letter_id.encode()))
    assert sent.state is LetterState.RESOLVED
    assert (again.letter_id, again.deaths, again.state) == (letter.letter_id, 2, LetterState.DEAD)


async def test_nobody_takes_a_letter_over_by_a_header(parts: Installation, broker: Broker) -> None:
    """What a stranger writes on a topic is a letter of its own."""
    letter = await dead_letter(parts, broker)
    at = Coordinates(topic=SNAPSHOT_READY.name, partition=1, offset=5, timestamp_ms=7, group="g")
    forged = IncomingMessage(
        at=at, key=None, value=b"{", headers=((LETTER_HEADER, letter.letter_id.encode()),)
    )

    await extraction_step(parts, ScriptedModel({}))(forged)

    assert letter in await letters(parts)
    assert len(await letters(parts)) == 2


async def test_what_killed_its_process_is_tried_again_when_it_is_sent_back(
    parts: Installation, broker: Broker, desk: LetterDesk
) -> None:
    letter = await dead_letter(parts, broker)
    deliveries = MongoDeliveries(parts.database)
    event = f"snapshot.ready:{letter.snapshot_id}:0"
    await deliveries.put(Stage.EXTRACTION, event, 5)

    await desk.redrive(letter)

    assert await deliveries.unended(Stage.EXTRACTION) == set()


REDRIVING = (CrashPoint.SNAPSHOT_REOPENED, CrashPoint.PART_OPENED, CrashPoint.LETTER_CHANGED)


class KilledError(BaseException):
    """The process dies here."""


@pytest.mark.parametrize("point", REDRIVING)
async def test_cut_off_anywhere_it_is_still_dead_or_on_its_way(
    parts: Installation,
    broker: Broker,
    desk: LetterDesk,
    monkeypatch: pytest.MonkeyPatch,
    point: CrashPoint,
) -> None:
    letter = await dead_letter(parts, broker)

    def killed(reached: CrashPoint) -> None:
        if reached is point:
            raise KilledError

    with monkeypatch.context() as patched, pytest.raises(KilledError):
        patched.setattr(desk_module, "reached", killed)
        await desk.redrive(letter)
    left = (await letters(parts))[0]
    if left.state is LetterState.DEAD:
        await desk.redrive(left)
    await _swept(parts)
    settled = await run(parts, broker, ScriptedModel(GOOD))

    assert settled.outcome is Outcome.RECORDS
    assert [one.state for one in await letters(parts)] == [LetterState.RESOLVED]


@pytest.mark.parametrize("point", [CrashPoint.LETTER_CHANGED, CrashPoint.MESSAGE_SENT_BACK])
async def test_a_message_that_is_cut_off_on_its_way_back_is_not_lost(
    parts: Installation,
    broker: Broker,
    desk: LetterDesk,
    monkeypatch: pytest.MonkeyPatch,
    point: CrashPoint,
) -> None:
    at = Coordinates(topic=SNAPSHOT_READY.name, partition=1, offset=5, timestamp_ms=7, group="g")
    await extraction_step(parts, ScriptedModel({}))(
        IncomingMessage(at=at, key=None, value=b"{", headers=())
    )
    (letter,) = await letters(parts)

    def killed(reached: CrashPoint) -> None:
        if reached is point:
            raise KilledError

    with monkeypatch.context() as patched, pytest.raises(KilledError):
        patched.setattr(desk_module, "reached", killed)
        await desk.redrive(letter)
    (left,) = await letters(parts)
    assert left.state is LetterState.WAITING
    await desk.redrive(left)

    assert broker.waiting
    assert (await letters(parts))[0].state is LetterState.RESOLVED


async def _swept(parts: Installation) -> None:
    """Sweep as the waker would, once everything is late enough."""
    await parts.database["extractions"].update_many(
        {"unsent_since_ms": {"$gt": 0}}, {"$set": {"unsent_since_ms": 0}}
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        await parts.fates.sweep_unsent(10)


def _query(**wanted: Any) -> LetterQuery:
    return LetterQuery(**wanted)


async def test_letters_are_found_by_what_is_asked_for(parts: Installation, broker: Broker) -> None:
    letter = await dead_letter(parts, broker)
    second = timedelta(seconds=1)

    for found in (
        _query(state=LetterState.DEAD),
        _query(stage=Stage.EXTRACTION, failure_class=FailureClass.REFUSED, reason="refusal"),
        _query(fingerprint=letter.fingerprint, disposition="content", project_id="default"),
        _query(session=letter.session, model=ScriptedModel.name, topic=SNAPSHOT_READY.name),
        _query(since=letter.created_at, until=letter.created_at + second, deaths=1),
    ):
        assert await parts.letters.matching(found) == [letter], found
    for missed in (
        _query(state=LetterState.RESOLVED),
        _query(stage=Stage.SNAPSHOT),
        _query(failure_class=FailureClass.FILTERED),
        _query(reason="other"),
        _query(fingerprint="other"),
        _query(disposition="exhausted"),
        _query(project_id="other"),
        _query(session="other"),
        _query(model="other"),
        _query(topic="other"),
        _query(since=letter.created_at + second),
        _query(until=letter.created_at),
        _query(deaths=2),
    ):
        assert await parts.letters.matching(missed) == [], missed
