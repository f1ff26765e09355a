"""Sweeps: what was left half done is gone through item by item, and each on its own.

One item that can't be mended, whatever is wrong with it, keeps none behind it from being mended.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import structlog

from pipeline.failing.failures import classify, is_infrastructure
from pipeline.metrics import NO_METRICS, Metrics, SweepName

Item = TypeVar("Item")

log = structlog.get_logger()


async def mend_each(
    items: Sequence[Item],
    mend: Callable[[Item], Awaitable[object]],
    *,
    sweep: SweepName,
    metrics: Metrics = NO_METRICS,
) -> int:
    """Mend items in their order; return how many were.

    One that fails stays as it is for a later sweep, and the log tells what failed.

    Args:
        items: What a sweep found.
        mend: Must leave an item it fails at so that a later sweep finds it.
        sweep: Its name in the log and in the metrics.
        metrics: Where each item is counted.

    Raises:
        Exception: What MongoDB or Kafka raise when they are gone: no item is at fault.
    """
    mended = 0
    for item in items:
        try:
            await mend(item)
        except Exception as error:
            # Whatever the item has, those behind it are not to suffer from it.
            if is_infrastructure(error):
                raise
            failure = classify(error)
            metrics.item_swept(sweep, is_mended=False)
            log.warning(
                "item_not_mended",
                sweep=sweep,
                failure_class=failure.failure_class,
                reason=failure.reason,
                exception=failure.exception,
            )
        else:
            mended += 1
            metrics.item_swept(sweep, is_mended=True)
    return mended
