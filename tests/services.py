"""The services that tests ask for, each started once in a session and from no test's event loop."""

import asyncio
import os
import threading
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import NoReturn, TypeVar

import pytest

from compose.embedded import embedded_kafka, embedded_mongo
from compose.errors import DownloadError, MissingProgramError
from compose.kafka_libraries import kafka_java
from compose.real_kafka import real_kafka

T = TypeVar("T")


@pytest.fixture(scope="session")
def mongo_uri(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """A MongoDB: the one that AFTERTURN_TEST_MONGO_URI names, else the embedded one."""
    given = os.environ.get("AFTERTURN_TEST_MONGO_URI")
    if given:
        yield given
        return
    with held(embedded_mongo(tmp_path_factory.mktemp("mongo"), sync_on_commit=False)) as mongo:
        yield mongo.uri


@pytest.fixture(scope="session")
def bootstrap_servers(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The embedded Kafka, which is right only for groups of members with static ids."""
    with held(embedded_kafka(tmp_path_factory.mktemp("kafka"))) as kafka:
        yield kafka.bootstrap_servers


@pytest.fixture(scope="session")
def real_kafka_servers(
    tmp_path_factory: pytest.TempPathFactory, real_kafka_available: None
) -> Generator[str]:
    """Real Apache Kafka, one broker."""
    with held(real_kafka(tmp_path_factory.mktemp("real-kafka"))) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture(scope="session")
def real_kafka_available() -> None:
    """Skip where real Kafka cannot be had, fail there in CI; for tests that run `real_kafka`."""
    try:
        with ThreadPoolExecutor() as pool:
            pool.submit(asyncio.run, kafka_java()).result()
    except (MissingProgramError, DownloadError) as error:
        unavailable(str(error))


def unavailable(reason: str) -> NoReturn:
    """Skip the test for want of a service; fail it in CI."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def held(context: AbstractAsyncContextManager[T]) -> Generator[T]:
    """Hold an asynchronous context open from a thread of its own."""
    entered: Future[T] = Future()
    leave = threading.Event()

    async def hold() -> None:
        async with context as value:
            entered.set_result(value)
            await asyncio.to_thread(leave.wait)

    def run() -> None:
        try:
            asyncio.run(hold())
        except BaseException as error:
            if entered.done():
                raise
            entered.set_exception(error)

    thread = threading.Thread(target=run, name="services")
    thread.start()
    try:
        yield entered.result()
    finally:
        leave.set()
        thread.join()
