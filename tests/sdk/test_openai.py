"""Real OpenAI clients: what is said to the model is recorded to the byte, in order, once."""

import asyncio
from datetime import timedelta

import pytest
from openai import APIConnectionError, APIStatusError, AsyncOpenAI, OpenAI

import afterturn
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
from tests.sdk.talking import (
    MARA,
    Server,
    Talk,
    assistant,
    chat_chunk,
    chat_chunks,
    client_of,
    complete,
    flushed,
    said,
    stored,
    streams,
    user,
)

TEA = "I like tea, and 👩‍👩‍👧 \u200fمی‌خواهم."


def async_client_of(endpoint: ScriptedEndpoint) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=endpoint.url, api_key="k", max_retries=0, timeout=60)


def test_a_conversation_is_recorded_once_though_each_request_says_all_of_it(
    server: Server, endpoint: ScriptedEndpoint
) -> None:
    talk: Talk = [{"role": "system", "content": "Be kind."}]
    bare = client_of(endpoint)
    with flushed(server) as recorder:
        client = recorder.recorded(bare)
        with afterturn.conversation(**MARA):
            for number in range(4):
                endpoint.script(says(f"Answer {number}."))
                talk.append(user(TEA if number == 0 else f"Question {number}?"))
                answer = complete(client, talk)
                talk.append(assistant(answer.choices[0].message.content))
    bare.close()

    assert said(server) == [(turn["role"], turn["content"]) for turn in talk[1:]]
    turns = stored(server)
    assert [turn.get("model_name") for turn in turns] == [None, "scripted-1"] * 4
    assert all("said_at" in turn["metadata"]["afterturn"] for turn in turns)
    assert turns[1]["metadata"]["afterturn"]["answer_ms"] >= 0
    assert recorder.counts.recorded == 8
    assert type(client) is OpenAI


def test_what_is_returned_and_what_is_sent_is_the_clients_own(
    server: Server, endpoint: ScriptedEndpoint
) -> None:
    """Equal to what the bare client gets and sends, headers and all."""
    endpoint.always(says("Hello."))
    bare = client_of(endpoint)
    with flushed(server) as recorder:
        client = recorder.recorded(bare)
        with afterturn.conversation(**MARA):
            ours = complete(client, [user("Hi.")])
        theirs = complete(bare, [user("Hi.")])
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
    with flushed(server) as recorder:
        client = recorder.recorded(bare)
        with afterturn.conversation(**MARA):
            first = await client.chat.completions.create(model="m", messages=talk)
            talk.append(first.choices[0].message)
            for call_id in ("call_2", "call_1"):
                talk.append({"role": "tool", "tool_call_id": call_id, "content": f"{call_id}: sun"})
            await client.chat.completions.create(model="m", messages=talk)
    await bare.close()
    turns = stored(server)

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


