"""Whatever kills, whenever and beside whom: it alone is set aside."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from pipeline.failing.crash_loops import BURIALS, CRASHES, SET_ASIDE, Course, course_of
from schemas.topics import Stage
from tests.crash_loop_world import World

WORKS = st.lists(st.integers(min_value=0, max_value=12), min_size=1, max_size=10)


@given(works=WORKS, kills_when_buried=st.booleans(), data=st.data())
def test_what_kills_becomes_a_letter_and_its_neighbours_never_do(
    works: list[int], kills_when_buried: bool, data: st.DataObject
) -> None:
    poisonous = data.draw(st.sets(st.integers(0, len(works) - 1), max_size=3))
    kills = {offset: data.draw(st.integers(0, works[offset])) for offset in poisonous}
    world = World(works=works, kills=kills, kills_when_buried=kills_when_buried)

    # The first death comes before anything is counted.
    most = (CRASHES + BURIALS) * len(poisonous) + 1
    asyncio.run(world.run(most_deaths=most))

    assert sorted(world.letters) == sorted(poisonous)
    assert sorted(set(world.done)) == [n for n in range(len(works)) if n not in poisonous]
    left = asyncio.run(world.shared.unended(Stage.SNAPSHOT))
    assert left == {f"subject {offset}" for offset in poisonous}


@given(starts=st.integers(min_value=0, max_value=100))
def test_a_count_only_ever_makes_things_more_careful(starts: int) -> None:
    order = [Course.TOGETHER, Course.ALONE, Course.BURY, Course.LETTER, Course.PASS_BY]

    assert order.index(course_of(starts)) <= order.index(course_of(starts + 1))
    assert (course_of(starts) is Course.PASS_BY) == (starts >= SET_ASIDE)
