"""What a consumer needs of a step."""

from typing import Protocol

from schemas.message import IncomingMessage


class Step(Protocol):
    """What a consumer does with a message."""

    async def __call__(self, message: IncomingMessage) -> None:
        """Return once a durable record says what became of the message.

        Idempotent: a message may come again at any time. An exception means that its fate could
        not be written; the message is then held in place and tried again.
        """
        ...
