"""Real OpenAI clients: what is said to the model is recorded to the byte, in order, once."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from openai import APIConnectionError, APIStatusError, AsyncOpenAI, OpenAI

import afterturn
from tests.integration.serving import Server, ask
from tests.scripted_endpoint import (
    Ending,
    Json,
    ScriptedEndpoint,
    calls_tool,
    completes,
    delayed,
    packed,
    says,
    sends,
    status,
    trickled,
    truncated,
)
from tests.sdk.talking import MARA, chat_chunk, chat_chunks, flushed, said, stored, streams

TEA = "I like tea, and 👩‍👩‍👧 \u200fمی‌خواهم."
Talk = list[Any]


def user(content: str) -> Json:
    return {"role": "user", "content": content}


def assistant(content: str) -> Json:
    return {"role": "assistant", "content": content}


def client_of(endpoint: ScriptedEndpoint, *, retries: int = 0) -> OpenAI:
    return OpenAI(base_url=endpoint.url, api_key="k", max_retries=retries, timeout=20)


def async_client_of(endpoint: ScriptedEndpoint) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=endpoint.url, api_key="k", max_retries=0, timeout=60)


def complete(client: OpenAI, messages: Talk, **options: Any) -> Any:
    create: Any = client.chat.completions.create
    return create(model="m", messages=messages, **options)


async def test_a_conversation_is_recorded_once_though_each_request_says_all_of_it(
    server: Server, endpoint: ScriptedEndpoint
) -> None:
    talk: Talk = [{"role": "system", "content": "Be kind."}]
    bare = client_of(endpoint)
    async with flushed(server) as recorder:
        client = recorder.recorded(bare)
        with afterturn.conversation(**MARA):
            for number in range(4):
                endpoint.script(says(f"Answer {number}."))
                talk.append(user(TEA if number == 0 else f"Question {number}?"))
                answer = await ask(complete, client, talk)
                talk.append(assistant(answer.choices[0].message.content))
    bare.close()

    assert await said(server) == [(turn["role"], turn["content"]) for turn in talk[1:]]
    turns = await stored(server)
    assert [turn.get("model_name") for turn in turns] == [None, "scripted-1"] * 4
    assert all("said_at" in turn["metadata"]["afterturn"] for turn in turns)
    assert turns[1]["metadata"]["afterturn"]["answer_ms"] >= 0
    assert recorder.counts.recorded == 8
    assert type(client) is OpenAI


async def test_what_is_returned_and_what_is_sent_is_the_clients_own(
    server: Server, endpoint: ScriptedEndpoint
) -> None:
    """Equal to what the bare client gets and sends, headers and all."""
    endpoint.always(says("Hello."))
    bare = client_of(endpoint)
    async with flushed(server) as recorder:
        client = recorder.recorded(bare)
        with afterturn.conversation(**MARA):
            ours = await ask(complete, client, [user("Hi.")])
        theirs = await ask(complete, bare, [user("Hi.")])
    bare.close()
    first, second = endpoint.requests

    assert type(ours) is type(theirs)
    assert ours.model_dump_json() == theirs.model_dump_json()
    assert (first.body, first.headers) == (second.body, second.headers)


async def test_tools_are_recorded_with_their_calls_and_results(
    server: Server, endpoint: ScriptedEndpoint
) -> None:
    talk: Talk = [user("Weather in Porto and Faro?")]
    bare = async_client_of(endpoint)
    endpoint.script(calls_tool({"city": "Porto"}, {"city": "Faro"}, tool_name="weather"))
    endpoint.script(says("Sunny in both."))
    async with flushed(server) as recorder:
        client = recorder.recorded(bare)
        with afterturn.conversation(**MARA):
            first = await client.chat.completions.create(model="m", messages=talk)
            talk.append(first.choices[0].message)
            for call_id in ("call_2", "call_1"):
                talk.append({"role": "tool", "tool_call_id": call_id, "content": f"{call_id}: sun"})
            await client.chat.completions.create(model="m", messages=talk)
    await bare.close()
    turns = await stored(server)

    assert [turn["role"] for turn in turns] == ["user", "assistant", "tool", "tool", "assistant"]
    assert turns[1]["tool_calls"] == [
        {"id": "call_1", "name": "weather", "arguments": '{"city": "Porto"}'},
        {"id": "call_2", "name": "weather", "arguments": '{"city": "Faro"}'},
    ]
    assert [(turn["tool_call_id"], turn["tool_name"]) for turn in turns[2:4]] == [
        ("call_2", "weather"),
        ("call_1", "weather"),
    ]
    assert turns[4]["content"] == "Sunny in both."


async def test_a_request_that_fails_records_nothing_and_its_retry_records_once(
    server: Server, endpoint: ScriptedEndpoint
) -> None:
    """The vendor client's own retries, and the caller's."""
    endpoint.script(status(500, retry_after=0.01), truncated(says("Hello."), sent_bytes=20))
    endpoint.script(says("Hello."), status(400), says("Fine."))
    bare = client_of(endpoint, retries=2)
    talk: Talk = [user("Hi.")]
    async with flushed(server) as recorder:
        client = recorder.recorded(bare)
        with afterturn.conversation(**MARA):
            await ask(complete, client, talk)
            talk += [assistant("Hello."), user("How are you?")]
            with pytest.raises(APIStatusError):
                await ask(complete, client, talk)
            assert await ask(recorder.flush)
            assert len(await said(server)) == 2
            await ask(complete, client, talk)
    bare.close()

    assert endpoint.count == 5
    assert await said(server) == [
        *((turn["role"], turn["content"]) for turn in talk),
        ("assistant", "Fine."),
    ]


@pytest.mark.parametrize("pieces", [1, 7, 10_000])
async def test_a_stream_is_passed_on_as_it_comes_and_recorded_whole(
    server: Server, endpoint: ScriptedEndpoint, pieces: int
) -> None:
    texts = ["Hel", "lo 👩‍👩‍👧", " there", "\n\n."]
    reply = streams(*chat_chunks(*texts), "[DONE]")
    endpoint.always(trickled(reply, piece_bytes=pieces, interval=timedelta(0)))
    bare, bare_async = client_of(endpoint), async_client_of(endpoint)

    def read(client: OpenAI) -> list[str]:
        with afterturn.conversation(**MARA):
            return [
                chunk.choices[0].delta.content or ""
                for chunk in complete(client, [user("Hi.")], stream=True)
            ]

    async with flushed(server) as recorder:
        assert "".join(await ask(read, recorder.recorded(bare))) == "".join(texts)
        with afterturn.conversation(user_id="mara", session_id="tuesday"):
            stream = await recorder.recorded(bare_async).chat.completions.create(
                model="m", messages=[{"role": "user", "content": "Hi."}], stream=True
            )
            assert len([chunk async for chunk in stream]) == len(texts) + 2
    bare.close()
    await bare_async.close()

    for session in ("monday", "tuesday"):
        assert await said(server, session) == [("user", "Hi."), ("assistant", "".join(texts))]
    assert "first_byte_ms" in (await stored(server))[1]["metadata"]["afterturn"]


async def test_a_streams_first_chunk_is_there_before_its_last_is_sent(
    server: Server, endpoint: ScriptedEndpoint
) -> None:
    chunks = chat_chunks("one", "two")
    body = streams(*chunks, "[DONE]")
    first = len(streams(*chunks[:2]).body)
    endpoint.script(truncated(body, sent_bytes=first, ending=Ending.SILENT))
    bare = client_of(endpoint)

    def read(client: OpenAI) -> list[str]:
        with afterturn.conversation(**MARA):
            stream = complete(client, [user("Hi.")], stream=True)
            seen = [next(stream).choices[0].delta.content for _ in range(2)]
            stream.close()
            return seen

    async with flushed(server) as recorder:
        assert await ask(read, recorder.recorded(bare)) == ["", "one"]
    bare.close()


async def test_streamed_tool_calls_are_put_together(
    server: Server, endpoint: ScriptedEndpoint
) -> None:
    pieces: list[Json] = [
        {"index": 0, "id": "c1", "function": {"name": "look", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"a"'}},
        {"index": 1, "id": "c2", "function": {"name": "find", "arguments": "{}"}},
        {"index": 0, "function": {"arguments": ": 1}"}},
    ]
    chunks = [chat_chunk({"tool_calls": [piece]}) for piece in pieces]
    endpoint.script(streams(*chunks, chat_chunk({}, finish="tool_calls"), "[DONE]"))
    bare = client_of(endpoint)
    async with flushed(server) as recorder:
        client = recorder.recorded(bare, conversation=afterturn.Conversation(**MARA))
        await ask(lambda: list(complete(client, [user("Look.")], stream=True)))
    bare.close()
    turns = await stored(server)

    assert turns[1]["tool_calls"] == [
        {"id": "c1", "name": "look", "arguments": '{"a": 1}'},
        {"id": "c2", "name": "find", "arguments": "{}"},
    ]


async def test_a_stream_that_the_network_cuts_records_nothing(
    server: Server, endpoint: ScriptedEndpoint
) -> None:
    """The caller sees an error, as he would without us; what he asks again is recorded then."""
    reply = streams(*chat_chunks("Hel", "lo"), "[DONE]")
    at = len(streams(*chat_chunks("Hel", finish=None)).body)
    endpoint.script(truncated(reply, sent_bytes=at), truncated(reply, sent_bytes=at))
    endpoint.script(reply)
    bare = client_of(endpoint)
    errors: list[str] = []

    def read(client: OpenAI) -> list[str]:
        seen: list[str] = []
        try:
            with afterturn.conversation(**MARA):
                for chunk in complete(client, [user("Hi.")], stream=True):
                    seen.append(chunk.choices[0].delta.content or "")
        except Exception as error:  # whatever the bare client raises, ours must raise
            errors.append(repr(error))
        return seen

    async with flushed(server) as recorder:
        client = recorder.recorded(bare)
        theirs = await ask(read, bare)
        ours = await ask(read, client)
        assert await ask(recorder.flush)
        assert ours == theirs == ["", "Hel"]
        assert len(errors) == 2
        assert errors[0] == errors[1]
        assert await said(server) == []
        await ask(read, client)
    bare.close()

    assert await said(server) == [("user", "Hi."), ("assistant", "Hello")]


async def test_of_a_stream_that_is_left_the_question_is_recorded_and_the_history_says_the_rest(
    server: Server, endpoint: ScriptedEndpoint
) -> None:
    endpoint.script(streams(*chat_chunks("One, ", "two, ", "three."), "[DONE]"), says("Bye."))
    bare = client_of(endpoint)

    def leave(client: OpenAI) -> str:
        seen = ""
        for chunk in complete(client, [user("Count.")], stream=True):
            seen += chunk.choices[0].delta.content or ""
            if seen == "One, ":
                break
        return seen

    def read(client: OpenAI) -> None:
        with afterturn.conversation(**MARA):
            leave(client)

    async with flushed(server) as recorder:
        client = recorder.recorded(bare)
        await ask(read, client)
        endpoint.wait_for(1)
        with afterturn.conversation(**MARA):
            talk: Talk = [user("Count."), assistant("One, "), user("Enough.")]
            await ask(complete, client, talk)
    bare.close()

    assert await said(server) == [
        *((turn["role"], turn["content"]) for turn in talk),
        ("assistant", "Bye."),
    ]


async def test_a_stream_that_is_left_when_the_answer_is_whole_is_whole(
    server: Server, endpoint: ScriptedEndpoint
) -> None:
    endpoint.script(streams(*chat_chunks("Done."), "[DONE]"))
    bare = client_of(endpoint)

    def read(client: OpenAI) -> None:
        with afterturn.conversation(**MARA):
            stream = complete(client, [user("Hi.")], stream=True)
            for chunk in stream:
                if chunk.choices[0].finish_reason:
                    break
            stream.close()

    async with flushed(server) as recorder:
        await ask(read, recorder.recorded(bare))
    bare.close()

    assert await said(server) == [("user", "Hi."), ("assistant", "Done.")]


async def test_a_cancelled_call_records_nothing(server: Server, endpoint: ScriptedEndpoint) -> None:
    endpoint.always(delayed(says("Late."), timedelta(seconds=30)))
    bare = async_client_of(endpoint)
    async with flushed(server) as recorder:
        client = recorder.recorded(bare)
        with afterturn.conversation(**MARA):
            task = asyncio.ensure_future(
                client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": "Hi."}]
                )
            )
            await ask(endpoint.wait_for, 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    await bare.close()

    assert await said(server) == []


async def test_conversations_at_once_stay_apart(server: Server, endpoint: ScriptedEndpoint) -> None:
    endpoint.respond_with(lambda request: says(f"Re: {request['messages'][-1]['content']}"))
    bare = async_client_of(endpoint)

    async def converse(name: str) -> Talk:
        talk: Talk = []
        with afterturn.conversation(session_id=name, user_id=f"user of {name}"):
            for number in range(3):
                talk.append(user(f"{name} {number}"))
                answer = await client.chat.completions.create(model="m", messages=talk)
                talk.append(assistant(answer.choices[0].message.content or ""))
        return talk

    async with flushed(server) as recorder:
        client = recorder.recorded(bare)
        talks = await asyncio.gather(*(converse(f"talk {number}") for number in range(5)))
    await bare.close()

    for number, talk in enumerate(talks):
        turns = [(turn["role"], turn["content"]) for turn in talk]
        assert await said(server, f"talk {number}") == turns


async def test_calls_at_once_in_one_conversation_are_all_recorded(
    server: Server, endpoint: ScriptedEndpoint
) -> None:
    endpoint.respond_with(lambda request: says(f"Re: {request['messages'][-1]['content']}"))
    bare = async_client_of(endpoint)
    questions = [f"Question {number}?" for number in range(6)]
    async with flushed(server) as recorder:
        client = recorder.recorded(bare)
        with afterturn.conversation(**MARA):
            await asyncio.gather(
                *(
                    client.chat.completions.create(
                        model="m", messages=[{"role": "user", "content": question}]
                    )
                    for question in questions
                )
            )
    await bare.close()
    turns = await said(server)

    assert sorted(turns) == sorted(
        [("user", question) for question in questions]
        + [("assistant", f"Re: {question}") for question in questions]
    )
    assert all(
        answer == f"Re: {asked}"
        for (_, asked), (_, answer) in zip(turns[::2], turns[1::2], strict=True)
    )


async def test_raw_and_streaming_responses_and_packed_ones_are_recorded_too(
    server: Server, endpoint: ScriptedEndpoint
) -> None:
    """Whichever of its methods is called, the client sends the same request."""
    endpoint.script(packed(says("Raw.")), packed(streams(*chat_chunks("Packed."), "[DONE]")))
    endpoint.script(says("Kept."))
    bare = client_of(endpoint)

    def talk(client: OpenAI) -> None:
        question: Talk = [user("Hi.")]
        with afterturn.conversation(user_id="mara", session_id="raw"):
            raw = client.chat.completions.with_raw_response.create(model="m", messages=question)
            assert raw.parse().choices[0].message.content == "Raw."
        with (
            afterturn.conversation(user_id="mara", session_id="packed"),
            client.chat.completions.stream(model="m", messages=question) as stream,
        ):
            assert stream.get_final_completion().choices[0].message.content == "Packed."
        with afterturn.conversation(user_id="mara", session_id="kept"):
            kept = client.chat.completions.with_streaming_response
            with kept.create(model="m", messages=question) as response:
                response.read()

    async with flushed(server) as recorder:
        await ask(talk, recorder.recorded(bare))
    bare.close()

    for session, text in (("raw", "Raw."), ("packed", "Packed."), ("kept", "Kept.")):
        assert await said(server, session) == [("user", "Hi."), ("assistant", text)]


async def test_of_several_choices_the_history_says_which_was_said(
    server: Server, endpoint: ScriptedEndpoint
) -> None:
    endpoint.script(completes([assistant("A."), assistant("B.")]), says("Yes, B."))
    bare = client_of(endpoint)
    talk: Talk = [user("A or B?")]
    async with flushed(server) as recorder:
        client = recorder.recorded(bare)
        with afterturn.conversation(**MARA):
            await ask(complete, client, talk, n=2)
            talk += [assistant("B."), user("Sure?")]
            await ask(complete, client, talk)
    bare.close()

    assert [content for _, content in await said(server)] == ["A or B?", "B.", "Sure?", "Yes, B."]


def response(text: str, number: int, *calls: Json) -> Json:
    content: list[Json] = [{"type": "output_text", "text": text, "annotations": []}]
    message: Json = {
        "type": "message",
        "id": f"msg_{number}",
        "role": "assistant",
        "content": content,
    }
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1_767_225_600,
        "model": "scripted-1",
        "status": "completed",
        "output": [
            {"type": "reasoning", "id": f"rs_{number}", "summary": []},
            {**message, "status": "completed"},
            *calls,
        ],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


async def test_responses_are_recorded_and_known_again_in_a_history(
    server: Server, endpoint: ScriptedEndpoint
) -> None:
    call = {"type": "function_call", "id": "fc", "call_id": "c1", "name": "look"}
    call |= {"arguments": '{"a": 1}', "status": "completed"}
    endpoint.script(sends(response("Looking.", 1, call)))
    final = response("Found.", 2)
    endpoint.script(
        streams(
            {"type": "response.created", "sequence_number": 0, "response": final},
            {"type": "response.completed", "sequence_number": 1, "response": final},
            named=True,
        )
    )
    bare = client_of(endpoint)

    def talk(client: OpenAI) -> None:
        with afterturn.conversation(**MARA):
            given: Talk = [user("Look.")]
            first = client.responses.create(model="m", instructions="Be kind.", input=given)
            given += [item.model_dump(exclude_none=True) for item in first.output]
            given.append({"type": "function_call_output", "call_id": "c1", "output": "gold"})
            assert len(list(client.responses.create(model="m", input=given, stream=True))) == 2

    async with flushed(server) as recorder:
        await ask(talk, recorder.recorded(bare))
    bare.close()
    turns = await stored(server)

    assert [(turn["role"], turn["content"]) for turn in turns] == [
        ("user", "Look."),
        ("assistant", "Looking."),
        ("assistant", ""),
        ("tool", "gold"),
        ("assistant", "Found."),
    ]
    assert turns[2]["tool_calls"] == [{"id": "c1", "name": "look", "arguments": '{"a": 1}'}]
    assert turns[3]["tool_name"] is None or turns[3]["tool_name"] == "look"


async def test_a_response_that_continues_one_the_vendor_keeps_is_new_though_it_says_the_same(
    server: Server, endpoint: ScriptedEndpoint
) -> None:
    endpoint.script(*(sends(response(f"Step {number}.", number)) for number in range(1, 6)))
    bare = client_of(endpoint)

    def talk(client: OpenAI) -> None:
        with afterturn.conversation(**MARA):
            before: str | None = None
            for _ in range(3):
                answer = client.responses.create(
                    model="m", input="Go on.", previous_response_id=before
                )
                before = answer.id
        with afterturn.conversation(user_id="mara", session_id="kept"):
            for _ in range(2):
                client.responses.create(model="m", input="Go on.", conversation="conv_1")

    async with flushed(server) as recorder:
        await ask(talk, recorder.recorded(bare))
    bare.close()

    assert [content for _, content in await said(server)] == [
        *("Go on.", "Step 1.", "Go on.", "Step 2.", "Go on.", "Step 3.")
    ]
    assert [content for _, content in await said(server, "kept")] == [
        *("Go on.", "Step 4.", "Go on.", "Step 5.")
    ]


async def test_no_model_is_as_it_was(server: Server) -> None:
    bare = OpenAI(base_url="http://127.0.0.1:9/v1", api_key="k", max_retries=0)
    async with flushed(server) as recorder:
        with afterturn.conversation(**MARA), pytest.raises(APIConnectionError):
            await ask(complete, recorder.recorded(bare), [user("Hi.")])
    bare.close()

    assert await said(server) == []
