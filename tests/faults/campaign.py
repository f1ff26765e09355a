"""What a seed stands for: who says what, how the model takes it, and what breaks when.

Pure: the same seed gives the same plan on every machine; what the machine makes of it is its own.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final, Literal, TypeVar

from pipeline.crash_points import CrashPoint
from schemas.identity import SessionIdentity
from schemas.topics import RETRY_TIERS, SNAPSHOT_READY, TURN_RECORDED, Stage

SESSIONS: Final = 200
SPELL: Final = timedelta(seconds=24)
"""How long things break; then all faults are lifted."""
TICK: Final = timedelta(seconds=1)
"""At each, every fault has its own small chance."""
MOST_ENDS: Final = 9
"""Processes that are ended within a spell, at most: each repeats what it had under way."""

Element = TypeVar("Element")


class Mood(StrEnum):
    """How the model takes to a session."""

    WELL = "well"
    # The same request is answered well a little later:
    RATE_LIMITED = "429 with Retry-After"
    SERVER_ERROR = "500"
    OVERLOADED = "529"
    WEB_PAGE = "a web page"
    NO_CHOICES = "no choices"
    RESET = "a reset connection"
    HUNG_UP = "a closed connection"
    CUT_BODY = "half a body"
    STALLED = "no byte"
    SLOW = "an answer that takes its time"
    ONCE_INVALID = "invalid JSON, then a good answer"
    # It is never answered well as it is:
    REFUSED = "a refusal"
    FILTERED = "a content filter"
    INVALID = "invalid JSON, always"
    EMPTY = "an empty answer"
    BAD_REQUEST = "400"
    # An answer comes, and what is wrong with it concerns a part of it:
    TOO_LONG = "a truncated answer to more than one turn"
    WRONG_QUOTE = "a quote that nobody said"
    NOTHING = "nothing worth keeping"


PASSING: Final = (
    *(Mood.RATE_LIMITED, Mood.SERVER_ERROR, Mood.OVERLOADED, Mood.WEB_PAGE, Mood.NO_CHOICES),
    *(Mood.RESET, Mood.HUNG_UP, Mood.CUT_BODY, Mood.STALLED, Mood.SLOW, Mood.ONCE_INVALID),
)
LASTING: Final = (Mood.REFUSED, Mood.FILTERED, Mood.INVALID, Mood.EMPTY, Mood.BAD_REQUEST)
PARTIAL: Final = (Mood.TOO_LONG, Mood.WRONG_QUOTE, Mood.NOTHING)

Target = Literal["kafka", "mongo", "model"]
Trouble = Literal["cut", "refuse", "stall", "lose_answers"]
Instance = Literal["one", "two", "three"]
"""A worker's name: as many at most run at once, and a name is never used twice at a time."""
GARBAGE: Final[dict[str, bytes | None]] = {
    "a tombstone": None,
    "no bytes": b"",
    "no UTF-8": b"\xff\xfe\x00\x80",
    "no JSON": b'{"type": "turn.recorded", ',
    "no object": b"[1, 2, 3]",
    "an unknown type": b'{"type": "io.afterturn.unheard.of", "dataschema": "v1"}',
    "no type": b"{}",
    "a key twice": b'{"type": "a", "type": "b"}',
    "too much": b'{"type": "' + b"x" * 5000 + b'"}',
}
READ_TOPICS: Final = (
    TURN_RECORDED.name,
    SNAPSHOT_READY.name,
    *(tier.topic.name for tier in RETRY_TIERS[Stage.EXTRACTION]),
)
"""What is consumed, and so can be given what is unusable or was there before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """One session from its first turn to its last."""

    number: int
    begins: timedelta
    turns: tuple[str, ...]
    mood: Mood
    fails: int
    """How many requests a passing mood spoils."""
    is_closed: bool
    """Else it falls silent."""
    is_contradicted: bool
    """Somebody uses its last idempotency key for other words."""
    has_secret: bool

    @property
    def identity(self) -> SessionIdentity:
        """Whose it is; every talk has a user of its own."""
        return SessionIdentity(
            user_id=f"quentin@example.org-{self.number}", session_id=f"zebrafish-7-{self.number}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """A worker ends, if it runs, and another one of its name begins."""

    instance: Instance
    how: Literal["kill -9", "SIGTERM"]
    away: timedelta
    """How long nobody has the name; longer than Kafka's session timeout, others get its work."""
    crash_at: CrashPoint | None
    """Where the new one dies, if it gets there; then it begins once more."""
    is_other_version: bool
    talks: range
    """Which talks it records, too: what was said before has the same idempotency keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """A server is not to be had, or its answers are not."""

    target: Target
    trouble: Trouble
    lasts: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """The model gives everybody the same failure."""

    status: Literal[401, 429, 503]
    lasts: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbage:
    """A message nobody can read."""

    topic: str
    kind: str
    """A key of `GARBAGE`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Echo:
    """Messages that were there before come again, in another order: late, doubled, stale."""

    topic: str
    count: int
    dice: int
    """The seed of the choice and its order."""


