"""What a model is shown: turns as data, one line each, and nothing that could end their block."""

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.extracting import prompting
from pipeline.extracting.recalled import CLOSING, CUT, OPENING, without_recalled
from pipeline.extracting.redaction import MARK
from pipeline.ports.model import ModelRequest
from schemas.memory import Kind
from schemas.turn import Role, ToolCall, Turn
from tests.builders import SAID_AT, turn


def request(*turns: Turn, context: tuple[Turn, ...] = (), **fields: Any) -> ModelRequest:
    """Return a request for all kinds."""
    defaults: dict[str, Any] = {"kinds": tuple(Kind), "max_tokens": None}
    return ModelRequest(turns=turns, context=context, **defaults | fields)


def blocks(asked: ModelRequest) -> dict[str, list[dict[str, Any]]]:
    """Return the objects in each block, read as a model's server would."""
    _, user = prompting.messages(asked)
    lines = user["content"].split("\n")
    middle = lines.index("</context>")
    assert (lines[0], lines[middle + 1], lines[-1]) == ("<context>", "<turns>", "</turns>")
    return {
        "context": [json.loads(line) for line in lines[1:middle]],
        "turns": [json.loads(line) for line in lines[middle + 2 : -1]],
    }


def shown(one: Turn) -> str:
    """Return what a model sees of a turn's text."""
    return blocks(request(one))["turns"][0]["content"]


def test_a_turn_is_a_line_of_json() -> None:
    """Its number, who spoke, when, and what was said."""
    asked = request(turn(3, "Hi"), turn(4, "Hello", role=Role.ASSISTANT), context=(turn(2, "Yo"),))

    assert blocks(asked) == {
        "context": [{"seq": 2, "role": "user", "at": "2026-03-01T10:02:00+00:00", "content": "Yo"}],
        "turns": [
            {"seq": 3, "role": "user", "at": "2026-03-01T10:03:00+00:00", "content": "Hi"},
            {"seq": 4, "role": "assistant", "at": "2026-03-01T10:04:00+00:00", "content": "Hello"},
        ],
    }


def test_dates_are_resolved_against_the_effective_time() -> None:
    late = turn(1, "tomorrow", effective_at=SAID_AT, recorded_at=SAID_AT + timedelta(days=9999))

    assert blocks(request(late))["turns"][0]["at"] == "2026-03-01T10:00:00+00:00"


@given(st.lists(st.text(min_size=1) | st.sampled_from(["</turns>", "<context>", "\u2028{"])))
def test_no_words_leave_their_line(texts: list[str]) -> None:
    """Whatever is said, there are as many objects as turns, in their blocks."""
    turns = tuple(turn(seq, text) for seq, text in enumerate(texts, start=1))
    _, user = prompting.messages(request(*turns))

    assert [line["seq"] for line in blocks(request(*turns))["turns"]] == [one.seq for one in turns]
    assert user["content"].count("<") == 4
    assert len(user["content"].splitlines()) == len(turns) + 4


def test_what_makes_no_memory_is_not_shown_in_full() -> None:
    """System prompts not at all, tool output in part, tool calls by name."""
    call = ToolCall(id="1", name="get_weather", arguments={"city": "Porto"})

    assert shown(turn(1, "You are Acme's bot.", role=Role.SYSTEM)) == prompting.LEFT_OUT
    assert shown(turn(1, "x" * 9000, role=Role.TOOL)) == "x" * 300 + " " + prompting.LEFT_OUT
    assert shown(turn(1, "", role=Role.ASSISTANT, tool_calls=(call,))) == "[called get_weather]"


def test_neither_secrets_nor_recalled_memory_are_shown() -> None:
    """A model can't repeat what it does not see."""
    said = f"{OPENING} at='x'>\nThe user lives in Rome.\n{CLOSING}\nmy password is hunter2"

    assert shown(turn(1, said)) == f"{CUT}\nmy password is {MARK}"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a", "a"),
        (f"a {OPENING}>b{CLOSING} c", f"a {CUT} c"),
        (f"a {OPENING}>b", f"a {CUT}"),
        (f"a {OPENING}>b{OPENING}>c{CLOSING}d{CLOSING}e", f"a {CUT}e"),
        (f"a {OPENING.upper()}>b{CLOSING.upper()}c", f"a {CUT}c"),
        (f"a {CLOSING} b", "a  b"),
        ("<afterturn-memory-game> is fun", "<afterturn-memory-game> is fun"),
    ],
)
def test_recalled_memory_is_cut_out(text: str, left: str) -> None:
    """Blocks may nest, be left open, or be closed twice."""
    assert without_recalled(text) == left


def test_only_the_wanted_kinds_are_asked_for() -> None:
    """All of them need no word."""
    assert "Wanted now" not in prompting.messages(request(turn(1)))[0]["content"]
    asked = request(turn(1), kinds=(Kind.TAXONOMIC, Kind.SEMANTIC))

    assert "Only: semantic, taxonomic." in prompting.messages(asked)[0]["content"]


def test_the_instructions_hold_the_vocabulary_and_every_kind() -> None:
    """And no placeholder is left."""
    text = prompting.instructions()

    assert "preference:*" in text
    assert "{{" not in text
    for word in (*Kind, "adds", "replaces", "corrects", "ended", "past", prompting.TOOL_NAME):
        assert word in text
    assert CUT in text
    assert MARK in text
    assert prompting.LEFT_OUT in text


def test_a_version_is_of_everything_that_shapes_an_answer() -> None:
    """The same ingredients make the same version; any other makes another."""
    version = prompting.extractor_version(model="m", parameters={"temperature": 0.0})

    assert version == prompting.extractor_version(model="m", parameters={"temperature": 0.0})
    assert version != prompting.extractor_version(model="n", parameters={"temperature": 0.0})
    assert version != prompting.extractor_version(model="m", parameters={"temperature": 0.1})


def test_a_version_changes_with_the_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A letter is enough."""
    before = prompting.extractor_version(model="m", parameters={})
    changed = prompting.instructions() + "."
    monkeypatch.setattr(prompting, "instructions", lambda: changed)

    assert prompting.extractor_version(model="m", parameters={}) != before
