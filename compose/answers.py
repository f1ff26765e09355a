"""Whether a server answers in its own protocol, as a condition to wait for."""

from typing import Any

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError
from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError


async def mongo_answers(uri: str) -> bool:
    """Return whether MongoDB answers a ping."""
    client = AsyncMongoClient[dict[str, Any]](uri, serverSelectionTimeoutMS=1_000)
    try:
        await client.admin.command("ping")
    except PyMongoError:
        return False
    finally:
        await client.close()
    return True


async def kafka_answers(bootstrap_server: str, *, node: int | None = None) -> bool:
    """Return whether a Kafka broker answers a metadata request.

    Args:
        bootstrap_server: The broker that is asked.
        node: A broker that its answer must name; one that is still fenced is not named.
    """
    client: Any = AIOKafkaClient(bootstrap_servers=bootstrap_server, request_timeout_ms=2_000)
    try:
        await client.bootstrap()
        nodes = {broker.nodeId for broker in client.cluster.brokers()}
    except KafkaError:
        return False
    finally:
        await client.close()
    return bool(nodes) if node is None else node in nodes