def test_a_request_that_fails_records_nothing_and_its_retry_records_once(
    server: Server, endpoint: ScriptedEndpoint
) -> None:
    """The vendor client's own retries, and the caller's."""
    endpoint.script(status(500, retry_after=0.01), truncated(says("Hello."), sent_bytes=20))
    endpoint.script(says("Hello."), status(400), says("Fine."))
    bare = client_of(endpoint, retries=2)
    talk: Talk = [user("Hi.")]
    with flushed(server) as recorder:
        client = recorder.recorded(bare)
        with afterturn.conversation(**MARA):
            complete(client, talk)
            talk += [assistant("Hello."), user("How are you?")]
            with pytest.raises(APIStatusError):
                complete(client, talk)
            assert recorder.flush()
            assert len(said(server)) == 2
            complete(client, talk)
    bare.close()

    assert endpoint.count == 5
    assert said(server) == [
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

    with flushed(server) as recorder:
        assert "".join(read(recorder.recorded(bare))) == "".join(texts)
        with afterturn.conversation(user_id="mara", session_id="tuesday"):
            stream = await recorder.recorded(bare_async).chat.completions.create(
                model="m", messages=[{"role": "user", "content": "Hi."}], stream=True
            )
            assert len([chunk async for chunk in stream]) == len(texts) + 2
    bare.close()
    await bare_async.close()

    for session in ("monday", "tuesday"):
        assert said(server, session) == [("user", "Hi."), ("assistant", "".join(texts))]
    assert "first_byte_ms" in (stored(server))[1]["metadata"]["afterturn"]


def test_a_streams_first_chunk_is_there_before_its_last_is_sent(
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

    with flushed(server) as recorder:
        assert read(recorder.recorded(bare)) == ["", "one"]
    bare.close()


def test_streamed_tool_calls_are_put_together(server: Server, endpoint: ScriptedEndpoint) -> None:
    pieces: list[Json] = [
        {"index": 0, "id": "c1", "function": {"name": "look", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"a"'}},
        {"index": 1, "id": "c2", "function": {"name": "find", "arguments": "{}"}},
        {"index": 0, "function": {"arguments": ": 1}"}},
    ]
    chunks = [chat_chunk({"tool_calls": [piece]}) for piece in pieces]
    endpoint.script(streams(*chunks, chat_chunk({}, finish="tool_calls"), "[DONE]"))
    bare = client_of(endpoint)
    with flushed(server) as recorder:
        client = recorder.recorded(bare, conversation=afterturn.Conversation(**MARA))
        list(complete(client, [user("Look.")], stream=True))
    bare.close()
    turns = stored(server)

    assert turns[1]["tool_calls"] == [
        {"id": "c1", "name": "look", "arguments": '{"a": 1}'},
        {"id": "c2", "name": "find", "arguments": "{}"},
    ]


def test_a_stream_that_the_network_cuts_records_nothing(
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

    with flushed(server) as recorder:
        client = recorder.recorded(bare)
        theirs = read(bare)
        ours = read(client)
        assert recorder.flush()
        assert ours == theirs == ["", "Hel"]
        assert len(errors) == 2
        assert errors[0] == errors[1]
        assert said(server) == []
        read(client)
    bare.close()

    assert said(server) == [("user", "Hi."), ("assistant", "Hello")]


@pytest.mark.parametrize("how", ["in pieces", "at once", "packed"])
def test_of_a_stream_that_is_left_is_recorded_what_the_caller_was_handed(
    server: Server, endpoint: ScriptedEndpoint, how: str
) -> None:
    """However many events the network brought at once; and it is known again in the history."""
    whole = streams(*chat_chunks("One, ", "two, ", "three."), "[DONE]")
    if how == "in pieces":
        whole = trickled(whole, piece_bytes=5, interval=timedelta(0))
    endpoint.script(packed(whole) if how == "packed" else whole, says("Bye."))
    bare = client_of(endpoint)
    talk: Talk = [user("Count.")]

    def leave(client: OpenAI) -> None:
        seen = ""
        with afterturn.conversation(**MARA):
            stream = complete(client, talk, stream=True)
            for chunk in stream:
                seen += chunk.choices[0].delta.content or ""
                if seen == "One, two, ":
                    break
            stream.close()
        talk.extend([assistant(seen), user("Enough.")])

    with flushed(server) as recorder:
        client = recorder.recorded(bare)
        leave(client)
        with afterturn.conversation(**MARA):
            complete(client, talk)
    bare.close()
    turns = stored(server)

    assert [(turn["role"], turn["content"]) for turn in turns] == [
        *((turn["role"], turn["content"]) for turn in talk),
        ("assistant", "Bye."),
    ]
    assert turns[1]["metadata"]["afterturn"]["is_unfinished"] is True
    assert "is_unfinished" not in turns[3]["metadata"]["afterturn"]


async def test_a_cancelled_stream_is_a_stream_that_is_left(
    server: Server, endpoint: ScriptedEndpoint
) -> None:
    reply = streams(*chat_chunks("One, ", "two."), "[DONE]")
    first = len(streams(*chat_chunks("One, ", finish=None)).body)
    endpoint.script(truncated(reply, sent_bytes=first, ending=Ending.SILENT))
    bare = async_client_of(endpoint)
    handed = asyncio.Event()

    async def read(client: AsyncOpenAI) -> None:
        with afterturn.conversation(**MARA):
            stream = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "Count."}], stream=True
            )
            async for chunk in stream:
                if chunk.choices[0].delta.content:
                    handed.set()

    with flushed(server) as recorder:
        task = asyncio.ensure_future(read(recorder.recorded(bare)))
        await asyncio.wait_for(handed.wait(), 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await bare.close()

    assert said(server) == [("user", "Count."), ("assistant", "One, ")]


def test_a_stream_that_is_left_when_the_answer_is_whole_is_whole(
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

    with flushed(server) as recorder:
        read(recorder.recorded(bare))
    bare.close()

    assert said(server) == [("user", "Hi."), ("assistant", "Done.")]


async def test_a_cancelled_call_records_nothing(server: Server, endpoint: ScriptedEndpoint) -> None:
    endpoint.always(delayed(says("Late."), timedelta(seconds=30)))
    bare = async_client_of(endpoint)
    with flushed(server) as recorder:
        client = recorder.recorded(bare)
        with afterturn.conversation(**MARA):
            task = asyncio.ensure_future(
                client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": "Hi."}]
                )
            )
            await asyncio.to_thread(endpoint.wait_for, 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    await bare.close()

    assert said(server) == []


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

    with flushed(server) as recorder:
        client = recorder.recorded(bare)
        talks = await asyncio.gather(*(converse(f"talk {number}") for number in range(5)))
    await bare.close()

    for number, talk in enumerate(talks):
        turns = [(turn["role"], turn["content"]) for turn in talk]
        assert said(server, f"talk {number}") == turns


async def test_calls_at_once_in_one_conversation_are_all_recorded(
    server: Server, endpoint: ScriptedEndpoint
) -> None:
    endpoint.respond_with(lambda request: says(f"Re: {request['messages'][-1]['content']}"))
    bare = async_client_of(endpoint)
    questions = [f"Question {number}?" for number in range(6)]
    with flushed(server) as recorder:
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
    turns = said(server)

    assert sorted(turns) == sorted(
        [("user", question) for question in questions]
        + [("assistant", f"Re: {question}") for question in questions]
    )
    assert all(
        answer == f"Re: {asked}"
        for (_, asked), (_, answer) in zip(turns[::2], turns[1::2], strict=True)
    )


def test_raw_and_streaming_responses_and_packed_ones_are_recorded_too(
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

    with flushed(server) as recorder:
        talk(recorder.recorded(bare))
    bare.close()

    for session, text in (("raw", "Raw."), ("packed", "Packed."), ("kept", "Kept.")):
        assert said(server, session) == [("user", "Hi."), ("assistant", text)]


def test_of_several_choices_the_history_says_which_was_said(
    server: Server, endpoint: ScriptedEndpoint
) -> None:
    endpoint.script(completes([assistant("A."), assistant("B.")]), says("Yes, B."))
    bare = client_of(endpoint)
    talk: Talk = [user("A or B?")]
    with flushed(server) as recorder:
        client = recorder.recorded(bare)
        with afterturn.conversation(**MARA):
            complete(client, talk, n=2)
            talk += [assistant("B."), user("Sure?")]
            complete(client, talk)
    bare.close()

    assert [content for _, content in said(server)] == ["A or B?", "B.", "Sure?", "Yes, B."]


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
            message,
            *calls,
        ],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def test_responses_are_recorded_and_known_again_in_a_history(
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

    with flushed(server) as recorder:
        talk(recorder.recorded(bare))
    bare.close()
    turns = stored(server)

    assert [(turn["role"], turn["content"]) for turn in turns] == [
        ("user", "Look."),
        ("assistant", "Looking."),
        ("assistant", ""),
        ("tool", "gold"),
        ("assistant", "Found."),
    ]
    assert turns[2]["tool_calls"] == [{"id": "c1", "name": "look", "arguments": '{"a": 1}'}]
    assert turns[3]["tool_name"] is None or turns[3]["tool_name"] == "look"


def test_a_response_that_continues_one_the_vendor_keeps_is_new_though_it_says_the_same(
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

    with flushed(server) as recorder:
        talk(recorder.recorded(bare))
    bare.close()

    assert [content for _, content in said(server)] == [
        *("Go on.", "Step 1.", "Go on.", "Step 2.", "Go on.", "Step 3.")
    ]
    assert [content for _, content in said(server, "kept")] == [
        *("Go on.", "Step 4.", "Go on.", "Step 5.")
    ]


def test_no_model_is_as_it_was(server: Server) -> None:
    bare = OpenAI(base_url="http://127.0.0.1:9/v1", api_key="k", max_retries=0)
    with (
        flushed(server) as recorder,
        afterturn.conversation(**MARA),
        pytest.raises(APIConnectionError),
    ):
        complete(recorder.recorded(bare), [user("Hi.")])
    bare.close()

    assert said(server) == []
