"""What the loop tells the world, and what it does when nobody listens."""

from structlog.testing import capture_logs

from schemas.topics import RECORD_CHANGED
from tests.assertion_builder import IDS, SCOPE, START, assertion
from tests.fold_world import World
from tests.interleaving import run_alone

OSLO = assertion("Oslo", on=1)
TEA = assertion("Likes tea", on=1, item=1, subject="Ana")


def a_world() -> World:
    world = World()
    world.knows((OSLO, TEA))
    return world


def test_nothing_to_say_touches_nothing() -> None:
    """No assertions, no removal, no slot: no record."""
    world = a_world()

    assert run_alone(world.folder().assert_all([])) == []
    assert run_alone(world.folder().remove_run("nobody:0")) == []
    assert run_alone(world.folder().fold_slot("rec_unknown")) is None
    assert run_alone(world.folder().announce([])) == 0
    assert world.broker.events == []


def test_what_changed_is_announced_with_its_revision() -> None:
    """The event holds opaque ids and a revision, and is a function of them."""
    world = a_world()
    (changed,) = run_alone(world.folder().assert_all([OSLO]))
    announced = run_alone(world.folder().announce([changed]))
    (event,) = world.broker.events

    assert announced == 1
    assert event.id == f"record.changed:{changed.record_id}:{changed.rev}"
    assert event.subject == event.data.record == changed.record_id == OSLO.slot
    assert (event.data.rev, event.data.kind, event.time) == (changed.rev, "semantic", START)
    assert changed == run_alone(world.records.get(OSLO.slot))
    assert run_alone(world.records.unannounced(10)) == []


def test_the_event_goes_to_its_topic_under_the_record() -> None:
    """So that all revisions of a record are in one partition, in order."""
    world = a_world()
    run_alone(world.folder().announce(run_alone(world.folder().assert_all([OSLO]))))

    assert [(message.topic, message.key) for message in world.broker.messages] == [
        (RECORD_CHANGED.name, OSLO.slot.encode())
    ]


def test_without_a_broker_nothing_is_lost_and_nothing_raised() -> None:
    """It is logged without a word of what was said, and the sweep sends it later."""
    world = a_world()
    world.broker.is_up = False
    changed = run_alone(world.folder().assert_all([OSLO, TEA]))
    with capture_logs() as logs:
        announced = run_alone(world.folder().announce(changed))

    assert (announced, world.broker.calls) == (0, 1)
    assert logs == [{"event": "records_not_announced", "records": 2, "log_level": "warning"}]
    assert len(run_alone(world.records.unannounced(10))) == 2

    world.broker.is_up = True

    assert run_alone(world.folder().sweep_unannounced(1)) == 1
    assert run_alone(world.folder().sweep_unannounced(10)) == 1
    world.check_announced()


def test_the_sweep_folds_as_many_as_it_may() -> None:
    """The oldest marks first."""
    world = a_world()
    for said, dies_after in ((TEA, 2), (OSLO, 2)):
        world.dies(world.folder(dies_after=dies_after).assert_all([said]))
        world.now_ms += 1

    assert world.dirty() == [TEA.slot, OSLO.slot]
    assert run_alone(world.folder().sweep_dirty(1)) == 1
    assert list(world.runs()) == [TEA.slot]
    assert run_alone(world.folder().sweep_dirty(10)) == 2
    world.check_folded()


def test_a_slot_is_its_scope_and_kind_and_key() -> None:
    """What the builder makes is what the product makes."""
    assert OSLO.slot == IDS.slot(SCOPE, OSLO.kind, "user/home")
