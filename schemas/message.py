"""A Kafka message as a value, coming in and going out: raw bytes, so that nothing is unreadable."""

from schemas.base import Frozen
from schemas.failure import Coordinates

Headers = tuple[tuple[str, bytes | None], ...]
"""In wire order; a name may come twice and a value may be null or no UTF-8."""

TICKET_HEADER = "afterturn.ticket"


class IncomingMessage(Frozen):
    """What the broker delivered, exactly."""

    at: Coordinates
    key: bytes | None
    value: bytes | None
    headers: Headers

    def header(self, name: str) -> str | None:
        """Return the last value of a header as text; none where it is absent or unreadable."""
        for key, value in reversed(self.headers):
            if key == name and value is not None:
                try:
                    return value.decode("utf-8")
                except UnicodeDecodeError:
                    return None
        return None


class OutgoingMessage(Frozen):
    """What is to be published."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
