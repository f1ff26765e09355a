"""Connections that the library forgets when its first talk with a broker is cut short.

`AIOKafkaClient.bootstrap` closes what it opened when the broker answers badly, but not when it is
cancelled: the connection stays open until the garbage of the process is collected.
"""

from collections.abc import Generator
from contextlib import contextmanager
from traceback import walk_tb
from typing import Any, cast

from aiokafka.conn import AIOKafkaConnection


@contextmanager
def closing_half_open() -> Generator[None]:
    """Close the connection that a bootstrap in the block had open when it was cut; raise on."""
    try:
        yield
    except BaseException as error:
        for frame, _ in walk_tb(error.__traceback__):
            connection = frame.f_locals.get("bootstrap_conn")
            if isinstance(connection, AIOKafkaConnection):
                cast("Any", connection).close()
        raise
