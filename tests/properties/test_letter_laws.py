"""Groups of letters, what replaces a part, and sending many back: laws over whatever there is."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import LetterError
from pipeline.letters.bulk import Pace, Tally, redrive_all
from pipeline.letters.changing import AS_IT_WAS, Change, opened
from pipeline.letters.grouping import grouped
from schemas.extraction import Part, PartState
from schemas.failure import Attempt, Failure, FailureClass, Letter, LetterState
from schemas.memory import Kind
from tests.builders import turn

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
FAILURE = Failure(failure_class=FailureClass.REFUSED, reason="refusal", exception="E")


def letter(name: str, fingerprint: str = "f", minute: int = 0, deaths: int = 1) -> Letter:
    at = NOW + timedelta(minutes=minute)
    return Letter(
        letter_id=name,
        stage="extraction",
        failure_class=FailureClass.REFUSED,
        reason="refusal",
        disposition="content",
        fingerprint=fingerprint,
        action="a",
        attempts=(Attempt(failure=FAILURE, failed_at=at),),
        original=None,
        value=None,
        headers=(),
        created_at=at,
        deaths=deaths,
    )


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=30),
    st.integers(0, 9),
    st.randoms(use_true_random=False),
)
def test_groups_hold_every_letter_once_in_whatever_order_they_come(
    drawn: list[tuple[str, int]], since: int, random: object
) -> None:
    letters = [letter(str(n), each, minute) for n, (each, minute) in enumerate(drawn)]
    moment = NOW + timedelta(minutes=since)
    groups = grouped(letters, since=moment)

    assert grouped(reversed(letters), since=moment) == groups
    assert sum(group.letters for group in groups) == len(letters)
    assert sum(group.new for group in groups) == sum(minute >= since for _, minute in drawn)
    assert len({group.fingerprint for group in groups}) == len(groups)
    assert [group.letters for group in groups] == sorted(
        (group.letters for group in groups), reverse=True
    )
    assert all(group.first_at <= group.last_at for group in groups)


@given(
    st.integers(1, 8),
    st.sets(st.integers(1, 8)),
    st.booleans(),
    st.none() | st.integers(256, 9000),
)
def test_what_replaces_a_part_asks_for_its_turns_and_for_each_once(
    last: int, leave_out: set[int], is_split: bool, max_tokens: int | None
) -> None:
    turns = [turn(seq, "Something.") for seq in range(1, last + 1)]
    part = Part(first_seq=1, last_seq=last, kinds=tuple(Kind), state=PartState.DEAD, letter_id="l")
    change = Change(max_tokens=max_tokens, leave_out=tuple(leave_out), split=is_split)
    left = set(range(1, last + 1)) - leave_out
    try:
        first, *halves = opened(part, change, turns)
    except LetterError:
        assert not left or not leave_out <= set(range(1, last + 1)) or (is_split and len(left) == 1)
        return

    asked = [first, *halves] if first.state is not PartState.SPLIT else halves
    covered = [
        one.seq
        for each in asked
        for one in turns
        if each.first_seq <= one.seq <= each.last_seq and one.seq not in each.left_out
    ]
    assert sorted(covered) == sorted(left)
    assert (first.redrives, first.letter_id) == (1, "l")
    assert {each.state for each in asked} == {PartState.WAITING}
    assert all(each.max_tokens == max_tokens for each in asked)


class Desk:
    """Sends letters back; those of `dying` die again at once, of `gone` nobody can send."""

    def __init__(self, dying: set[str], gone: set[str]) -> None:
        self.dying = dying
        self.gone = gone
        self.sent: list[str] = []

    async def redrive(self, letter: Letter, change: Change) -> None:
        assert change == AS_IT_WAS
        if letter.letter_id in self.gone:
            raise LetterError("it is resolved and not dead")
        self.sent.append(letter.letter_id)

    async def read(self, letter_id: str) -> Letter:
        found = letter(letter_id)
        if letter_id in self.dying:
            return found.model_copy(update={"deaths": 2})
        return found.model_copy(update={"state": LetterState.RESOLVED})


def sent_back(desk: Desk, letters: Sequence[Letter], pace: Pace) -> Tally:
    async def at_once(_seconds: float) -> None:
        await asyncio.sleep(0)

    return asyncio.run(
        redrive_all(
            desk,
            letters,
            AS_IT_WAS,
            pace,
            sleep=at_once,
            tell=lambda _tally: None,
        )
    )


@given(
    st.integers(0, 60), st.sets(st.integers(0, 59)), st.sets(st.integers(0, 59)), st.integers(0, 5)
)
def test_of_what_only_dies_again_no_more_than_the_canaries_are_sent(
    count: int, dying: set[int], gone: set[int], canary: int
) -> None:
    letters = [letter(str(n)) for n in range(count)]
    desk = Desk({str(n) for n in dying}, {str(n) for n in gone})
    tally = sent_back(desk, letters, Pace(per_second=1000, canary=canary, stop_above=0.2))

    assert len(set(desk.sent)) == len(desk.sent) == tally.sent
    assert tally.died_again == sum(one in desk.dying for one in desk.sent)
    assert tally.resolved == tally.sent - tally.died_again
    first = [str(n) for n in range(count) if n not in gone][:canary]
    if len(first) == canary and set(first) & desk.dying:
        assert (desk.sent, bool(tally.stopped)) == (first, True)
    elif tally.stopped is None:
        assert tally.sent + tally.refused == count
