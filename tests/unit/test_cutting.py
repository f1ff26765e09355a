"""When open turns are cut, into which snapshots, and what becomes of a wake-up."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from pipeline.cutting import Cut, SnapshotStep, due_reason, is_due, missing, plan_cuts
from pipeline.errors import BrokerUnavailableError, MessageError
from pipeline.messages import encode
from pipeline.ports.turns import OpenTurn
from pipeline.settings import SnapshotSettings
from schemas.event import (
    SessionClosed,
    SessionClosedData,
    SnapshotReady,
    TurnRecorded,
    TurnRecordedData,
)
from schemas.failure import Coordinates
from schemas.message import TICKET_HEADER, IncomingMessage, OutgoingMessage
from schemas.snapshot import CutReason
from schemas.topics import SNAPSHOT_READY, TURN_RECORDED, Stage
from tests.cutting_world import NOW, SESSION, CuttingWorld, TurnsTwin

SETTINGS = SnapshotSettings(max_messages=4, max_tokens=100, stale=timedelta(minutes=3))
AT = Coordinates(topic=TURN_RECORDED.name, partition=0, offset=7, timestamp_ms=1, group="g")


def run(seqs: Sequence[int], *, tokens: int = 1, age: timedelta = timedelta(0)) -> list[OpenTurn]:
    return [OpenTurn(seq=seq, tokens=tokens, recorded_at=NOW - age) for seq in seqs]


def plan(turns: list[OpenTurn], *, hole: int | None = None) -> list[Cut]:
    first_seq = turns[0].seq if turns else 1
    return plan_cuts(turns, SETTINGS, NOW, first_seq=first_seq, hole=hole)


def test_turns_wait_while_there_are_few_and_young_ones() -> None:
    assert plan(run([1, 2, 3])) == []
    assert plan([]) == []


def test_enough_messages_are_cut_at_once() -> None:
    assert plan(run([5, 6, 7, 8])) == [Cut(first_seq=5, last_seq=8, reason=CutReason.FULL)]


def test_enough_tokens_are_cut_at_once() -> None:
    assert plan(run([1, 2], tokens=50)) == [Cut(first_seq=1, last_seq=2, reason=CutReason.FULL)]


def test_silence_is_measured_by_the_newest_turn() -> None:
    old = run([1, 2], age=timedelta(minutes=9))
    almost = run([3], age=timedelta(minutes=3) - timedelta(milliseconds=1))

    assert plan([*old, *almost]) == []
    assert plan([*old, *run([3], age=timedelta(minutes=3))])[0].reason is CutReason.IDLE


def test_a_closed_session_is_cut_with_what_was_said_after_it() -> None:
    closing = OpenTurn(seq=2, tokens=1, recorded_at=NOW, closes=True)

    assert plan([*run([1]), closing, *run([3])]) == [
        Cut(first_seq=1, last_seq=3, reason=CutReason.CLOSED)
    ]


def test_of_a_talk_that_goes_on_only_full_snapshots_are_cut() -> None:
    cuts = plan(run(range(1, 11)))

    assert [(cut.first_seq, cut.last_seq) for cut in cuts] == [(1, 4), (5, 8)]


def test_of_a_talk_that_is_over_everything_goes_as_several_snapshots() -> None:
    idle = plan(run(range(1, 11), age=timedelta(minutes=3)))
    closing = OpenTurn(seq=10, tokens=1, recorded_at=NOW, closes=True)
    closed = plan([*run(range(1, 10)), closing])

    assert [(cut.first_seq, cut.last_seq) for cut in idle] == [(1, 4), (5, 8), (9, 10)]
    assert [cut.reason for cut in idle] == [CutReason.FULL, CutReason.FULL, CutReason.IDLE]
    assert [cut.reason for cut in closed] == [CutReason.FULL, CutReason.FULL, CutReason.CLOSED]


def test_a_turn_larger_than_a_snapshot_is_one_of_its_own() -> None:
    turns = [*run([1]), *run([2], tokens=500), *run([3])]

    assert [(cut.first_seq, cut.last_seq) for cut in plan(turns)] == [(1, 1), (2, 2)]


def test_a_cut_stops_before_a_hole_though_what_is_behind_makes_it_due() -> None:
    cuts = plan(run([1, 2, 4, 5]), hole=3)

    assert cuts == [Cut(first_seq=1, last_seq=2, reason=CutReason.FULL)]


def test_a_recorded_gap_lies_inside_a_snapshot() -> None:
    cuts = plan(run([1, 2, 5, 6]))

    assert cuts == [Cut(first_seq=1, last_seq=6, reason=CutReason.FULL)]


def test_missing_turns_are_found_at_the_start_and_in_between() -> None:
    assert list(missing(run([3, 4, 7]), 2)) == [2, 5, 6]
    assert list(missing(run([2, 3]), 2)) == []


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        (run([1, 2, 3]), None),
        (run([1, 2, 3, 4]), CutReason.FULL),
        (run([1], tokens=100), CutReason.FULL),
        (run([1], age=timedelta(minutes=3)), CutReason.IDLE),
        ([OpenTurn(seq=1, tokens=1, recorded_at=NOW, closes=True)], CutReason.CLOSED),
    ],
)
async def test_the_waker_finds_due_what_a_cutter_does(
    turns: list[OpenTurn], expected: CutReason | None
) -> None:
    world = CuttingWorld()
    world.write(turns=tuple(turns), open_seqs=frozenset(turn.seq for turn in turns))
    (session,) = await TurnsTwin(world).open_sessions()

    assert due_reason(turns, SETTINGS, NOW) is expected
    assert is_due(session, SETTINGS, NOW) is (expected is not None)


async def test_a_cut_is_announced_and_then_its_turns_are_no_longer_open() -> None:
    world = CuttingWorld()
    world.record(1, 2, 3, 4)
    await world.cutter(max_messages=4).cut(SESSION)
    (message,) = world.published
    event = SnapshotReady.model_validate_json(message.value or b"")

    assert world.ranges() == [(1, 4)]
    assert world.state.open_seqs == frozenset()
    assert message.topic == SNAPSHOT_READY.name
    assert message.key == SESSION.encode()
    assert dict(message.headers)[TICKET_HEADER] == b"0"
    assert (event.data.first_seq, event.data.last_seq, event.data.run) == (1, 4, 0)


async def test_without_kafka_the_snapshot_stays_and_its_turns_stay_open() -> None:
    world = CuttingWorld(kafka_is_gone=True)
    world.record(1, 2)
    with pytest.raises(BrokerUnavailableError):
        await world.cutter(max_messages=2).cut(SESSION)

    assert world.ranges() == [(1, 2)]
    assert world.state.open_seqs == {1, 2}

    world.kafka_is_gone = False
    await world.cutter(max_messages=2).cut(SESSION)

    assert world.ranges() == [(1, 2)]
    world.is_handed_over()


async def test_announcing_again_says_the_very_same() -> None:
    world = CuttingWorld()
    world.record(1, 2)
    await world.cutter(max_messages=2).cut(SESSION)
    world.write(open_seqs=frozenset({1}))
    world.now += timedelta(hours=1)
    await world.cutter(max_messages=2).cut(SESSION)

    assert len(world.published) == 2
    assert world.published[0] == world.published[1]


async def test_a_session_that_is_gone_is_left_alone() -> None:
    world = CuttingWorld(is_known=False)
    world.record(1, 2)
    await world.cutter(max_messages=2).cut(SESSION)

    assert world.ranges() == []


async def test_a_hole_keeps_back_what_is_behind_it_until_it_is_filled() -> None:
    world = CuttingWorld()
    world.record(1, 2, 4, 5)
    cutter = world.cutter(max_messages=4)
    await cutter.cut(SESSION)

    assert world.ranges() == [(1, 2)]
    assert world.gaps == {3: world.now_ms()}

    world.record(3)
    world.now += timedelta(minutes=5)
    await cutter.cut(SESSION)

    assert world.ranges() == [(1, 2), (3, 5)]
    world.is_handed_over()


async def test_a_hole_that_stays_for_minutes_is_a_gap_inside_a_snapshot_and_an_alert() -> None:
    world = CuttingWorld()
    world.record(1, 4, 5, 6)
    cutter = world.cutter(max_messages=4, stale=timedelta(minutes=1))
    await cutter.cut(SESSION)
    world.now += timedelta(minutes=2) - timedelta(milliseconds=1)
    await cutter.cut(SESSION)

    assert world.ranges() == [(1, 1)]
    assert set(world.gaps) == {2, 3}

    world.now += timedelta(milliseconds=1)
    with capture_logs() as logs:
        await cutter.cut(SESSION)

    assert world.ranges() == [(1, 1), (2, 6)]
    assert (logs[0]["log_level"], logs[0]["event"]) == ("error", "turns_lost")
    world.is_handed_over()


async def test_a_turn_that_is_there_but_not_open_is_no_hole() -> None:
    world = CuttingWorld()
    world.record(1, 2, 3, 4)
    world.write(open_seqs=frozenset({1, 3, 4}))
    await world.cutter(max_messages=3).cut(SESSION)

    assert world.gaps == {}
    assert world.ranges() == [(1, 3)]


class Letters:
    """Keeps what is set aside."""

    def __init__(self) -> None:
        self.settled: list[tuple[IncomingMessage, Stage, str]] = []

    async def settle(self, message: IncomingMessage, stage: Stage, error: MessageError) -> None:
        self.settled.append((message, stage, error.reason))

    async def bury(self, message: IncomingMessage, stage: Stage) -> None:
        self.settled.append((message, stage, "crash_loop"))


def incoming(message: OutgoingMessage) -> IncomingMessage:
    return IncomingMessage(at=AT, key=message.key, value=message.value, headers=message.headers)


@pytest.mark.parametrize(
    "event",
    [
        TurnRecorded(id="1", subject=SESSION, time=NOW, data=TurnRecordedData(session=SESSION)),
        SessionClosed(id="1", subject=SESSION, time=NOW, data=SessionClosedData(session=SESSION)),
    ],
)
async def test_a_wake_up_cuts_the_session_it_names(event: TurnRecorded | SessionClosed) -> None:
    world = CuttingWorld()
    world.record(1, 2)
    letters = Letters()
    step = SnapshotStep(cutter=world.cutter(max_messages=2), undecodable=letters)
    await step(incoming(encode(TURN_RECORDED.name, event)))

    assert world.ranges() == [(1, 2)]
    assert letters.settled == []


async def test_a_message_that_cannot_be_read_becomes_a_letter_as_it_is() -> None:
    world = CuttingWorld()
    letters = Letters()
    step = SnapshotStep(cutter=world.cutter(), undecodable=letters)
    message = IncomingMessage(at=AT, key=None, value=b"\xff\x00", headers=(("a", None),))
    await step(message)

    assert letters.settled == [(message, Stage.SNAPSHOT, "not_utf8")]


async def test_an_event_of_another_stage_becomes_a_letter() -> None:
    world = CuttingWorld()
    world.record(1, 2)
    await world.cutter(max_messages=2).cut(SESSION)
    letters = Letters()
    step = SnapshotStep(cutter=world.cutter(), undecodable=letters)
    await step(incoming(world.published[0]))

    assert [reason for _, _, reason in letters.settled] == ["unexpected_type"]
