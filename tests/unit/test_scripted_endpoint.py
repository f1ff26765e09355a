"""The scripted endpoint does to a real vendor client what a script says."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import openai
import pytest

from tests import scripted_endpoint as scripted
from tests.scripted_endpoint import ScriptedEndpoint

pytest_plugins = ("tests.endpoint_fixture",)


@pytest.fixture
async def client(endpoint: ScriptedEndpoint) -> AsyncIterator[openai.AsyncOpenAI]:
    """A real client of the endpoint that retries nothing."""
    async with openai.AsyncOpenAI(
        base_url=endpoint.url, api_key="unused", max_retries=0, timeout=5
    ) as opened:
        yield opened


async def _ask(client: openai.AsyncOpenAI, text: str = "hello", timeout: float = 5) -> Any:
    return await client.chat.completions.create(
        model="scripted-1", messages=[{"role": "user", "content": text}], timeout=timeout
    )


async def test_an_answer_arrives_as_one_tool_call(
    endpoint: ScriptedEndpoint, client: openai.AsyncOpenAI
) -> None:
    """`answers` fills in the kinds that were not given."""
    endpoint.script(scripted.answers(semantic=[{"label": "tea"}], summary="Tea."))

    completion = await _ask(client)

    (call,) = completion.choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {
        "semantic": [{"label": "tea"}],
        "episodic": [],
        "procedural": [],
        "taxonomic": [],
        "summary": "Tea.",
    }
    assert completion.choices[0].finish_reason == "tool_calls"
    assert completion.usage.total_tokens == 120


async def test_a_script_is_used_in_order_and_every_request_is_recorded(
    endpoint: ScriptedEndpoint, client: openai.AsyncOpenAI
) -> None:
    """Body, headers and count can be asserted on."""
    endpoint.script(scripted.says("one"), scripted.says("two"))

    said = [(await _ask(client, text)).choices[0].message.content for text in ("a", "b")]

    assert said == ["one", "two"]
    assert [request.messages[0]["content"] for request in endpoint.requests] == ["a", "b"]
    assert endpoint.requests[0].headers["authorization"] == "Bearer unused"
    assert endpoint.requests[0].received_at <= endpoint.requests[1].received_at
    assert endpoint.count == 2


async def test_a_responder_answers_from_the_request(
    endpoint: ScriptedEndpoint, client: openai.AsyncOpenAI
) -> None:
    """What the script does not answer, the responder does."""
    endpoint.respond_with(lambda request: scripted.says(request["messages"][0]["content"] + "!"))

    assert (await _ask(client, "hey")).choices[0].message.content == "hey!"


async def test_a_responder_that_raises_is_told() -> None:
    """A mistake in a test's own callable is not taken for the endpoint's behaviour."""
    with ScriptedEndpoint(respond=lambda request: request["no such key"]) as endpoint:
        async with openai.AsyncOpenAI(
            base_url=endpoint.url, api_key="unused", max_retries=0
        ) as client:
            with pytest.raises(openai.InternalServerError):
                await _ask(client)

        assert isinstance(endpoint.errors[0], KeyError)


async def test_an_unscripted_request_is_counted() -> None:
    """A call nobody foresaw does not pass for a success."""
    with ScriptedEndpoint() as endpoint:
        async with openai.AsyncOpenAI(
            base_url=endpoint.url, api_key="unused", max_retries=0
        ) as client:
            with pytest.raises(openai.InternalServerError):
                await _ask(client)

        assert endpoint.unscripted == 1


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (404, openai.NotFoundError),
        (429, openai.RateLimitError),
        (503, openai.InternalServerError),
    ],
)
async def test_a_status_is_the_vendors_error(
    endpoint: ScriptedEndpoint,
    client: openai.AsyncOpenAI,
    code: int,
    error: type[openai.APIStatusError],
) -> None:
    """The error object's code and the Retry-After header reach the caller."""
    endpoint.script(scripted.status(code, retry_after=7, error_code="some_code"))

    with pytest.raises(error) as caught:
        await _ask(client)

    assert caught.value.status_code == code
    assert caught.value.code == "some_code"
    assert caught.value.response.headers["retry-after"] == "7"


@pytest.mark.parametrize(
    "reply",
    [
        scripted.resets(),
        scripted.hangs_up(),
        scripted.truncated(scripted.says("never whole"), sent_bytes=20),
        scripted.truncated(
            scripted.says("never whole"), sent_bytes=20, ending=scripted.Ending.RESET
        ),
    ],
    ids=["reset", "hung up", "truncated", "reset in the body"],
)
async def test_a_broken_connection_is_a_connection_error(
    endpoint: ScriptedEndpoint, client: openai.AsyncOpenAI, reply: scripted.Reply
) -> None:
    """Whichever way the socket ends, the client knows that it did; the next request is served."""
    endpoint.script(reply, scripted.says("well again"))

    with pytest.raises(openai.APIConnectionError):
        await _ask(client)

    assert (await _ask(client)).choices[0].message.content == "well again"


