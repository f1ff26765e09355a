"""A commit never passes an uncompleted offset, and reaches whatever it may."""

from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from consumers.watermark import Watermark


def test_nothing_is_committable_before_anything_came() -> None:
    """A new assignment commits nothing."""
    assert Watermark().committable() is None


def test_the_first_uncompleted_offset_is_the_watermark() -> None:
    """Completed in any order, across gaps."""
    watermark = Watermark()
    for offset in (3, 7, 8):
        assert watermark.register(offset)
    seen = [watermark.committable()]
    for offset in (8, 3, 7):
        watermark.complete(offset)
        seen.append(watermark.committable())

    assert seen == [3, 3, 7, 9]


def test_what_is_in_work_is_not_taken_twice() -> None:
    """Neither while it is open nor while it waits for those before it."""
    watermark = Watermark()
    watermark.register(1)
    watermark.register(2)
    watermark.complete(2)

    assert not watermark.register(1)
    assert not watermark.register(2)
    assert watermark.uncompleted == 1


def test_what_was_passed_may_come_again() -> None:
    """A redelivery is worked on again, and holds the watermark until it is done."""
    watermark = Watermark()
    watermark.register(1)
    watermark.complete(1)
    passed = watermark.committable()

    assert watermark.register(1)
    assert (passed, watermark.committable()) == (2, 1)
    watermark.complete(1)
    assert watermark.committable() == 2


def test_the_order_of_registering_does_not_matter() -> None:
    """A record that comes after a later one holds the watermark all the same."""
    watermark = Watermark()
    for offset in (5, 3):
        watermark.register(offset)
    seen = [watermark.committable()]
    for offset in (5, 3):
        watermark.complete(offset)
        seen.append(watermark.committable())

    assert seen == [3, 3, 6]


def test_a_completion_nobody_registered_changes_nothing() -> None:
    """Late ones of an assignment that is gone come to a new watermark as strangers."""
    watermark = Watermark()
    watermark.complete(4)
    assert watermark.committable() is None
    watermark.register(4)

    assert watermark.committable() == 4


class Assignments(RuleBasedStateMachine):
    """A log with gaps, read, worked on out of order, revoked and read again from its commit."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[int] = []
        self.committed = 0
        self.done: set[int] = set()
        self.assign()

    def assign(self) -> None:
        """Begin a new assignment at what is committed."""
        self.watermark = Watermark()
        self.position = self.committed
        self.working: set[int] = set()
        self.handed: set[int] = set()

    @rule(gap=st.integers(0, 3))
    def append(self, gap: int) -> None:
        """A record appears, perhaps after a gap."""
        self.log.append((self.log[-1] + 1 if self.log else 0) + gap)

    @rule()
    def deliver(self) -> None:
        """The next record is handed out."""
        following = [offset for offset in self.log if offset >= self.position]
        assume(following)
        self.position = following[0] + 1
        if self.watermark.register(following[0]):
            self.working.add(following[0])
            self.handed.add(following[0])

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        """Any of those in work gets its durable record."""
        offset = data.draw(st.sampled_from(sorted(self.working)))
        self.working.remove(offset)
        self.done.add(offset)
        self.watermark.complete(offset)

    @rule()
    def commit(self) -> None:
        """The watermark is committed."""
        committable = self.watermark.committable()
        if committable is not None and committable > self.committed:
            self.committed = committable

    @rule()
    def seek_back(self) -> None:
        """Records are delivered again within the assignment."""
        self.position = self.committed

    @rule(commits=st.booleans(), data=st.data())
    def revoke(self, commits: bool, data: st.DataObject) -> None:
        """The partition is taken and given again; work of before may still complete."""
        late, old = sorted(self.working), self.watermark
        if commits:
            self.commit()
        self.assign()
        for offset in data.draw(st.lists(st.sampled_from(late), unique=True)) if late else []:
            self.done.add(offset)
            old.complete(offset)

    @invariant()
    def nothing_uncompleted_is_passed(self) -> None:
        """What a commit passes has a durable record of its fate."""
        assert {offset for offset in self.log if offset < self.committed} <= self.done

    @invariant()
    def all_that_may_be_is_committable(self) -> None:
        """With nothing in work, the watermark is behind the last record handed out."""
        if self.handed and not self.working:
            assert self.watermark.committable() == max(self.handed) + 1


TestAssignments = Assignments.TestCase
TestAssignments.settings = settings(max_examples=60, stateful_step_count=30)
