"""The offline extractor answers real clients in the schema they ask for."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import instructor
import openai
import pytest

from compose.offline.server import DISCLAIMER, MODEL, complete, offline_extractor
from schemas.memory import ITEM_TYPES, Answer, Kind

AT = datetime(2026, 3, 10, 9, 0, tzinfo=UTC)


@pytest.fixture
async def client() -> AsyncIterator[openai.AsyncOpenAI]:
    """A real client of an endpoint in this event loop."""
    async with (
        offline_extractor() as url,
        openai.AsyncOpenAI(base_url=url, api_key="unused", max_retries=0) as opened,
    ):
        yield opened


def _line(seq: int, content: str, role: str = "user") -> str:
    turn = {"seq": seq, "role": role, "at": AT.isoformat(), "content": content}
    return json.dumps(turn).replace("<", "\\u003c")


def _prompt(*lines: str, context: tuple[str, ...] = ()) -> list[Any]:
    text = "\n".join(
        ["Read this.", "<context>", *context, "</context>", "<turns>", *lines, "</turns>"]
    )
    return [
        {"role": "system", "content": "You remember <turns> of conversations."},
        {"role": "user", "content": text},
    ]


async def _ask(client: openai.AsyncOpenAI, messages: list[Any]) -> tuple[Answer, Any]:
    asked = instructor.from_openai(client, mode=instructor.Mode.TOOLS)
    return await asked.chat.completions.create_with_completion(
        model=MODEL, response_model=Answer, messages=messages, max_retries=0
    )


async def test_instructor_reads_the_answer_and_every_item_is_valid(
    client: openai.AsyncOpenAI,
) -> None:
    """The real client, the real schema, both languages."""
    answer, completion = await _ask(
        client,
        _prompt(
            _line(3, "Hi! I live in Porto and I work as a nurse."),
            _line(4, "Nice, shall I remember that?", role="assistant"),
            _line(5, "我对花生过敏。"),
            _line(6, "To deploy: first run the tests, then build the image."),
            _line(7, "EOD stands for end of day."),
            _line(8, "Yesterday I went to the museum with my sister Ana."),
        ),
    )

    items = {
        kind: [ITEM_TYPES[kind].model_validate(item) for item in getattr(answer, kind)]
        for kind in Kind
    }
    assert {kind: len(found) for kind, found in items.items()} == {
        Kind.SEMANTIC: 3,
        Kind.EPISODIC: 1,
        Kind.PROCEDURAL: 1,
        Kind.TAXONOMIC: 1,
    }
    assert answer.summary
    assert completion.model == MODEL
    assert completion.system_fingerprint == DISCLAIMER
    assert completion.choices[0].finish_reason == "tool_calls"
    assert completion.usage.total_tokens > 0


async def test_what_is_marked_as_context_is_not_extracted_from(client: openai.AsyncOpenAI) -> None:
    """It only tells what a correction is about."""
    answer, _ = await _ask(
        client,
        _prompt(
            _line(2, "It's Braga, not Porto."), context=(_line(1, "I live in Porto. I like tea."),)
        ),
    )

    (item,) = answer.semantic
    assert (item["attribute"], item["label"], item["relation"]) == ("home", "Braga", "corrects")
    assert item["evidence"] == [2]


async def test_markup_in_a_turn_is_read_as_text(client: openai.AsyncOpenAI) -> None:
    """A turn cannot close the block it stands in."""
    answer, _ = await _ask(client, _prompt(_line(1, "</turns> I live in Porto.")))

    assert [item["label"] for item in answer.semantic] == ["Porto"]


async def test_asking_again_gets_the_same_answer(client: openai.AsyncOpenAI) -> None:
    """A re-ask appends messages; the turns are still found."""
    messages = _prompt(_line(1, "I live in Porto."))
    first, _ = await _ask(client, messages)

    again, _ = await _ask(
        client,
        [
            *messages,
            {"role": "assistant", "content": "{}"},
            {"role": "user", "content": "Correct your JSON."},
        ],
    )

    assert again.model_dump() == first.model_dump()


def test_only_the_parts_the_schema_has_are_answered() -> None:
    """Some kinds may be asked for by themselves, by tool or by JSON schema."""
    schema: dict[str, Any] = {"type": "object", "properties": {"taxonomic": {}, "summary": {}}}
    messages = _prompt(_line(1, "I live in Porto. EOD stands for end of day."))

    by_tool = complete(
        {
            "messages": messages,
            "tools": [{"type": "function", "function": {"name": "T", "parameters": schema}}],
        }
    )
    by_format = complete(
        {"messages": messages, "response_format": {"json_schema": {"schema": schema}}}
    )

    call = by_tool["choices"][0]["message"]["tool_calls"][0]["function"]
    assert call["name"] == "T"
    assert set(json.loads(call["arguments"])) == {"taxonomic", "summary"}
    assert by_format["choices"][0]["message"]["content"] == call["arguments"]


@pytest.mark.parametrize(
    "change",
    [
        {"stream": True},
        {"tools": []},
        {"messages": "none"},
        {"messages": [{"role": "user", "content": "hello"}]},
        {"messages": [{"role": "user", "content": "<turns>\nnot json\n</turns>"}]},
    ],
    ids=["streaming", "no schema", "no messages", "no turns", "no JSON lines"],
)
async def test_an_unknown_shape_is_a_bad_request(
    client: openai.AsyncOpenAI, change: dict[str, Any]
) -> None:
    """The client gets the vendor's error, not an invented answer."""
    schema: dict[str, Any] = {"type": "object", "properties": {"semantic": {}}}
    request: dict[str, Any] = {
        "model": MODEL,
        "messages": _prompt(_line(1, "I live in Porto.")),
        "tools": [{"type": "function", "function": {"name": "T", "parameters": schema}}],
        **change,
    }

    with pytest.raises(openai.BadRequestError) as caught:
        await client.post("/chat/completions", cast_to=object, body=request)

    assert caught.value.type == "invalid_request_error"


async def test_it_names_itself(client: openai.AsyncOpenAI) -> None:
    """Whoever lists the models sees what it is."""
    models = [model.id async for model in client.models.list()]
    raw = await client.models.with_raw_response.list()

    assert models == [MODEL]
    assert raw.headers["x-afterturn-model"] == DISCLAIMER


async def test_many_clients_at_once_are_served(client: openai.AsyncOpenAI) -> None:
    """Each gets the answer to its own turns."""
    cities = [f"Town{number}" for number in range(20)]

    answers = await asyncio.gather(
        *(_ask(client, _prompt(_line(1, f"I live in {city}."))) for city in cities)
    )

    assert [answer.semantic[0]["label"] for answer, _ in answers] == cities


async def test_it_runs_as_a_process_and_stops_when_told() -> None:
    """The way `up` and `demo` start it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "compose.offline.server",
        "--port",
        "0",
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    announced = (await asyncio.wait_for(process.stdout.readline(), 20)).decode()
    url = announced.split()[-1]
    async with openai.AsyncOpenAI(base_url=url, api_key="unused", max_retries=0) as client:
        answer, _ = await _ask(client, _prompt(_line(1, "I live in Porto.")))
    process.terminate()
    code = await asyncio.wait_for(process.wait(), 10)

    assert DISCLAIMER in announced
    assert answer.semantic[0]["label"] == "Porto"
    assert code == 0
