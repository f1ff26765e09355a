"""Where people would rather look than read: letters over time, as rectangles of an SVG."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from pipeline.stores.figures import Death
from schemas.failure import LetterState

HOURS: Final = 24
HEIGHT: Final = 72
"""Of the tallest bar, in the picture's units."""
STEP: Final = 20
WIDTH: Final = 16
_LEAST: Final = 2
"""A bar of one letter is seen beside one of thousands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One rectangle."""

    x: int
    y: int
    height: int
    kind: Literal["dead", "dealt"]
    """`dead`: nobody has dealt with them; `dealt`: they are sent back, resolved or discarded."""
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Letters by the hour they died in, the present hour last."""

    bars: tuple[Bar, ...]
    largest: int
    """How many letters the tallest bar stands for."""
    letters: int
    width: int = HOURS * STEP
    height: int = HEIGHT


def chart_of(deaths: Iterable[Death], now: datetime) -> Chart:
    """Return the letters of the last day in bars by the hour; older ones are left out."""
    dead, dealt = [0] * HOURS, [0] * HOURS
    for death in deaths:
        place = HOURS - 1 - (now - death.at) // timedelta(hours=1)
        if 0 <= place < HOURS:
            counts = dead if death.state is LetterState.DEAD else dealt
            counts[place] += 1
        elif place >= HOURS:
            # It died since `now` was read.
            dead[-1] += 1
    largest = max(map(sum, zip(dead, dealt, strict=True)))
    bars: list[Bar] = []
    for place in range(HOURS):
        hours_ago = HOURS - 1 - place
        when = "in this hour" if hours_ago == 0 else f"{hours_ago} h ago"
        lower = _height(dead[place], largest)
        upper = _height(dealt[place], largest)
        if dead[place]:
            says = f"{dead[place]} still dead, {when}"
            bars.append(_bar(place, HEIGHT - lower, lower, "dead", says))
        if dealt[place]:
            says = f"{dealt[place]} dealt with, {when}"
            bars.append(_bar(place, max(0, HEIGHT - lower - upper), upper, "dealt", says))
    return Chart(bars=tuple(bars), largest=largest, letters=sum(dead) + sum(dealt))


def _bar(place: int, y: int, height: int, kind: Literal["dead", "dealt"], says: str) -> Bar:
    return Bar(x=place * STEP, y=y, height=height, kind=kind, says=says)


def _height(count: int, largest: int) -> int:
    return 0 if count == 0 else max(_LEAST, HEIGHT * count // largest)
