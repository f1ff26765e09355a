"""Real Anthropic clients: what is said to the model is recorded to the byte, in order, once."""

from typing import Any

import pytest
from anthropic import Anthropic, APIStatusError, AsyncAnthropic

import afterturn
from tests.scripted_endpoint import Ending, Json, Reply, ScriptedEndpoint, sends, status, truncated
from tests.sdk.talking import MARA, Server, flushed, said, stored, streams

Talk = list[Any]


def user(content: Any) -> Json:
    return {"role": "user", "content": content}


def assistant(content: Any) -> Json:
    return {"role": "assistant", "content": content}


def text(content: str) -> Json:
    return {"type": "text", "text": content}


def message(*blocks: Json, stop: str | None = "end_turn") -> Json:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "scripted-2",
        "content": list(blocks),
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def streamed(*blocks: tuple[Json, list[Json]], stop: str = "end_turn") -> Reply:
    """Return a stream of blocks, each begun and then added to."""
    events: list[Json] = [{"type": "message_start", "message": message(stop=None)}]
    for index, (begun, deltas) in enumerate(blocks):
        place = {"index": index}
        events.append({"type": "content_block_start", "content_block": begun, **place})
        events.append({"type": "ping"})
        events.extend({"type": "content_block_delta", "delta": it, **place} for it in deltas)
        events.append({"type": "content_block_stop", **place})
    ended = {"stop_reason": stop, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": ended, "usage": {"output_tokens": 9}})
    return streams(*events, {"type": "message_stop"}, named=True)


def adding(*texts: str) -> tuple[Json, list[Json]]:
    return text(""), [{"type": "text_delta", "text": piece} for piece in texts]


def client_of(endpoint: ScriptedEndpoint) -> Anthropic:
    url = endpoint.url.removesuffix("/v1")
    return Anthropic(base_url=url, api_key="k", max_retries=0, timeout=20)


def create(client: Anthropic, talk: Talk, **options: Any) -> Any:
    make: Any = client.messages.create
    return make(model="m", max_tokens=100, messages=talk, **options)


def test_a_conversation_with_tools_is_recorded_once(
    server: Server, endpoint: ScriptedEndpoint
) -> None:
    """Thinking and the system prompt are not said; a failing tool is told from another."""
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    calls: list[Json] = [
        {"type": "tool_use", "id": f"t{number}", "name": "look", "input": {"at": number}}
        for number in (1, 2)
    ]
    endpoint.script(sends(message(thinking, text("Let me see."), *calls, stop="tool_use")))
    endpoint.script(status(529), sends(message(text("A "), text("cat."))))
    bare = client_of(endpoint)
    talk: Talk = [user("What is there?")]
    with flushed(server) as recorder, afterturn.conversation(**MARA):
        client = recorder.recorded(bare)
        first = create(client, talk, system="Be kind.")
        results: list[Json] = [
            {"type": "tool_result", "tool_use_id": "t1", "content": [text("a cat")]},
            {"type": "tool_result", "tool_use_id": "t2", "content": "dark", "is_error": True},
        ]
        talk += [assistant(first.content), user([*results, text("Well?")])]
        with pytest.raises(APIStatusError):
            create(client, talk)
        last = create(client, talk)
    bare.close()
    turns = stored(server)

    assert [block.text for block in last.content] == ["A ", "cat."]
    assert [(turn["role"], turn["content"]) for turn in turns] == [
        ("user", "What is there?"),
        ("assistant", "Let me see."),
        ("tool", "a cat"),
        ("tool", "dark"),
        ("user", "Well?"),
        ("assistant", "A cat."),
    ]
    assert turns[1]["tool_calls"] == [
        {"id": "t1", "name": "look", "arguments": {"at": 1}},
        {"id": "t2", "name": "look", "arguments": {"at": 2}},
    ]
    assert [turn["is_error"] for turn in turns[2:4]] == [False, True]
    assert [turn["tool_name"] for turn in turns[2:4]] == ["look", "look"]
    assert turns[5]["model_name"] == "scripted-2"


async def test_streams_are_recorded_whole_by_either_of_their_helpers(
    server: Server, endpoint: ScriptedEndpoint
) -> None:
    call: Json = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
    written = [
        {"type": "input_json_delta", "partial_json": piece} for piece in ("", '{"at":', " 1}")
    ]
    endpoint.script(streamed(adding("Hel", "lo."), (call, written), stop="tool_use"))
    endpoint.script(streamed(adding("Hel", "lo.")), streamed(adding("Bye.")))
    bare = client_of(endpoint)
    url = endpoint.url.removesuffix("/v1")
    bare_async = AsyncAnthropic(base_url=url, api_key="k", max_retries=0)
    with flushed(server) as recorder:
        with afterturn.conversation(**MARA):
            assert len(list(create(recorder.recorded(bare), [user("Hi.")], stream=True))) == 12
        with afterturn.conversation(user_id="mara", session_id="helper"):
            helper = recorder.recorded(bare_async).messages.stream(
                model="m", max_tokens=100, messages=[{"role": "user", "content": "Hi."}]
            )
            async with helper as stream:
                assert "".join([piece async for piece in stream.text_stream]) == "Hello."
        with (
            afterturn.conversation(user_id="mara", session_id="sync helper"),
            recorder.recorded(bare).messages.stream(
                model="m", max_tokens=100, messages=[{"role": "user", "content": "Hi."}]
            ) as stream,
        ):
            assert stream.get_final_text() == "Bye."
    bare.close()
    await bare_async.close()

    assert said(server) == [("user", "Hi."), ("assistant", "Hello.")]
    assert stored(server)[1]["tool_calls"] == [{"id": "t1", "name": "look", "arguments": {"at": 1}}]
    assert said(server, "helper") == [("user", "Hi."), ("assistant", "Hello.")]
    assert said(server, "sync helper") == [("user", "Hi."), ("assistant", "Bye.")]


def test_a_stream_that_fails_in_the_middle_records_nothing(
    server: Server, endpoint: ScriptedEndpoint
) -> None:
    """Whether the network fails or the vendor says so."""
    whole = streamed(adding("Hel", "lo."))
    at = whole.body.index(b"lo.")
    error: Json = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
    failed = streams({"type": "message_start", "message": message(stop=None)}, error, named=True)
    endpoint.script(truncated(whole, sent_bytes=at, ending=Ending.RESET), failed, whole)
    bare = client_of(endpoint)
    with flushed(server) as recorder, afterturn.conversation(**MARA):
        client = recorder.recorded(bare)
        for _ in range(2):
            with pytest.raises(Exception):  # noqa: B017 (whatever the client raises)
                list(create(client, [user("Hi.")], stream=True))
        assert recorder.flush()
        assert said(server) == []
        list(create(client, [user("Hi.")], stream=True))
    bare.close()

    assert said(server) == [("user", "Hi."), ("assistant", "Hello.")]


def test_an_answer_that_was_begun_for_the_model_is_one_turn(
    server: Server, endpoint: ScriptedEndpoint
) -> None:
    endpoint.script(sends(message(text(" 1}"))), sends(message(text("Good."))))
    bare = client_of(endpoint)
    talk: Talk = [user("JSON, please."), assistant('{"a":')]
    with flushed(server) as recorder, afterturn.conversation(**MARA):
        client = recorder.recorded(bare)
        create(client, talk)
        talk = [talk[0], assistant('{"a": 1}'), user("Thanks.")]
        create(client, talk)
    bare.close()

    assert [content for _, content in said(server)] == [
        "JSON, please.",
        '{"a": 1}',
        "Thanks.",
        "Good.",
    ]


def test_what_is_no_text_is_named_and_two_pictures_are_two_turns(
    server: Server, endpoint: ScriptedEndpoint
) -> None:
    endpoint.always(sends(message(text("Nice."))))
    bare = client_of(endpoint)

    def picture(data: str) -> Json:
        source = {"type": "base64", "media_type": "image/png", "data": data}
        return {"type": "image", "source": source}

    talk: Talk = []
    with flushed(server) as recorder, afterturn.conversation(**MARA):
        client = recorder.recorded(bare)
        for data in ("aGk=", "aG8=", "aG8="):
            talk.append(user([text("Look:"), picture(data)]))
            create(client, talk)
            talk.append(assistant("Nice."))
    bare.close()

    assert said(server) == [("user", "Look:\n[image]"), ("assistant", "Nice.")] * 3
