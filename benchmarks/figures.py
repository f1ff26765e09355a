"""What a benchmark returns, and the arithmetic all of them share."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A measured ratio and what it should be."""

    name: str
    ours: float
    yardstick: float | None
    """None where the figure stands alone."""
    unit: str
    goal: str

    @property
    def ratio(self) -> float | None:
        """Ours by the yardstick's."""
        return None if self.yardstick is None else self.ours / self.yardstick

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "name": self.name,
            "ours": round(self.ours, 4),
            "yardstick": None if self.yardstick is None else round(self.yardstick, 4),
            "ratio": None if self.ratio is None else round(self.ratio, 3),
            "unit": self.unit,
            "goal": self.goal,
        }


def percentile(samples: Sequence[float], percent: int) -> float:
    """Return a percentile of samples, by linear interpolation."""
    if len(samples) == 1:
        return samples[0]
    return statistics.quantiles(samples, n=100, method="inclusive")[percent - 1]


def latencies(
    name: str, ours: Sequence[float], yardstick: Sequence[float], goals: Mapping[int, str]
) -> list[Figure]:
    """Return percentiles of what was timed, in seconds, as figures in ms; goals by percent."""
    return [
        Figure(
            name=f"{name} p{percent}",
            ours=percentile(ours, percent) * 1000,
            yardstick=percentile(yardstick, percent) * 1000,
            unit="ms",
            goal=goal,
        )
        for percent, goal in goals.items()
    ]
