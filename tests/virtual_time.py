"""Server time that a test can let pass."""

import time
from datetime import timedelta


class VirtualTime:
    """The real time, and what was added to it."""

    def __init__(self) -> None:
        self.passed_ms = 0

    async def now_ms(self) -> int:
        """Return epoch milliseconds."""
        return int(time.time() * 1000) + self.passed_ms

    def passes(self, span: timedelta) -> None:
        """Let time pass."""
        self.passed_ms += int(span.total_seconds() * 1000)
