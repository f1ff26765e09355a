"""What the steps need to know of earlier deliveries."""

from typing import Protocol

from schemas.topics import Stage


class Deliveries(Protocol):
    """How often what a message is about was begun, in a row, without an end.

    A process that counts a start and dies leaves the count; one that ends takes it away. So what
    is here is under way, or its process died, or it is set aside for good. A partition that is in
    somebody's hands is such a start, too.
    """

    async def unended(self, stage: Stage) -> set[str]:
        """Return what was begun at a stage and has no end."""
        ...

    async def starts(self, stage: Stage, subject: str) -> int:
        """Return how many starts in a row have no end; 0 for what ended or was never begun."""
        ...

    async def put(self, stage: Stage, subject: str, starts: int) -> None:
        """Say so. Idempotent: a start is counted once, however often this is sent."""
        ...

    async def remove(self, stage: Stage, subject: str) -> None:
        """It ended; or an operator lets what was set aside be tried again. Idempotent."""
        ...
