"""I1 whatever cutters see, however they are set, in whatever order they act, wherever they die."""

import asyncio
import random
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.cutting import due_reason, plan_cuts
from pipeline.errors import MissingDocumentError
from pipeline.ports.turns import OpenTurn
from pipeline.settings import SnapshotSettings
from schemas.snapshot import CutReason
from tests.cutting_world import NOW, SESSION, CuttingWorld
from tests.interleaving import Process

SCHEDULES = 1000


@st.composite
def runs(draw: st.DrawFn) -> list[OpenTurn]:
    """Turns of one session by seq, some of them missing."""
    seqs = sorted(draw(st.sets(st.integers(1, 60), max_size=40)))
    return [
        OpenTurn(
            seq=seq,
            tokens=draw(st.integers(0, 50)),
            recorded_at=NOW - timedelta(seconds=draw(st.integers(0, 400))),
            closes=draw(st.booleans()),
        )
        for seq in seqs
    ]


@given(runs(), st.integers(1, 12), st.integers(1, 120), st.none() | st.integers(1, 60))
def test_cuts_tile_what_is_open_within_their_bounds(
    turns: list[OpenTurn], max_messages: int, max_tokens: int, hole: int | None
) -> None:
    settings = SnapshotSettings(max_messages=max_messages, max_tokens=max_tokens)
    cuts = plan_cuts(turns, settings, NOW, first_seq=1, hole=hole)
    ready = [turn for turn in turns if hole is None or turn.seq < hole]
    expected = 1
    for cut in cuts:
        inside = [turn for turn in ready if cut.first_seq <= turn.seq <= cut.last_seq]

        assert cut.first_seq == expected
        assert 1 <= len(inside) <= max_messages
        assert len(inside) == 1 or sum(turn.tokens for turn in inside) <= max_tokens
        expected = cut.last_seq + 1
    left = [turn for turn in turns if turn.seq >= expected]
    if hole is None and left:
        assert due_reason(left, settings, NOW) is None
    if cuts and cuts[-1].reason is not CutReason.FULL:
        assert expected == ready[-1].seq + 1


class Killed(BaseException):
    """The end of a process, before a call or right after it took effect."""


class Dying:
    """A port behind which the process dies, once, at the n-th call of any of them."""

    def __init__(self, port: object, fuse: list[int], *, after: bool) -> None:
        self._port = port
        self._fuse = fuse
        self._after = after

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)

        async def call(*args: object, **kwargs: object) -> object:
            self._fuse[0] -= 1
            if self._fuse[0] == 0 and not self._after:
                raise Killed
            result = await method(*args, **kwargs)
            if self._fuse[0] == 0:
                raise Killed
            return result

        return call


def half_cut_world() -> CuttingWorld:
    world = CuttingWorld()
    world.record(*range(1, 12))
    return world


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_whoever_comes_next_finishes_what_died_between_any_two_calls(*, after: bool) -> None:
    calls = 0
    while True:
        calls += 1
        world = half_cut_world()
        fuse = [calls]
        dying = world.cutter(
            wrap=lambda port: Dying(port, fuse, after=after),  # noqa: B023 (used in this round)
            max_messages=4,
        )
        try:
            await dying.cut(SESSION)
        except Killed:
            pass
        else:
            break
        world.tiles()
        await world.cutter(max_messages=3, stale=timedelta(milliseconds=1)).cut(SESSION)
        world.now += timedelta(minutes=3)
        await world.cutter(max_messages=3).cut(SESSION)
        world.tiles()
        world.is_handed_over()

        assert world.state.open_seqs == frozenset()

    assert calls > 10


@pytest.mark.parametrize("first_seed", range(0, SCHEDULES, 100))
def test_cutters_with_stale_views_and_other_settings_tile_in_any_order(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 100):
        try:
            cut_in_any_order(random.Random(seed))  # noqa: S311 (a schedule that can be run again)
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise


def cut_in_any_order(dice: random.Random) -> None:
    """Run one schedule: turns come, cutters start, act, die and start again, time goes by."""
    world = CuttingWorld(lag=dice.choice([0, 2, 6]), dice=dice)
    processes: list[Process] = []
    next_seq = 1
    for _ in range(dice.randint(60, 160)):
        chance = dice.random()
        if chance < 0.1:
            world.record(next_seq, tokens=dice.randint(0, 9))
            next_seq += 1
        elif chance < 0.2 and len(processes) < 4:
            processes.append(
                world.gated_cutter(
                    max_messages=dice.randint(1, 6), max_tokens=dice.randint(1, 30)
                ).cut(SESSION)
            )
        elif chance < 0.22 and processes:
            processes.pop(dice.randrange(len(processes))).close()
        elif chance < 0.24:
            world.now += timedelta(minutes=dice.randint(1, 4))
        elif processes:
            step(processes, dice)
        world.tiles()
    while processes:
        step(processes, dice)
        world.tiles()
    world.dice = None
    world.now += timedelta(minutes=4)
    asyncio.run(world.cutter().cut(SESSION))
    world.now += timedelta(minutes=4)
    asyncio.run(world.cutter().cut(SESSION))
    world.tiles()
    world.is_handed_over()

    assert world.state.open_seqs == frozenset()


def step(processes: list[Process], dice: random.Random) -> None:
    """Let one of the processes take a step; what ended is taken out."""
    index = dice.randrange(len(processes))
    try:
        processes[index].send(None)
    except StopIteration:
        del processes[index]
    except MissingDocumentError:
        # What the winner wrote is not readable yet: the consumer holds the message.
        del processes[index]
