"""A primary that steps down again and again, between a client and a real MongoDB.

Every command reaches the server or is refused as a server does that is no primary any more; what
was refused may have been done, which a client can't know.
"""

import asyncio
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any, Final, cast

import bson

HEADER: Final = struct.Struct("<iiii")
OP_MSG: Final = 2013
BODY_AT: Final = HEADER.size + 5
"""After the flags and the kind of the first section."""
WRITES: Final = frozenset({"insert", "update", "delete", "findAndModify"})
NOT_PRIMARY: Final = (10107, "NotWritablePrimary")
INTERRUPTED: Final = (11602, "InterruptedDueToReplStateChange")


class SteppingDown:
    """Forwards its port to a server's; refuses writes by chance.

    Args:
        target_port: The server's.
        share: How many of the writes meet no primary, from 0 to 1.
        is_done: Whether the server does what is refused.
    """

    def __init__(self, target_port: int, share: float, *, is_done: bool) -> None:
        self.port = 0
        self.is_on = False
        """Whether some are refused."""
        self.refused = 0
        self._target_port = target_port
        self._chance = Random(1)  # noqa: S311 (no secret)
        self._share = share
        self._is_done = is_done
        self._writers: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection of a client to its end."""
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._target_port)
        ends = {writer, to_server}
        self._writers |= ends
        done_in_vain: set[int] = set()

        async def ask() -> None:
            while True:
                message, request_id, _ = await _message(reader)
                if not self._is_refused(message):
                    to_server.write(message)
                elif self._is_done:
                    done_in_vain.add(request_id)
                    to_server.write(message)
                else:
                    writer.write(_refusal(NOT_PRIMARY, request_id))

        async def answer() -> None:
            while True:
                message, _, response_to = await _message(from_server)
                is_in_vain = response_to in done_in_vain
                writer.write(_refusal(INTERRUPTED, response_to) if is_in_vain else message)

        with suppress(asyncio.IncompleteReadError, OSError):
            await asyncio.gather(ask(), answer())
        for each in ends:
            each.transport.abort()
        self._writers -= ends

    def close(self) -> None:
        """Cut every connection."""
        for each in self._writers:
            each.transport.abort()

    def _is_refused(self, message: bytes) -> bool:
        if not self.is_on or next(iter(_document(message))) not in WRITES:
            return False
        is_refused = self._chance.random() < self._share
        self.refused += is_refused
        return is_refused


@asynccontextmanager
async def stepping_down(
    target_port: int, share: float, *, is_done: bool
) -> AsyncGenerator[SteppingDown]:
    """Run one in front of a server."""
    primary = SteppingDown(target_port, share, is_done=is_done)
    server = await asyncio.start_server(primary.serve, "127.0.0.1", 0)
    primary.port = server.sockets[0].getsockname()[1]
    try:
        yield primary
    finally:
        server.close()
        primary.close()
        await server.wait_closed()


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, int, int]:
    """Return a message with its request id and what it answers."""
    header = await reader.readexactly(HEADER.size)
    length, request_id, response_to, _ = HEADER.unpack(header)
    return header + await reader.readexactly(length - HEADER.size), request_id, response_to


def _document(message: bytes) -> dict[str, Any]:
    """Return the command of a message; an older handshake has none."""
    *_, opcode = HEADER.unpack_from(message)
    if opcode != OP_MSG:
        return {"": None}
    size = struct.unpack_from("<i", message, BODY_AT)[0]
    return cast("dict[str, Any]", cast("Any", bson).decode(message[BODY_AT : BODY_AT + size]))


def _refusal(code: tuple[int, str], request_id: int) -> bytes:
    number, name = code
    labels = ["RetryableWriteError"]
    document = {"ok": 0, "code": number, "codeName": name, "errmsg": name, "errorLabels": labels}
    body = bytes(5) + bson.encode(document)
    return HEADER.pack(HEADER.size + len(body), 0, request_id, OP_MSG) + body
