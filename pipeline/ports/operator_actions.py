"""What the steps need of the trail of what operators did."""

from typing import Protocol

from schemas.operator_action import OperatorAction


class OperatorActions(Protocol):
    """The audit trail."""

    async def write(self, action: OperatorAction) -> None:
        """Store an act, before it is done."""
        ...
