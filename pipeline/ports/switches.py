"""What the steps need of breakers and guards that all processes share."""

from typing import Protocol

from schemas.breaker import Breaker
from schemas.guard import Guard


class Breakers(Protocol):
    """The shared state of each target."""

    async def get(self, name: str) -> Breaker:
        """Return a state; a fresh one where none is stored."""
        ...

    async def swap(self, before: Breaker, after: Breaker) -> bool:
        """Store a state where the one it was made from still stands; return whether it did."""
        ...


class Guards(Protocol):
    """The shared state of each mass guard."""

    async def get(self, name: str) -> Guard:
        """Return a state; a fresh one where none is stored."""
        ...

    async def swap(self, before: Guard, after: Guard) -> bool:
        """Store a state where the one it was made from still stands; return whether it did."""
        ...
