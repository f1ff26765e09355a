"""How often is too often: token buckets, and how long who finds one empty has to wait.

Within any span of t seconds a bucket lets at most `burst + rate * t` through, and who waits as long
as it is told finds room, unless somebody else was there before.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

KEYS: Final = 10_000
"""How many are remembered at once. The one heard of least recently is forgotten, and so let in."""
_ROUNDING: Final = 1e-6
"""By so much of one, what a wait adds up to may fall short of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """What is allowed."""

    burst: int
    """At once, after a while of none."""
    per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """What is left, and when that was so."""

    left: float
    at: float
    """Seconds of a monotonic clock."""


def taken(bucket: Bucket | None, rate: Rate, now: float) -> tuple[Bucket, float]:
    """Return a bucket after one more was asked for, and the seconds to wait: 0 if it was let in.

    Args:
        bucket: None where nobody has asked yet.
        rate: What is allowed.
        now: Seconds; earlier than the bucket's counts as the same moment.
    """
    if bucket is None:
        left, at = float(rate.burst), now
    else:
        at = max(now, bucket.at)
        left = min(float(rate.burst), bucket.left + (at - bucket.at) * rate.per_second)
    if left >= 1 - _ROUNDING:
        return Bucket(left=max(0.0, left - 1), at=at), 0.0
    return Bucket(left=left, at=at), (1 - left) / rate.per_second


class Buckets:
    """One bucket for each key.

    Concurrency: of one event loop; nothing here gives way.
    """

    def __init__(self, rate: Rate, keys: int = KEYS) -> None:
        self._rate = rate
        self._keys = keys
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def take(self, key: str, now: float) -> float:
        """Return the seconds that whoever has this key must wait; 0: let in, and counted."""
        bucket, wait = taken(self._buckets.pop(key, None), self._rate, now)
        self._buckets[key] = bucket
        if len(self._buckets) > self._keys:
            self._buckets.popitem(last=False)
        return wait

    def __len__(self) -> int:
        return len(self._buckets)