@pytest.mark.parametrize(
    "reply",
    [
        scripted.hangs(),
        scripted.truncated(
            scripted.says("never whole"), sent_bytes=20, ending=scripted.Ending.SILENT
        ),
    ],
    ids=["no byte", "half a body"],
)
async def test_silence_is_a_timeout(
    endpoint: ScriptedEndpoint, client: openai.AsyncOpenAI, reply: scripted.Reply
) -> None:
    """A reply that never comes ends by the client's own clock."""
    endpoint.script(reply)

    with pytest.raises(openai.APITimeoutError):
        await _ask(client, timeout=0.1)


async def test_a_trickle_arrives_whole(
    endpoint: ScriptedEndpoint, client: openai.AsyncOpenAI
) -> None:
    """Slow is not broken."""
    endpoint.script(
        scripted.trickled(scripted.says("slow"), piece_bytes=50, interval=timedelta(milliseconds=2))
    )

    assert (await _ask(client)).choices[0].message.content == "slow"


async def test_a_delay_comes_before_the_first_byte(
    endpoint: ScriptedEndpoint, client: openai.AsyncOpenAI
) -> None:
    """The reply is not there before its time."""
    endpoint.script(scripted.delayed(scripted.says("late"), timedelta(milliseconds=50)))
    started_at = time.monotonic()

    await _ask(client)

    assert time.monotonic() - started_at >= 0.05


async def test_a_held_reply_waits_for_its_gate(
    endpoint: ScriptedEndpoint, client: openai.AsyncOpenAI
) -> None:
    """A test can act while a call is surely running."""
    gate = threading.Event()
    endpoint.script(scripted.held(scripted.says("released"), gate))
    asking = asyncio.create_task(_ask(client))
    await asyncio.to_thread(endpoint.wait_for, 1)

    assert not asking.done()

    gate.set()

    assert (await asking).choices[0].message.content == "released"


async def test_many_requests_at_once_are_each_recorded(
    endpoint: ScriptedEndpoint, client: openai.AsyncOpenAI
) -> None:
    """Nothing is lost or answered twice under concurrency."""
    endpoint.respond_with(lambda request: scripted.says(request["messages"][0]["content"]))

    completions = await asyncio.gather(*(_ask(client, str(number)) for number in range(60)))

    assert [one.choices[0].message.content for one in completions] == [str(n) for n in range(60)]
    assert endpoint.count == 60


async def test_what_a_model_gets_wrong_reaches_the_client_unchanged(
    endpoint: ScriptedEndpoint, client: openai.AsyncOpenAI
) -> None:
    """Refusals, filters, cut answers, several calls, doubled keys, no usage, no choices."""
    endpoint.script(
        scripted.refuses("no"),
        scripted.filtered(),
        scripted.cut_off(),
        scripted.calls_tool('{"a": 1, "a": 2}', {"b": 3}, usage=None),
        scripted.completes([]),
        scripted.sends({"error": {"message": "overloaded"}}),
    )

    refused, blocked, cut, doubled, empty, error = [await _ask(client) for _ in range(6)]

    assert refused.choices[0].message.refusal == "no"
    assert blocked.choices[0].finish_reason == "content_filter"
    assert cut.choices[0].finish_reason == "length"
    assert [call.function.arguments for call in doubled.choices[0].message.tool_calls] == [
        '{"a": 1, "a": 2}',
        '{"b": 3}',
    ]
    assert doubled.usage is None
    assert empty.choices == []
    assert error.choices is None


async def test_raw_bytes_and_pages_are_sent_as_they_are(
    endpoint: ScriptedEndpoint, client: openai.AsyncOpenAI
) -> None:
    """A body need not be JSON."""
    endpoint.script(scripted.raw(b"{not json"), scripted.html())

    with pytest.raises(json.JSONDecodeError):
        await _ask(client)

    assert "Sign in" in str(await _ask(client))


async def test_clearing_forgets_script_and_records(endpoint: ScriptedEndpoint) -> None:
    """A fixture can be used for a second act."""
    endpoint.always(scripted.says("x"))
    endpoint.script(scripted.says("y"))

    endpoint.clear()

    assert endpoint.requests == ()
    assert endpoint.unscripted == 0


def test_stopping_is_quick_and_may_be_repeated() -> None:
    """Even with a client that waits for ever."""
    endpoint = ScriptedEndpoint(scripted.hangs())
    started_at = time.monotonic()

    endpoint.stop()
    endpoint.stop()

    assert time.monotonic() - started_at < 1


def test_waiting_for_requests_that_never_come_raises() -> None:
    """A wait is bounded."""
    with (
        ScriptedEndpoint() as endpoint,
        pytest.raises(TimeoutError, match="0 of 1"),
    ):
        endpoint.wait_for(1, timeout=timedelta(milliseconds=10))
