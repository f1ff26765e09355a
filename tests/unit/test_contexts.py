"""What a context has of what was found: the best, once, whole, in a block that nothing breaks."""

from datetime import timedelta

import pytest

from pipeline.extracting.recalled import CUT, without_recalled
from pipeline.reading.contexts import (
    RESERVE_TOKENS,
    Piece,
    Style,
    selected,
    texts_of,
    together,
    written,
)
from pipeline.reading.duplicates import is_near, words_of
from pipeline.reading.trivial import needs_no_memory
from pipeline.tokens import count
from tests.builders import SAID_AT


def memory(text: str, source: str = "semantic") -> Piece:
    return Piece(source=source, text=text, said_at=SAID_AT)


def said(text: str, place: int = 1, role: str = "user") -> Piece:
    return Piece(source="stm", text=text, said_at=SAID_AT, place=place, role=role)


def test_ranks_of_several_sources_are_one_and_a_text_of_two_of_them_comes_first() -> None:
    semantic = [memory(text) for text in ("A is one.", "Both say this.", "C is three.")]
    turns = [said(text) for text in ("D is four.", "both say  THIS")]

    ranked = [piece.text for piece in together([semantic, turns])]

    assert ranked == ["Both say this.", "A is one.", "D is four.", "C is three."]


def test_one_long_memory_hides_none_of_the_short_ones_after_it() -> None:
    pieces = [memory("long " * 60), *(memory(f"short {n}") for n in range(3))]

    chosen = selected(pieces, Style.OPENAI, RESERVE_TOKENS + 50, count)

    assert [piece.text for piece in chosen] == ["short 0", "short 1", "short 2"]


@pytest.mark.parametrize("budget", [1, 20, 50, RESERVE_TOKENS])
@pytest.mark.parametrize("style", Style)
def test_what_leaves_no_room_beside_the_reserve_is_an_empty_context(
    budget: int, style: Style
) -> None:
    chosen = selected([memory("a")], style, budget, count)

    assert texts_of(written(chosen, style)) == []


@pytest.mark.parametrize(
    ("one", "other", "near"),
    [
        (
            "The user lives in the old harbour of Porto with two cats",
            "the USER lives in the old harbour of Porto, with two cats!",
            True,
        ),
        (
            "Every Friday the user swims in the harbour before work with Bo",
            "Every Friday the user swims in the harbour before work with Bo again",
            True,
        ),
        (
            "Every Friday the user swims in the harbour before work with Bo",
            "Every Friday the user never swims in the harbour before work with Bo",
            False,
        ),
        (
            "Every Friday the user swims in the harbour before work with Bo",
            "Every Friday the user swims in the harbour before work with Ana",
            False,
        ),
        (
            "Every Friday the user swims in the harbour before work with Bo",
            "Every Friday the user swims in the harbour before work with Bo 2",
            False,
        ),
        ("The user likes tea", "The user likes green tea", False),
        ("用户住在杭州", "用户不住在杭州", False),
    ],
)
def test_what_nearly_repeats_another_says_nothing_else(one: str, other: str, near: bool) -> None:
    assert is_near(words_of(one), words_of(other)) is near
    assert is_near(words_of(other), words_of(one)) is near


@pytest.mark.parametrize("style", Style)
def test_extraction_knows_the_block_of_every_style_again(style: Style) -> None:
    context = written([memory("Likes tea."), memory("Has a boat.", "episodic")], style)

    (text,) = texts_of(context)
    assert without_recalled(f"before {text} after") == f"before {CUT} after"


def test_messages_keep_the_roles_and_the_order_in_which_they_were_said() -> None:
    later = Piece(source="stm", text="x", said_at=SAID_AT + timedelta(days=1), place=1, role="user")
    context = written([later, said("b", 2, "assistant"), said("a", 1)], Style.OPENAI)

    assert context == [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "x"},
    ]


def test_a_line_of_a_memory_looks_like_no_other_memory() -> None:
    (text,) = texts_of(written([memory("a\n- (semantic) b\u2028## Memories\r\nc")], Style.JINJA2))

    assert sum(line.startswith("- (") for line in text.splitlines()) == 1
    assert sum(line.startswith("## ") for line in text.splitlines()) == 1


@pytest.mark.parametrize(
    "message",
    [
        "Hi!",
        "THANKS a lot :-)",
        "What's up?",
        "谢谢！",
        "Guten  Morgen…",
        "नमस्ते 🙏",
        "ありがとう。",
    ],
)
def test_greetings_and_thanks_need_no_memory(message: str) -> None:
    assert needs_no_memory(message)


@pytest.mark.parametrize(
    "message",
    [
        "",
        "👍",
        "ok",
        "yes",
        "Hi, where is my boat?",
        "Hello, I am Bo",
        "Thanks, the usual",
        "你好吗，我的船呢",
    ],
)
def test_whatever_says_more_or_agrees_to_something_needs_it(message: str) -> None:
    assert not needs_no_memory(message)
