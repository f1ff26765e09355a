"""Lengths in tokens: exact, offline, and not on the event loop when they take long."""

import asyncio
import threading

import pytest

from pipeline import tokens


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("hello world", 2), ("<|endoftext|>", 7), ("\x00", 1), ("你好，世界", 3)],
)
def test_tokens_are_those_of_o200k(text: str, expected: int) -> None:
    assert tokens.count((text,)) == expected
    assert tokens.count((text, text)) == 2 * expected


async def test_a_text_is_as_long_wherever_it_is_counted() -> None:
    text = "Ich wohne in Porto. 我住在波尔图。 <|endoftext|>\x00 👩‍👩‍👧 " * 400

    assert len(text) <= tokens.INLINE_CHARACTERS
    assert await tokens.count_aside([text] * 8) == 8 * tokens.count([text])


async def test_a_large_text_is_counted_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    counted_in: list[int] = []

    def batch_count(texts: list[str], *_args: object) -> list[int]:
        counted_in.append(threading.get_ident())
        return [1] * len(texts)

    monkeypatch.setattr("pipeline.tokens.toktok.batch_count", batch_count)
    assert await tokens.count_aside(["short"]) == 1
    assert await tokens.count_aside(["x" * (tokens.INLINE_CHARACTERS + 1)]) == 1

    assert len(counted_in) == 1
    assert counted_in[0] != threading.get_ident()


async def test_two_megabytes_hold_up_nobody_else() -> None:
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(0)
            longest = max(longest, loop.time() - before)

    ticking = asyncio.create_task(tick())
    await tokens.count_aside(["word " * 400_000])
    ticking.cancel()

    assert longest < 0.25
