"""A campaign is its seed's and nobody else's; over the seeds everything is tried."""

from hypothesis import given
from hypothesis import strategies as st

from pipeline.crash_points import CrashPoint
from tests.faults.campaign import (
    GARBAGE,
    LASTING,
    MOST_ENDS,
    PASSING,
    READ_TOPICS,
    SPELL,
    Break,
    Echo,
    Garbage,
    Mood,
    Outage,
    Restart,
    next_seed,
    plan,
)

MANY = [plan(seed, sessions=40) for seed in range(240)]
FAULTS = [event.fault for campaign in MANY for event in campaign.events]


@given(st.integers(0, 2**32))
def test_a_seed_gives_the_same_campaign_each_time(seed: int) -> None:
    campaign = plan(seed, sessions=20)

    assert plan(seed, sessions=20) == campaign
    assert plan(seed + 1, sessions=20) != campaign


@given(st.integers(0, 2**32))
def test_faults_come_in_order_within_the_spell_and_end_few_processes(seed: int) -> None:
    campaign = plan(seed, sessions=20)
    moments = [event.at for event in campaign.events]
    restarts = [event.fault for event in campaign.events if isinstance(event.fault, Restart)]

    assert moments == sorted(moments)
    assert all(moment < SPELL for moment in moments)
    assert sum(1 if each.crash_at is None else 2 for each in restarts) <= MOST_ENDS
    assert all(talk.begins < SPELL for talk in campaign.talks)
    assert all((talk.fails > 0) == (talk.mood in PASSING) for talk in campaign.talks)


def test_over_the_seeds_everything_is_tried() -> None:
    moods = {talk.mood for campaign in MANY for talk in campaign.talks}
    restarts = [each for each in FAULTS if isinstance(each, Restart)]
    breaks = {(each.target, each.trouble) for each in FAULTS if isinstance(each, Break)}
    troubles = {
        (target, trouble)
        for target in ("kafka", "mongo", "model")
        for trouble in ("cut", "refuse", "stall")
    }

    assert moods == set(Mood)
    assert {each.crash_at for each in restarts} == {None, *CrashPoint}
    assert {(each.instance, each.how) for each in restarts} == {
        (instance, how) for instance in ("one", "two", "three") for how in ("kill -9", "SIGTERM")
    }
    assert breaks == {*troubles, ("mongo", "lose_answers")}
    assert {each.status for each in FAULTS if isinstance(each, Outage)} == {401, 429, 503}
    assert {each.kind for each in FAULTS if isinstance(each, Garbage)} == set(GARBAGE)
    for kind in (Garbage, Echo):
        assert {each.topic for each in FAULTS if isinstance(each, kind)} == set(READ_TOPICS)


def test_most_of_what_is_said_is_well_and_little_is_set_aside() -> None:
    """Or the mass guard would take it for a bad deploy."""
    moods = [talk.mood for campaign in MANY for talk in campaign.talks]

    assert sum(mood is Mood.WELL for mood in moods) > 0.7 * len(moods)
    assert sum(mood in LASTING for mood in moods) < 0.1 * len(moods)


def test_each_seed_is_followed_by_another() -> None:
    seeds = [7]
    for _ in range(1000):
        seeds.append(next_seed(seeds[-1]))

    assert len(set(seeds)) == len(seeds)
