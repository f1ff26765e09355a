"""The one way to Kafka."""

from typing import Protocol

from schemas.message import OutgoingMessage


class Publisher(Protocol):
    """The one way to Kafka."""

    async def publish(self, message: OutgoingMessage) -> None:
        """Return once every in-sync replica has it.

        Raises:
            BrokerUnavailableError: It was not acknowledged in time; it may be there all the same.
            MessageTooLargeError: It is larger than the topic takes.
        """
        ...
