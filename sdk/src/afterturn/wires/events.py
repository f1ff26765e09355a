"""Server-sent events: what a streamed answer is made of."""

import json
from collections.abc import Iterator
from typing import Any, cast

from afterturn.turns import Json


def events(body: bytes) -> Iterator[Json]:
    """Yield the JSON objects of a stream, in order, and nothing of an event that was cut.

    Source: the event stream format of the HTML standard; names of events repeat what is in the
    objects, so they are not looked at.
    """
    lines: list[bytes] = []
    for raw in body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
        if raw.startswith(b"data:"):
            lines.append(raw[5:].removeprefix(b" "))
        elif not raw and lines:
            event = _object(b"\n".join(lines))
            lines.clear()
            if event is not None:
                yield event


def _object(data: bytes) -> Json | None:
    try:
        value: Any = json.loads(data)
    except ValueError:
        return None
    return cast("Json", value) if isinstance(value, dict) else None
