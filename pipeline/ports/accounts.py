"""What the steps need of the stores of accounts and of what they use."""

from typing import Protocol

from schemas.access import ServiceAccount


class Accounts(Protocol):
    """The service accounts."""

    async def by_id(self, account_id: str) -> ServiceAccount | None:
        """Return the account of a client id."""
        ...

    async def by_name(self, name: str) -> ServiceAccount | None:
        """Return the account that operators call so."""
        ...

    async def add(self, account: ServiceAccount) -> bool:
        """Store a new one; return whether its name was free."""
        ...

    async def swap(self, before: ServiceAccount, after: ServiceAccount) -> bool:
        """Store an account where the one it was made from still stands; return whether it did."""
        ...


class Usage(Protocol):
    """What each project stored in a day, counted from 1970-01-01."""

    async def of(self, project_id: str, day: int) -> int:
        """Return what all processes have added for a day."""
        ...

    async def add(self, project_id: str, day: int, used: int) -> None:
        """Add to a day. Several commands."""
        ...
