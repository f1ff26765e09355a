"""A TCP proxy on loopback that breaks connections on demand, between clients and a real server."""

import asyncio
import math
import socket
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

READ_BYTES = 65_536
ARRIVING_SECONDS = 1.0
"""How long an answer that was forwarded may wait for a busy client, which loses it by a reset."""
# SO_LINGER of zero seconds: closing sends a reset instead of an orderly end.
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Proxy:
    """Forwards its port to a port of 127.0.0.1, until told otherwise.

    `refuse` and `cut` together are a server that is gone, `stall` is one that hangs.
    """

    def __init__(self, target_port: int, *, readdresses: bool = False) -> None:
        self.target_port = target_port
        """Where new connections go."""
        self.port = 0
        """Where clients connect."""
        self.accepted = 0
        """How many connections were forwarded so far, or will be after `resume`."""
        self.lost = 0
        """How many answers were lost."""
        self.cut_asking = 0
        """How many connections were cut while they were `asking`."""
        self._readdresses = readdresses
        self._lose_every: int | None = None
        self._answers = 0
        self._refusing = False
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._writers_by_task = dict[asyncio.Task[Any], list[asyncio.StreamWriter]]()
        self._asks_until_by_task = dict[asyncio.Task[Any], float]()

    @property
    def connections(self) -> int:
        """How many connections clients have open."""
        return len(self._writers_by_task)

    @property
    def asking(self) -> int:
        """How many connections wait for an answer, or had one just now that may not be read yet."""
        now = asyncio.get_running_loop().time()
        return sum(until > now for until in self._asks_until_by_task.values())

    def refuse(self) -> None:
        """Reset every new connection; existing ones stay."""
        self._refusing = True

    def cut(self) -> None:
        """Reset every existing connection; new ones are forwarded."""
        self.cut_asking += self.asking
        self._asks_until_by_task.clear()
        for task, writers in self._writers_by_task.items():
            for writer in writers:
                _reset(writer)
            task.cancel()

    def lose_answers(self, *, every: int | None) -> None:
        """Reset a connection instead of forwarding every so manieth answer; none: lose none.

        The server has done what it was asked, and the client can't know.
        """
        self._lose_every = every

    def stall(self) -> None:
        """Forward nothing any more; connections are accepted and kept."""
        self._flowing.clear()

    def resume(self) -> None:
        """Forward again, first what was held back: nothing of it is lost or reordered."""
        self._refusing = False
        self._flowing.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection of a client to its end."""
        if self._refusing:
            _reset(writer)
            return
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a connection is served by a task of its own")
        self.accepted += 1
        writers = self._writers_by_task[task] = [writer]
        try:
            await self._flowing.wait()
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
            writers.append(to_writer)
            await asyncio.gather(
                self._pump(reader, to_writer, task),
                self._pump(to_reader, writer, task, is_answer=True),
            )
        except OSError:
            pass  # either side is gone, so the other is let go
        except asyncio.CancelledError:
            # `cut`: the connection is over, and a cancelled stream callback would only be reported
            # as an error by the loop.
            pass
        finally:
            del self._writers_by_task[task]
            self._asks_until_by_task.pop(task, None)
            for each in writers:
                _reset(each)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        connection: asyncio.Task[Any],
        *,
        is_answer: bool = False,
    ) -> None:
        now = asyncio.get_running_loop().time
        while data := await reader.read(READ_BYTES):
            await self._flowing.wait()
            if is_answer:
                self._lose_if_due()
            until = now() + ARRIVING_SECONDS if is_answer else math.inf
            self._asks_until_by_task[connection] = until
            writer.write(self._readdressed(data) if is_answer and self._readdresses else data)
            await writer.drain()
        await self._flowing.wait()
        writer.write_eof()

    def _readdressed(self, data: bytes) -> bytes:
        return data.replace(_kafka_address(self.target_port), _kafka_address(self.port))

    def _lose_if_due(self) -> None:
        self._answers += 1
        if self._lose_every is not None and self._answers % self._lose_every == 0:
            self.lost += 1
            raise ConnectionResetError


@asynccontextmanager
async def proxy_to(target_port: int, *, readdresses: bool = False) -> AsyncGenerator[Proxy]:
    """Run a proxy in front of a port, which need not be open yet.

    Args:
        target_port: Where it forwards to.
        readdresses: Whether a broker's answers that name its own address name the proxy's instead:
            for the embedded one, which can't advertise any other.
    """
    proxy = Proxy(target_port, readdresses=readdresses)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut()
        await server.wait_closed()


def _kafka_address(port: int) -> bytes:
    """Return an address on loopback as Kafka's protocol writes it: host, then port."""
    return b"127.0.0.1" + struct.pack(">i", port)


def _reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    writer.transport.abort()
