"""The server as a part of a process, whatever it serves."""

import os
import socket
import stat
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from api.server import HttpApp
from pipeline.settings import HttpSettings


def option_of_connection(peer: tuple[str, int], option: int) -> int | None:
    """Return a TCP option of this process's end of a connection, or none if it has no such end."""
    for entry in Path("/dev/fd").iterdir():
        with suppress(OSError):
            descriptor = os.dup(int(entry.name))
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                continue
            with socket.socket(fileno=descriptor) as end:
                if end.getpeername() == peer:
                    return end.getsockopt(socket.IPPROTO_TCP, option)
    return None


async def test_an_answer_in_two_packets_is_not_held_back_for_the_first_ones_receipt() -> None:
    """Nagle's delay and a delayed receipt together make 40 ms of every answer."""

    async def tell(scope: Scope, receive: Receive, send: Send) -> None:
        option = option_of_connection(scope["client"], socket.TCP_NODELAY)
        await JSONResponse({"nodelay": option})(scope, receive, send)

    app = HttpApp(tell, HttpSettings(port=0), stop_within=timedelta(seconds=5))
    await app.start()
    try:
        async with httpx.AsyncClient(timeout=30) as client:
            told: dict[str, Any] = (await client.get(app.address)).json()
    finally:
        await app.stop()

    assert told["nodelay"] not in (0, None)
