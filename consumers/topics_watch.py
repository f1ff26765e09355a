"""Whether the topics are still what consumers rely on, told while they run.

A topic that was deleted, or was given other partitions, breaks no law: what can't be sent is held
or found again. But somebody has to mend it, and a start that refuses comes too late to tell.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import structlog

from pipeline.errors import BrokerUnavailableError, ConfigurationError

log = structlog.get_logger(__name__)


class TopicsWatch:
    """Logs what is wrong with the topics, once when it appears, and when all is well again.

    Args:
        check: Returns what is wrong and what to do.
        interval: How long it rests after each look.
    """

    def __init__(
        self, check: Callable[[], Awaitable[Sequence[str]]], *, interval: timedelta
    ) -> None:
        self._check = check
        self._interval = interval
        self._known: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(self._interval.total_seconds())
            await self.look()

    async def look(self) -> None:
        """Look once; a Kafka that does not answer changes nothing of what is known."""
        try:
            problems = frozenset(await self._check())
        except BrokerUnavailableError:
            return
        except ConfigurationError as error:
            problems = frozenset({str(error)})
        for problem in sorted(problems - self._known):
            log.error("topic_problem", problem=problem)
        if self._known and not problems:
            log.info("topics_mended")
        self._known = problems