Fault = Restart | Break | Outage | Garbage | Echo


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A fault and its time since the beginning."""

    at: timedelta
    fault: Fault

    def __str__(self) -> str:
        return f"{self.at.total_seconds():5.1f} s  {self.fault}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """Everything that a seed decides."""

    seed: int
    talks: tuple[Talk, ...]
    first: tuple[Restart, ...]
    """The workers that are there from the beginning."""
    events: tuple[Event, ...]
    """In order of time."""

    @property
    def turns(self) -> int:
        """How many turns are said, each counted once."""
        return sum(len(talk.turns) for talk in self.talks)

    def __str__(self) -> str:
        moods = "\n".join(
            f"  session {talk.number}: {talk.mood}" + (f", {talk.fails} times" * (talk.fails > 0))
            for talk in self.talks
            if talk.mood is not Mood.WELL
        )
        events = "\n".join(f"  {each}" for each in (*self.first, *self.events))
        return (
            f"seed {self.seed}: {self.turns} turns of {len(self.talks)} sessions\n{moods}\n{events}"
        )


def plan(seed: int, *, sessions: int = SESSIONS, spell: timedelta = SPELL) -> Campaign:
    """Return the campaign of a seed. Pure."""
    dice = random.Random(seed)  # noqa: S311 (a schedule, not a secret)
    talks = tuple(_talk(number, dice, spell) for number in range(sessions))
    first = (_beginning("one", dice), _beginning("two", dice))
    return Campaign(
        seed=seed, talks=talks, first=first, events=tuple(_events(dice, sessions, spell))
    )


def next_seed(seed: int) -> int:
    """Return the seed that follows on one. Pure."""
    return random.Random(f"after {seed}").randrange(2**32)  # noqa: S311 (the same)


def _talk(number: int, dice: random.Random, spell: timedelta) -> Talk:
    turns = dice.choice((1, 1, 1, 1, 2, 3))
    mood = _mood(dice)
    if mood is Mood.TOO_LONG:
        turns = max(turns, 2)
    return Talk(
        number=number,
        begins=dice.random() * spell * 0.9,
        turns=tuple(f"I live in Vladivostok at plumtree {number}.{turn}" for turn in range(turns)),
        mood=mood,
        fails=_fails(mood, dice),
        is_closed=dice.random() < 0.7,
        is_contradicted=dice.random() < 0.05,
        has_secret=dice.random() < 0.1,
    )


def _fails(mood: Mood, dice: random.Random) -> int:
    if mood not in PASSING:
        return 0
    # Silence has the shortest ladder, and outages take rungs of it, too.
    return 1 if mood is Mood.STALLED else dice.choice((1, 1, 2))


def _mood(dice: random.Random) -> Mood:
    (moods,) = dice.choices(((Mood.WELL,), PASSING, LASTING, PARTIAL), weights=(80, 8, 5, 7))
    return dice.choice(moods)


def _events(dice: random.Random, sessions: int, spell: timedelta) -> Iterator[Event]:
    """Yield what breaks, in order of time."""
    ends = 0
    for tick in range(1, spell // TICK):
        for chance, draw in _DRAWS:
            if dice.random() >= chance:
                continue
            fault = draw(dice, sessions)
            if isinstance(fault, Restart):
                ends += 1 if fault.crash_at is None else 2
                if ends > MOST_ENDS:
                    continue
            yield Event(at=tick * TICK, fault=fault)


def _beginning(instance: Instance, dice: random.Random) -> Restart:
    return Restart(
        instance=instance,
        how="SIGTERM",
        away=timedelta(0),
        crash_at=None,
        is_other_version=dice.random() < 0.5,
        talks=range(0),
    )


def _restart(dice: random.Random, sessions: int) -> Fault:
    first = dice.randrange(sessions)
    return Restart(
        instance=_any(dice, ("one", "two", "three")),
        how=_any(dice, ("kill -9", "SIGTERM")),
        away=timedelta(seconds=_any(dice, (0, 0, 1, 7))),
        crash_at=_any(dice, (None, *CrashPoint)) if dice.random() < 0.6 else None,
        is_other_version=dice.random() < 0.3,
        talks=range(first, min(first + 4, sessions)),
    )


def _break(dice: random.Random, _sessions: int) -> Fault:
    target: Target = _any(dice, ("kafka", "mongo", "model"))
    troubles: tuple[Trouble, ...] = ("cut", "refuse", "stall")
    if target == "mongo":
        troubles = (*troubles, "lose_answers")
    return Break(
        target=target,
        trouble=_any(dice, troubles),
        lasts=timedelta(seconds=_any(dice, (0.3, 1.0, 2.0))),
    )


def _outage(dice: random.Random, _sessions: int) -> Fault:
    return Outage(
        status=_any(dice, (401, 429, 503)), lasts=timedelta(seconds=_any(dice, (0.5, 1.0, 2.0)))
    )


def _garbage(dice: random.Random, _sessions: int) -> Fault:
    return Garbage(topic=_any(dice, READ_TOPICS), kind=_any(dice, tuple(GARBAGE)))


def _echo(dice: random.Random, _sessions: int) -> Fault:
    return Echo(
        topic=_any(dice, READ_TOPICS), count=_any(dice, (1, 5, 20)), dice=dice.randrange(2**32)
    )


_DRAWS: Final[tuple[tuple[float, Callable[[random.Random, int], Fault]], ...]] = (
    (0.22, _restart),
    (0.25, _break),
    (0.08, _outage),
    (0.4, _garbage),
    (0.3, _echo),
)


def _any(dice: random.Random, choices: Sequence[Element]) -> Element:
    return dice.choice(choices)
