"""Apache Kafka 4 on this machine without Docker: one broker, or a cluster that may lose some.

Every node is broker and controller. Clients have a listener of their own, so that a proxy on the
advertised port cuts clients off and never the brokers from each other.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from compose.answers import kafka_answers
from compose.data_lock import data_lock
from compose.errors import PortTakenError
from compose.kafka_libraries import kafka_java
from compose.processes import Program, Service, free_ports, run_to_end

LOGGING: Final = Path(__file__).with_name("kafka-log4j2.properties")
# One id for all: clusters are told apart by their data directories.
CLUSTER_ID: Final = "afterturn-real-kafka-A"
# The quick compiler only: a broker starts in two thirds of the time.
JAVA_OPTIONS: Final = (
    *("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    f"-Dlog4j2.configurationFile={LOGGING}",
)
FORMAT_TIMEOUT: Final = timedelta(minutes=2)
START_TIMEOUT: Final = timedelta(minutes=2)
STOP_TIMEOUT: Final = timedelta(seconds=30)
PORT_TRIES: Final = 5


class Broker(Service):
    """One broker; its storage is formatted before its first start."""

    def __init__(self, index: int, port: int, folder: Path, java: Sequence[str], lock: int) -> None:
        properties = str(folder / "server.properties")
        super().__init__(
            Program(
                name=f"Kafka broker {index}",
                command=(*java, *JAVA_OPTIONS, "kafka.Kafka", properties),
                log_file=folder / "broker.log",
                stop_timeout=STOP_TIMEOUT,
                held_files=(lock,),
            ),
            port=port,
            ping=lambda: kafka_answers(f"127.0.0.1:{port}", node=index),
            start_timeout=START_TIMEOUT,
        )
        self._formatting = Program(
            name=f"storage tool of Kafka broker {index}",
            command=(
                *(*java, *JAVA_OPTIONS, "kafka.tools.StorageTool", "format"),
                *("--ignore-formatted", "--cluster-id", CLUSTER_ID, "--config", properties),
            ),
            log_file=folder / "format.log",
        )
        self._formatted = folder / "data" / "meta.properties"

    async def start(self) -> None:
        """Format the storage where it is new, start, and wait until the broker serves."""
        if not await asyncio.to_thread(self._formatted.exists):
            await run_to_end(self._formatting, timeout=FORMAT_TIMEOUT)
        await super().start()


class KafkaCluster:
    """Brokers that can be stopped, killed and started again; a broker's id is its index, from 0."""

    def __init__(self, brokers: Sequence[Broker], advertised_ports: Sequence[int]) -> None:
        self.brokers = tuple(brokers)
        self.bootstrap_servers = ",".join(f"127.0.0.1:{port}" for port in advertised_ports)
        """What a client is given: the advertised address of every broker."""

    async def start(self, broker: int) -> None:
        """Start a broker and wait until it serves; one that runs stays as it is."""
        await self.brokers[broker].start()

    async def stop(self, broker: int) -> None:
        """End a broker in order: what it leads, another takes over where there is one."""
        await self.brokers[broker].stop()

    async def kill(self, broker: int) -> None:
        """End a broker by SIGKILL, as a crash would."""
        await self.brokers[broker].kill()

    async def open(self) -> None:
        """Start every broker; none is left running where one fails."""
        starts = [asyncio.ensure_future(broker.start()) for broker in self.brokers]
        try:
            await asyncio.gather(*starts)
        except BaseException:  # a cancellation too must leave no broker behind; raised again
            for start in starts:
                start.cancel()
            await asyncio.wait(starts)
            await self.close()
            raise

    async def close(self) -> None:
        """End every broker."""
        await asyncio.gather(*(broker.stop() for broker in self.brokers))


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Where one broker listens."""

    client_port: int
    """For clients."""
    advertised_port: int
    """What clients are told: `client_port`, or a proxy in front of it."""
    internal_port: int
    """For the other brokers."""
    controller_port: int
    """For the quorum of controllers."""


@asynccontextmanager
async def real_kafka(
    data_dir: Path,
    *,
    brokers: int = 1,
    min_insync_replicas: int | None = None,
    ports: Sequence[int] | None = None,
    advertised_ports: Sequence[int] | None = None,
) -> AsyncGenerator[KafkaCluster]:
    """Run Apache Kafka in a data directory that nobody else may use meanwhile.

    Args:
        data_dir: Created where needed; what it holds is served again, by as many brokers.
        brokers: How many; topics have a replica on each unless they say otherwise.
        min_insync_replicas: How many replicas `acks=all` waits for; by default a majority.
        ports: Where the brokers listen for clients; free ports by default.
        advertised_ports: Where clients are sent instead, for proxies in front of `ports`.

    Raises:
        MissingProgramError: Java or Maven is missing; see `unavailable_reason`.
        DownloadError: Kafka could not be fetched.
        DataDirectoryBusyError: Another live process holds the directory.
        ServiceError: A broker did not start; see `Service.start`.
    """
    java = await kafka_java()
    async with data_lock(data_dir) as lock:
        cluster = await _started(
            lambda: _cluster(
                data_dir,
                nodes=_nodes(brokers, ports, advertised_ports),
                min_insync_replicas=min_insync_replicas or brokers // 2 + 1,
                java=java,
                lock=lock,
            ),
            tries=PORT_TRIES if ports is None else 1,
        )
        try:
            yield cluster
        finally:
            await cluster.close()


async def _started(build: Callable[[], KafkaCluster], *, tries: int) -> KafkaCluster:
    for tries_left in reversed(range(tries)):
        cluster = await asyncio.to_thread(build)
        try:
            await cluster.open()
        except PortTakenError:
            if tries_left == 0:
                raise
        else:
            return cluster
    raise AssertionError("unreachable")


def _nodes(
    count: int, ports: Sequence[int] | None, advertised_ports: Sequence[int] | None
) -> list[Node]:
    free = free_ports(3 * count)
    clients = ports or free[:count]
    return [
        Node(client_port=client, advertised_port=advertised, internal_port=i, controller_port=c)
        for client, advertised, i, c in zip(
            clients,
            advertised_ports or clients,
            free[count : 2 * count],
            free[2 * count :],
            strict=True,
        )
    ]


def _cluster(
    data_dir: Path,
    *,
    nodes: Sequence[Node],
    min_insync_replicas: int,
    java: Sequence[str],
    lock: int,
) -> KafkaCluster:
    brokers = list[Broker]()
    for index, node in enumerate(nodes):
        folder = data_dir / f"broker-{index}"
        folder.mkdir(exist_ok=True)
        properties = folder / "server.properties"
        properties.write_text(
            configuration(
                index, nodes, log_dir=folder / "data", min_insync_replicas=min_insync_replicas
            )
        )
        brokers.append(Broker(index, node.client_port, folder, java, lock))
    return KafkaCluster(brokers, [node.advertised_port for node in nodes])


def configuration(
    index: int, nodes: Sequence[Node], *, log_dir: Path, min_insync_replicas: int
) -> str:
    """Return a broker's `server.properties`."""
    node, count = nodes[index], len(nodes)
    voters = ",".join(f"{i}@127.0.0.1:{n.controller_port}" for i, n in enumerate(nodes))
    advertised = {"CLIENT": node.advertised_port, "INTERNAL": node.internal_port}
    listening = {
        "CLIENT": node.client_port,
        "INTERNAL": node.internal_port,
        "CONTROLLER": node.controller_port,
    }
    properties: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": index,
        "controller.quorum.voters": voters,
        "listeners": _addresses(listening),
        "advertised.listeners": _addresses(advertised),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in listening),
        "inter.broker.listener.name": "INTERNAL",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": log_dir,
        "auto.create.topics.enable": "false",
        "num.partitions": 1,
        "default.replication.factor": count,
        "min.insync.replicas": min_insync_replicas,
        "offsets.topic.replication.factor": count,
        "offsets.topic.num.partitions": 8,
        "transaction.state.log.replication.factor": count,
        "transaction.state.log.min.isr": min_insync_replicas,
        "transaction.state.log.num.partitions": 8,
        "share.coordinator.state.topic.replication.factor": count,
        "share.coordinator.state.topic.min.isr": min_insync_replicas,
        "group.initial.rebalance.delay.ms": 0,
        # A killed broker is found out in seconds, as tests wait for it.
        "broker.heartbeat.interval.ms": 500,
        "broker.session.timeout.ms": 3_000,
        # The default of 128 MiB does not fit the heap.
        "log.cleaner.dedupe.buffer.size": 4 * 1024 * 1024,
    }
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def _addresses(ports: dict[str, int]) -> str:
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
