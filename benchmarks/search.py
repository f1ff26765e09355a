"""`bench search`: a hybrid search in memory, beside a bare product and bm25s over the same."""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from resource import getpagesize
from typing import Any, Final

import bm25s
import numpy as np

from benchmarks.figures import Figure, latencies
from consumers.wiring import Installation
from pipeline.reading.index import Entry, Mode, ScopeIndex, Vector

SIZES: Final = (10_000, 100_000)
DIMENSION: Final = 384
QUESTIONS: Final = 100
WORDS: Final = 20_000
WORDS_A_TEXT: Final = 20
WORDS_A_QUESTION: Final = 8
TURNS_A_THREAD: Final = 50
LIMIT: Final = 10
_MIB: Final = 2**20
_bm25s: Any = bm25s


async def run(parts: Installation, progress: Callable[[str], None]) -> list[Figure]:
    """Return p50 and p99 of warm searches in scopes of each size, and what one holds and costs.

    Words are as common as words are (Zipf's law), vectors are random; both sides take turns.
    """
    _ = parts  # What is in memory asks no server.
    figures: list[Figure] = []
    for size in SIZES:
        progress(f"{size:,} entries")
        figures += _measured(size)
    return figures


def _measured(size: int) -> list[Figure]:
    random = np.random.default_rng(size)
    texts = _texts(random, size, WORDS_A_TEXT)
    vectors = random.normal(size=(size, DIMENSION)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    questions = _texts(random, QUESTIONS, WORDS_A_QUESTION)
    asked = list(
        zip(questions, random.normal(size=(QUESTIONS, DIMENSION)).astype(np.float32), strict=True)
    )
    library: Any = _bm25s.BM25()
    library.index([text.split() for text in texts], show_progress=False)

    before, began = _resident(), time.perf_counter()
    index = _index_of(texts, vectors)
    filled, held = time.perf_counter() - began, _resident() - before

    def ours(query: str, vector: Vector) -> object:
        return index.search(query, vector, Mode.HYBRID, LIMIT)

    def bare(query: str, vector: Vector) -> object:
        return library.get_scores(query.split()), vectors @ vector

    ours(*asked[0])
    bare(*asked[0])
    our_times: list[float] = []
    bare_times: list[float] = []
    for query, vector in asked:
        our_times.append(_timed(ours, query, vector))
        bare_times.append(_timed(bare, query, vector))
    name = f"search, {size:,} entries,"
    return [
        *latencies(name, our_times, bare_times, {50: "≤ 3", 99: "–"}),
        Figure(
            name=f"{name} in memory beside the vectors alone",
            ours=held / _MIB,
            yardstick=vectors.nbytes / _MIB,
            unit="MiB",
            goal="–",
        ),
        Figure(
            name=f"{name} one put",
            ours=filled / size * 1e6,
            yardstick=None,
            unit="µs",
            goal="–",
        ),
    ]


def _index_of(texts: Sequence[str], vectors: Vector) -> ScopeIndex:
    index = ScopeIndex()
    began = datetime(2024, 1, 1, tzinfo=UTC)
    for number, (text, vector) in enumerate(zip(texts, vectors, strict=True)):
        index.put(
            Entry(
                key=f"mem_{number:032x}",
                text=text,
                said_at=began + timedelta(minutes=number),
                vector=vector,
                thread=f"talk {number // TURNS_A_THREAD}",
                place=number,
            )
        )
    return index


def _texts(random: np.random.Generator, count: int, words: int) -> list[str]:
    shares = 1 / np.arange(1, WORDS + 1)
    vocabulary = [_word(number) for number in range(WORDS)]
    drawn = random.choice(WORDS, (count, words), p=shares / shares.sum())
    return [" ".join(vocabulary[int(word)] for word in text) for text in drawn]


def _word(number: int) -> str:
    """Return a word of its own for each number, in letters."""
    letters = ""
    while number or not letters:
        number, letter = divmod(number, 26)
        letters += chr(ord("a") + letter)
    return letters


def _timed(search: Callable[[str, Vector], object], query: str, vector: Vector) -> float:
    began = time.perf_counter()
    search(query, vector)
    return time.perf_counter() - began


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * getpagesize()
