"""Long texts are worked on while everything else goes on."""

import threading
import time

import pytest

from pipeline.extracting.judging import judge
from pipeline.ids import OpaqueIds
from pipeline.offloading import LARGE, apart
from schemas.extraction import Reply
from schemas.memory import Kind
from tests.builders import SAID_AT, SNAPSHOT, snapshot, turn
from tests.ticking import largest_gap

TWO_MEGABYTES = 2_000_000
KNOWN = 2_000


def long_judgement(text: str) -> object:
    """Judge items that quote a long turn full of secrets."""
    items = [
        {
            "attribute": "preference:drink",
            "label": "tea",
            "text": f"The user likes tea number {number}.",
            "evidence": [1],
            "quote": "I like tea",
        }
        for number in range(50)
    ]
    return judge(
        part=0,
        reply=Reply(
            answer={"semantic": items},
            model="m",
            finish_reason=None,
            request_id=None,
            calls=1,
            prompt_tokens=None,
            completion_tokens=None,
            answered_at=SAID_AT,
        ),
        kinds=tuple(Kind),
        turns=[turn(1, text)],
        snapshot=snapshot(1, 1),
        extraction_id=f"{SNAPSHOT}:0",
        version=None,
        ids=OpaqueIds(b"k" * 32),
    )


SECRETS = " ".join(f"password: s3cret-{place:05}" for place in range(KNOWN))


@pytest.mark.parametrize("filler", ["I like tea. ", "a", "我喜欢喝茶"])
async def test_the_loop_goes_on_while_a_long_turn_is_judged(filler: str) -> None:
    """No stretch of it takes the loop for itself, whatever the whole of it takes."""
    text = f"I like tea. {SECRETS} " + filler * (TWO_MEGABYTES // len(filler))
    started = time.perf_counter()

    gap = await largest_gap(apart([turn(1, text)], lambda: long_judgement(text)))

    took = time.perf_counter() - started
    assert gap < max(1.0, took / 2)


@pytest.mark.parametrize("length", [LARGE - 1, LARGE])
async def test_only_long_texts_are_worth_a_thread(length: int) -> None:
    """Short ones are worked on at once."""
    thread = await apart([turn(1, "x" * length)], threading.current_thread)

    assert (thread is threading.main_thread()) == (length < LARGE)
