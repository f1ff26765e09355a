"""The model adapter against the real instructor, the real vendor client and real connections."""

import asyncio
import io
import json
import logging
import threading
import time
import tracemalloc
import warnings
import zlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pydantic import SecretStr

from pipeline.errors import AnswerError, ConfigurationError
from pipeline.extracting import prompting
from pipeline.failing.failures import classify
from pipeline.failing.reasons import Reason
from pipeline.models.asking import InstructedModel
from pipeline.models.choosing import model_from
from pipeline.models.http import ANSWER_BYTES
from pipeline.models.loggers import VENDOR_LOGGERS, quiet_vendor_loggers
from pipeline.ports.model import ModelRequest
from pipeline.settings import LLMSettings
from schemas.failure import Failure, FailureClass
from schemas.memory import Kind
from tests import scripted_endpoint as scripted
from tests.builders import turn
from tests.scripted_endpoint import Reply, ScriptedEndpoint
from tests.ticking import largest_gap

TEA = {
    "subject": "user",
    "attribute": "preference:drink",
    "label": "tea",
    "text": "The user likes tea.",
    "evidence": [1],
    "quote": "I like tea",
}
REQUEST = ModelRequest(
    turns=(turn(1, "I like tea, my canary is CANARY-4410"),),
    context=(),
    kinds=tuple(Kind),
    max_tokens=None,
)


def build(
    base_url: str, *, reasks: int = 1, timeout: timedelta = timedelta(seconds=5)
) -> InstructedModel:
    """Return a model at an endpoint."""
    return model_from(
        LLMSettings(
            provider="openai_compatible",
            model="scripted-1",
            base_url=base_url,
            timeout=timeout,
            reasks=reasks,
            max_tokens=1000,
        )
    )


@pytest.fixture
async def model(endpoint: ScriptedEndpoint) -> AsyncIterator[InstructedModel]:
    """A model that re-asks once."""
    built = build(endpoint.url)
    yield built
    await built.aclose()


async def failure_of(model: InstructedModel) -> Failure:
    """Return what is kept of the failure that a request ends in."""
    with pytest.raises(Exception) as raised:
        await model.answer(REQUEST)
    return classify(raised.value)


async def test_a_good_answer_is_one_request(
    endpoint: ScriptedEndpoint, model: InstructedModel
) -> None:
    """What was asked, answered and paid comes back."""
    endpoint.script(scripted.answers(semantic=[TEA], summary="Tea."))

    reply = await model.answer(REQUEST)

    assert reply.answer == {
        "semantic": [TEA],
        "episodic": [],
        "procedural": [],
        "taxonomic": [],
        "summary": "Tea.",
    }
    assert (reply.calls, reply.prompt_tokens, reply.completion_tokens) == (1, 100, 20)
    assert (reply.model, reply.finish_reason) == ("scripted-1", "tool_calls")
    assert reply.request_id == "req-scripted"
    assert endpoint.count == 1


async def test_what_is_sent(endpoint: ScriptedEndpoint, model: InstructedModel) -> None:
    """The messages as they are, one forced tool, the limit, and nothing of a template language."""
    request = ModelRequest(
        turns=(turn(1, "I like {{ 7 * 7 }} teas"),), context=(), kinds=tuple(Kind), max_tokens=77
    )
    endpoint.script(scripted.answers())

    await model.answer(request)

    sent = endpoint.requests[0].json
    assert sent["messages"] == prompting.messages(request)
    assert "{{ 7 * 7 }}" in sent["messages"][-1]["content"]
    assert [tool["function"]["name"] for tool in sent["tools"]] == [prompting.TOOL_NAME]
    assert sent["tool_choice"]["function"]["name"] == prompting.TOOL_NAME
    assert sent["tools"][0]["function"]["parameters"]["required"] == sorted(
        ["semantic", "episodic", "procedural", "taxonomic", "summary"]
    )
    assert (sent["max_tokens"], sent["temperature"]) == (77, 0.0)


VENDOR = "openai."
OURS = "pipeline.errors.AnswerError"
Expected = tuple[FailureClass, Reason, str]
"""The class, the reason, and whose error it is."""
HOPELESS: list[tuple[Reply, FailureClass, Reason, str]] = [
    (scripted.status(400), FailureClass.BAD_REQUEST, Reason.HTTP_400, VENDOR),
    (
        scripted.status(400, error_code="context_length_exceeded"),
        FailureClass.CONTEXT_LENGTH,
        Reason.CONTEXT_LENGTH_EXCEEDED,
        VENDOR,
    ),
    (
        scripted.status(400, error_code="content_filter"),
        FailureClass.FILTERED,
        Reason.CONTENT_FILTER,
        VENDOR,
    ),
    (
        scripted.status(400, error_code="unsupported_parameter"),
        FailureClass.PARAMETER_UNKNOWN,
        Reason.PARAMETER_REFUSED,
        VENDOR,
    ),
    (scripted.status(401), FailureClass.CREDENTIALS, Reason.HTTP_401, VENDOR),
    (scripted.status(402), FailureClass.QUOTA, Reason.HTTP_402, VENDOR),
    (scripted.status(403), FailureClass.CREDENTIALS, Reason.HTTP_403, VENDOR),
    (scripted.status(404), FailureClass.MODEL_UNKNOWN, Reason.HTTP_404, VENDOR),
    (
        scripted.status(404, error_code="model_not_found"),
        FailureClass.MODEL_UNKNOWN,
        Reason.MODEL_NOT_FOUND,
        VENDOR,
    ),
    (scripted.status(405), FailureClass.MODEL_UNKNOWN, Reason.NO_SUCH_ROUTE, VENDOR),
    (scripted.status(408), FailureClass.UNAVAILABLE, Reason.HTTP_408, VENDOR),
    (scripted.status(409), FailureClass.UNAVAILABLE, Reason.HTTP_409, VENDOR),
    (scripted.status(413), FailureClass.CONTEXT_LENGTH, Reason.HTTP_413, VENDOR),
    (scripted.status(418), FailureClass.UNAVAILABLE, Reason.HTTP_OTHER, VENDOR),
    (scripted.status(422), FailureClass.BAD_REQUEST, Reason.HTTP_422, VENDOR),
    (scripted.status(429), FailureClass.RATE_LIMITED, Reason.HTTP_429, VENDOR),
    (
        scripted.status(429, error_code="insufficient_quota"),
        FailureClass.QUOTA,
        Reason.INSUFFICIENT_QUOTA,
        VENDOR,
    ),
    (scripted.status(500), FailureClass.UNAVAILABLE, Reason.HTTP_500, VENDOR),
    (scripted.status(503), FailureClass.UNAVAILABLE, Reason.HTTP_503, VENDOR),
    (scripted.status(529), FailureClass.UNAVAILABLE, Reason.HTTP_529, VENDOR),
    (scripted.status(599), FailureClass.UNAVAILABLE, Reason.HTTP_5XX, VENDOR),
    (scripted.resets(), FailureClass.NETWORK, Reason.CONNECTION, VENDOR),
    (scripted.hangs_up(), FailureClass.NETWORK, Reason.CONNECTION, VENDOR),
    (
        scripted.truncated(scripted.answers(), sent_bytes=40),
        FailureClass.NETWORK,
        Reason.CONNECTION,
        VENDOR,
    ),
    (scripted.html(), FailureClass.UNAVAILABLE, Reason.NOT_A_COMPLETION, OURS),
    (scripted.raw(b"oops"), FailureClass.UNAVAILABLE, Reason.NOT_A_COMPLETION, OURS),
    (scripted.raw(b""), FailureClass.UNAVAILABLE, Reason.NOT_A_COMPLETION, OURS),
    (scripted.sends([1, 2]), FailureClass.UNAVAILABLE, Reason.NOT_A_COMPLETION, OURS),
    (scripted.completes([]), FailureClass.UNAVAILABLE, Reason.NO_CHOICES, OURS),
    (scripted.sends({"choices": None}), FailureClass.UNAVAILABLE, Reason.NO_CHOICES, OURS),
    (scripted.sends({"weird": 1}), FailureClass.UNAVAILABLE, Reason.NO_CHOICES, OURS),
    (scripted.sends({"error": {"code": 500}}), FailureClass.UNAVAILABLE, Reason.NO_CHOICES, OURS),
    (scripted.sends({"choices": [None]}), FailureClass.UNAVAILABLE, Reason.NOT_A_COMPLETION, OURS),
    (scripted.cut_off(), FailureClass.TRUNCATED, Reason.FINISH_LENGTH, OURS),
    (
        scripted.answers(finish_reason="length"),
        FailureClass.TRUNCATED,
        Reason.FINISH_LENGTH,
        OURS,
    ),
    (scripted.filtered(), FailureClass.FILTERED, Reason.CONTENT_FILTER, OURS),
    (
        scripted.answers(semantic=[TEA], finish_reason="content_filter"),
        FailureClass.FILTERED,
        Reason.CONTENT_FILTER,
        OURS,
    ),
    (
        scripted.answers(finish_reason="error"),
        FailureClass.UNAVAILABLE,
        Reason.FINISH_ERROR,
        OURS,
    ),
    (scripted.refuses(), FailureClass.REFUSED, Reason.REFUSAL, OURS),
]


@pytest.mark.parametrize(("reply", "expected"), [(case[0], case[1:]) for case in HOPELESS])
async def test_what_no_reask_can_help_is_one_request(
    endpoint: ScriptedEndpoint, model: InstructedModel, reply: Reply, expected: Expected
) -> None:
    """Statuses, connections, broken envelopes, truncation, filters, refusals."""
    endpoint.script(reply)

    failure = await failure_of(model)

    failure_class, reason, exception = expected
    assert (failure.failure_class, failure.reason) == (failure_class, reason)
    assert failure.exception.startswith(exception)
    assert endpoint.count == 1


EMPTY: dict[str, Any] = {
    "semantic": [],
    "episodic": [],
    "procedural": [],
    "taxonomic": [],
    "summary": "",
}
TWICE = json.dumps(EMPTY).replace("episodic", "semantic")
INVALID: list[tuple[Reply, Reason]] = [
    (scripted.calls_tool(EMPTY, EMPTY), Reason.TWO_TOOL_CALLS),
    (scripted.calls_tool(TWICE), Reason.DUPLICATE_KEY),
    (
        scripted.calls_tool(json.dumps({**EMPTY, "semantic": [0]}).replace("0", '{"a":1,"a":2}')),
        Reason.DUPLICATE_KEY,
    ),
    (scripted.answers(tool_name="Other"), Reason.WRONG_TOOL),
    (scripted.says("Sorry, I cannot help with that."), Reason.NO_TOOL_CALL),
    (scripted.says('Using {schema} now: {"semantic": []}'), Reason.NO_TOOL_CALL),
    (scripted.says(None), Reason.NO_TOOL_CALL),
    (scripted.calls_tool('{"semantic": ['), Reason.NOT_JSON),
    (scripted.calls_tool('Using {schema} now: {"semantic": []}'), Reason.NOT_JSON),
    (scripted.calls_tool(""), Reason.NOT_JSON),
    (scripted.calls_tool("[" * 200_000), Reason.NOT_JSON),
    (scripted.calls_tool(json.dumps({**EMPTY, "summary": float("nan")})), Reason.NOT_JSON),
    (scripted.calls_tool("[]"), Reason.WRONG_SHAPE),
    (scripted.calls_tool({**EMPTY, "facts": []}), Reason.WRONG_SHAPE),
    (scripted.calls_tool({**EMPTY, "semantic": {}}), Reason.WRONG_SHAPE),
    (scripted.calls_tool({"summary": ""}), Reason.WRONG_SHAPE),
    (scripted.calls_tool({**EMPTY, "summary": "x" * 1_000_001}), Reason.TOO_LARGE),
    (
        scripted.completes([{"role": "assistant", "content": "a"}] * 2),
        Reason.TWO_CHOICES,
    ),
]


@pytest.mark.parametrize(("reply", "reason"), INVALID)
@pytest.mark.parametrize("reasks", [0, 1, 2])
async def test_an_invalid_answer_is_asked_for_again_and_no_more(
    endpoint: ScriptedEndpoint, reply: Reply, reason: Reason, reasks: int
) -> None:
    """All requests of an attempt are 1 + re-asks, and their number is on the error."""
    endpoint.always(reply)
    model = build(endpoint.url, reasks=reasks)

    with pytest.raises(AnswerError) as raised:
        await model.answer(REQUEST)
    await model.aclose()

    assert classify(raised.value).failure_class is FailureClass.INVALID_OUTPUT
    assert raised.value.reason == reason
    assert raised.value.calls == endpoint.count == 1 + reasks


@pytest.mark.parametrize("reply", [reply for reply, _ in INVALID])
async def test_an_answer_that_is_right_the_second_time_counts(
    endpoint: ScriptedEndpoint, model: InstructedModel, reply: Reply
) -> None:
    """The cost of both requests is recorded once, not added up twice."""
    endpoint.script(reply, scripted.answers(semantic=[TEA]))

    answered = await model.answer(REQUEST)

    assert answered.answer["semantic"] == [TEA]
    assert (answered.calls, answered.prompt_tokens, answered.completion_tokens) == (2, 200, 40)
    assert endpoint.count == 2


def changed(reply: Reply, *path: str | int, to: Any) -> Reply:
    """Return a completion whose message has another value at a path."""
    body = json.loads(reply.body)
    place = body["choices"][0]["message"]
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return scripted.sends(body)


PRIVATE = {"CANARY-4410": ["CANARY-4410"]}
CALL = ("tool_calls", 0)
UNFORESEEN = [
    changed(scripted.calls_tool(TWICE), *path, to=PRIVATE)
    for path in [
        ("content",),
        ("role",),
        ("function_call",),
        ("annotations",),
        ("audio",),
        ("more",),
        (*CALL, "id"),
        (*CALL, "type"),
        (*CALL, "more"),
        (*CALL, "function", "name"),
        (*CALL, "function", "arguments"),
    ]
] + [changed(scripted.says("CANARY-4410"), "tool_calls", to=PRIVATE)]


@pytest.mark.parametrize("reply", UNFORESEEN)
@pytest.mark.filterwarnings("default")
async def test_what_nobody_validated_is_in_no_warning(
    endpoint: ScriptedEndpoint, model: InstructedModel, reply: Reply
) -> None:
    """A re-ask dumps a message, and pydantic quotes what it finds of another type than foreseen."""
    endpoint.script(reply, scripted.answers(semantic=[TEA]))

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        answered = await model.answer(REQUEST)

    assert answered.answer["semantic"] == [TEA]
    assert endpoint.count == 2
    assert [str(warning.message) for warning in warned] == []


async def test_arguments_that_come_as_an_object_are_read(
    endpoint: ScriptedEndpoint, model: InstructedModel
) -> None:
    """Some servers forget that the protocol has them as text."""
    reply = scripted.answers(semantic=[TEA])
    endpoint.script(changed(reply, *CALL, "function", "arguments", to={**EMPTY, "semantic": [TEA]}))

    assert (await model.answer(REQUEST)).answer["semantic"] == [TEA]
    assert endpoint.count == 1


async def test_a_key_that_stands_twice_in_an_object_is_told(
    endpoint: ScriptedEndpoint, model: InstructedModel
) -> None:
    """Also there, a parser would keep the last one only."""
    body = changed(scripted.answers(), *CALL, "function", "arguments", to=0).body
    endpoint.script(
        scripted.raw(body.replace(b'"arguments": 0', b'"arguments": ' + TWICE.encode())),
        scripted.answers(semantic=[TEA]),
    )

    assert (await model.answer(REQUEST)).calls == 2
    assert "stands twice" in endpoint.requests[1].messages[-1]["content"]


async def test_a_reask_gives_back_what_a_server_added_to_a_call(
    endpoint: ScriptedEndpoint, model: InstructedModel
) -> None:
    """The signature of a thought, for one: without it the next request is refused."""
    signed = changed(scripted.calls_tool(TWICE), *CALL, "extra_content", to={"signature": "abc"})
    endpoint.script(signed, scripted.answers())

    await model.answer(REQUEST)

    calls = [message["tool_calls"] for message in endpoint.requests[1].messages[2:3]]
    assert calls[0][0]["extra_content"] == {"signature": "abc"}


async def test_a_reask_says_what_is_wrong(
    endpoint: ScriptedEndpoint, model: InstructedModel
) -> None:
    """Each of two calls is answered, as the protocol wants it, by what to do about them."""
    endpoint.script(scripted.calls_tool(EMPTY, EMPTY), scripted.answers())

    await model.answer(REQUEST)

    told = [message for message in endpoint.requests[1].messages if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in told] == ["call_1", "call_2"]
    assert all("exactly once" in message["content"] for message in told)


@pytest.mark.parametrize("then", [scripted.refuses(), scripted.status(503), scripted.cut_off()])
async def test_a_reask_can_end_otherwise(
    endpoint: ScriptedEndpoint, model: InstructedModel, then: Reply
) -> None:
    """The last word decides the class, and what came before does not show through."""
    endpoint.script(scripted.says("hm"), then)

    failure = await failure_of(model)

    assert failure.failure_class in {
        FailureClass.REFUSED,
        FailureClass.UNAVAILABLE,
        FailureClass.TRUNCATED,
    }
    assert endpoint.count == 2


async def test_an_empty_refusal_is_none(endpoint: ScriptedEndpoint, model: InstructedModel) -> None:
    """Some servers send the field always."""
    body = json.loads(scripted.answers(semantic=[TEA]).body)
    body["choices"][0]["message"]["refusal"] = ""
    endpoint.script(scripted.sends(body))

    assert (await model.answer(REQUEST)).answer["semantic"] == [TEA]


async def test_no_usage_block_is_no_cost_rather_than_none(
    endpoint: ScriptedEndpoint, model: InstructedModel
) -> None:
    """A cost that is not known in full is not known."""
    endpoint.script(scripted.says("hm"), scripted.answers(usage=None))

    reply = await model.answer(REQUEST)

    assert (reply.prompt_tokens, reply.completion_tokens, reply.calls) == (None, None, 2)


@pytest.mark.parametrize("number", [2**63, -1, True, 20.0, "20", None, [20]])
async def test_a_cost_that_is_no_number_of_tokens_is_not_known(
    endpoint: ScriptedEndpoint, model: InstructedModel, number: object
) -> None:
    """The database would refuse some of them, and the answer that was paid for with them."""
    usage = {"prompt_tokens": 100, "completion_tokens": number, "total_tokens": number}
    endpoint.script(scripted.answers(usage=usage))

    reply = await model.answer(REQUEST)

    assert (reply.prompt_tokens, reply.completion_tokens, reply.calls) == (100, None, 1)


async def test_costs_that_add_up_to_no_storable_number_are_not_known(
    endpoint: ScriptedEndpoint, model: InstructedModel
) -> None:
    """Each of them is one."""
    usage = {"prompt_tokens": 2**62, "completion_tokens": 2**63 - 1, "total_tokens": 0}
    endpoint.script(scripted.says("hm", usage=usage), scripted.answers(usage=usage))

    reply = await model.answer(REQUEST)

    assert (reply.prompt_tokens, reply.completion_tokens, reply.calls) == (None, None, 2)


async def test_a_failure_says_what_it_cost(
    endpoint: ScriptedEndpoint, model: InstructedModel
) -> None:
    """An answer that can't be used is paid for too."""
    endpoint.always(scripted.says("hm"))

    with pytest.raises(AnswerError) as raised:
        await model.answer(REQUEST)

    assert (raised.value.prompt_tokens, raised.value.completion_tokens) == (200, 40)


async def test_an_item_that_cannot_be_stored_keeps_its_place(
    endpoint: ScriptedEndpoint, model: InstructedModel
) -> None:
    """Its neighbours keep theirs; a lone surrogate is repaired."""
    unstorable: list[Any] = [2**63, {"a\0": 1}, json.loads("[" * 40 + "]" * 40)]
    endpoint.script(
        scripted.calls_tool(
            json.dumps({**EMPTY, "semantic": [*unstorable, TEA, {"label": "\ud83d"}]})
        )
    )

    reply = await model.answer(REQUEST)

    assert reply.answer["semantic"] == [None, None, None, TEA, {"label": "\ufffd"}]


async def test_no_secret_is_in_what_comes_back(
    endpoint: ScriptedEndpoint, model: InstructedModel
) -> None:
    """Neither one that looks like it, nor one that only the turn tells to be one."""
    said = turn(1, "my key is sk-test-0000000000000000000000 and my password is swordfish9")
    item = {**TEA, "label": "swordfish9", "sk-test-0000000000000000000000": 1}
    endpoint.script(
        scripted.answers(semantic=[item], summary="Key sk-test-0000000000000000000000.")
    )

    reply = await model.answer(
        ModelRequest(turns=(said,), context=(), kinds=tuple(Kind), max_tokens=None)
    )

    stored = reply.model_dump_json()
    assert "sk-test" not in stored
    assert "swordfish9" not in stored
    assert reply.secrets_removed == 3
    assert "swordfish9" not in endpoint.requests[0].body.decode()


async def test_retry_after_reaches_the_failure(
    endpoint: ScriptedEndpoint, model: InstructedModel
) -> None:
    """Nobody waits in the call; the vendor's request id is kept."""
    endpoint.script(scripted.status(429, retry_after=120))

    failure = await failure_of(model)

    assert failure.retry_after_seconds == 120
    assert failure.request_id == "req-scripted"
    assert failure.frame == "pipeline.models.openai:OpenAI.send"


@pytest.mark.parametrize(
    "reply",
    [
        scripted.hangs(),
        scripted.trickled(scripted.answers(), interval=timedelta(milliseconds=20)),
    ],
)
async def test_silence_ends_at_the_deadline(endpoint: ScriptedEndpoint, reply: Reply) -> None:
    """Also where a byte now and then keeps the connection from timing out."""
    endpoint.script(reply)
    model = build(endpoint.url, timeout=timedelta(seconds=0.3))

    failure = await asyncio.wait_for(failure_of(model), 5)
    await model.aclose()

    assert (failure.failure_class, failure.reason) == (
        FailureClass.TIMEOUT,
        Reason.NO_ANSWER_IN_TIME,
    )
    assert endpoint.count == 1


TOO_LARGE = [
    scripted.endless(scripted.answers()),
    scripted.packed(scripted.raw(b" " * (ANSWER_BYTES + 1))),
    scripted.raw(b" " * (ANSWER_BYTES + 1)),
]


@pytest.mark.parametrize("reply", TOO_LARGE)
async def test_an_answer_without_bounds_is_left_unread(
    endpoint: ScriptedEndpoint, model: InstructedModel, reply: Reply
) -> None:
    """It is an invalid one, at once."""
    endpoint.script(reply)

    failure = await failure_of(model)

    assert failure.failure_class is FailureClass.INVALID_OUTPUT
    assert failure.reason == Reason.ANSWER_TOO_LARGE
    assert endpoint.count == 1


async def test_the_largest_answer_is_read(
    endpoint: ScriptedEndpoint, model: InstructedModel
) -> None:
    """Packed or not."""
    answer = scripted.answers(semantic=[TEA])
    padded = scripted.raw(answer.body.ljust(ANSWER_BYTES))
    endpoint.script(padded, scripted.packed(padded), scripted.packed(answer))

    for _ in range(3):
        assert (await model.answer(REQUEST)).answer["semantic"] == [TEA]


async def test_what_unpacks_into_gigabytes_takes_no_memory(
    endpoint: ScriptedEndpoint, model: InstructedModel
) -> None:
    """The limit counts what comes out, and holds while it comes."""
    body = zlib.compressobj(9, wbits=31)
    megabyte = b" " * 2**20
    packed = b"".join(body.compress(megabyte) for _ in range(200)) + body.flush()
    endpoint.script(replace(scripted.raw(packed), headers={"Content-Encoding": "gzip"}))

    tracemalloc.start()
    failure = await failure_of(model)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert failure.reason == Reason.ANSWER_TOO_LARGE
    assert peak < 4 * ANSWER_BYTES


@pytest.mark.parametrize("packing", ["br", "gzip", "gzip, gzip"])
async def test_what_cannot_be_unpacked_is_no_completion(
    endpoint: ScriptedEndpoint, model: InstructedModel, packing: str
) -> None:
    """Nobody asked for it."""
    endpoint.script(replace(scripted.answers(), headers={"Content-Encoding": packing}))

    failure = await failure_of(model)

    assert (failure.failure_class, failure.reason) == (
        FailureClass.UNAVAILABLE,
        Reason.NOT_A_COMPLETION,
    )


async def test_a_failure_is_its_status_however_long_it_goes_on(
    endpoint: ScriptedEndpoint, model: InstructedModel
) -> None:
    """Its body is not waited for."""
    endpoint.script(scripted.endless(scripted.status(503)))

    failure = await failure_of(model)

    assert (failure.failure_class, failure.reason) == (FailureClass.UNAVAILABLE, Reason.HTTP_503)


async def test_a_conversation_is_not_carried_on_to_another_place(
    endpoint: ScriptedEndpoint, model: InstructedModel
) -> None:
    """A redirect is no answer."""
    there = replace(scripted.status(307), headers={"Location": f"{endpoint.url}/elsewhere"})
    endpoint.script(there)

    failure = await failure_of(model)

    assert (failure.failure_class, failure.reason) == (FailureClass.UNAVAILABLE, Reason.HTTP_OTHER)
    assert endpoint.count == 1


async def test_nobody_listening_is_the_network() -> None:
    """Refused at once."""
    with ScriptedEndpoint() as gone:
        url = gone.url
    model = build(url)

    failure = await failure_of(model)
    await model.aclose()

    assert (failure.failure_class, failure.reason) == (FailureClass.NETWORK, Reason.CONNECTION)


async def test_a_cancelled_call_is_cancelled(
    endpoint: ScriptedEndpoint, model: InstructedModel
) -> None:
    """It is no failure, and nothing is asked again."""
    gate = threading.Event()
    endpoint.script(scripted.held(scripted.answers(), gate))
    call = asyncio.create_task(model.answer(REQUEST))
    await asyncio.to_thread(endpoint.wait_for, 1)

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    gate.set()

    assert endpoint.count == 1


@pytest.mark.parametrize("filler", ["my password is ", "a", "喝茶"])
async def test_the_loop_goes_on_while_a_long_turn_is_asked_about(
    endpoint: ScriptedEndpoint, filler: str
) -> None:
    """Its secrets are looked for before and after, and neither stops anybody else."""
    model = build(endpoint.url, timeout=timedelta(seconds=60))
    await model.prepare()
    endpoint.script(scripted.answers(semantic=[TEA]))
    text = filler * (500_000 // len(filler))
    request = ModelRequest(turns=(turn(1, text),), context=(), kinds=tuple(Kind), max_tokens=None)
    started = time.perf_counter()

    gap = await largest_gap(model.answer(request))

    assert gap < max(1.0, (time.perf_counter() - started) / 2)
    await model.aclose()


async def test_calls_at_once_do_not_mix(endpoint: ScriptedEndpoint, model: InstructedModel) -> None:
    """Each answer has its own number of calls and its own cost."""
    first = iter([scripted.says("hm")] * 1)

    def respond(request: dict[str, Any]) -> Reply:
        needs_reask = "REASK" in request["messages"][1]["content"]
        return next(first) if needs_reask and len(request["messages"]) == 2 else scripted.answers()

    endpoint.respond_with(respond)
    requests = [
        ModelRequest(turns=(turn(1, text),), context=(), kinds=tuple(Kind), max_tokens=None)
        for text in ["REASK", *["fine"] * 9]
    ]

    replies = await asyncio.gather(*(model.answer(request) for request in requests))

    assert [reply.calls for reply in replies] == [2, *[1] * 9]
    assert [reply.prompt_tokens for reply in replies] == [200, *[100] * 9]


@pytest.mark.parametrize(
    "reply", [scripted.status(503), scripted.status(429, retry_after=0), scripted.resets()]
)
async def test_the_vendor_client_retries_nothing(
    endpoint: ScriptedEndpoint, model: InstructedModel, reply: Reply
) -> None:
    """Its retries would multiply with ours (I4)."""
    endpoint.always(reply)

    await failure_of(model)

    assert endpoint.count == 1


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """What reaches the root, with the vendors' loggers made quiet and then set to debug.

    `OPENAI_LOG=debug` sets their level too. pytest's own `caplog` would listen at each of them.
    """
    root = logging.getLogger()
    loggers = [root, *(logging.getLogger(name) for name in VENDOR_LOGGERS)]
    before = [(logger.level, logger.propagate, list(logger.handlers)) for logger in loggers]
    written = io.StringIO()
    root.addHandler(logging.StreamHandler(written))
    quiet_vendor_loggers()
    for logger in loggers:
        logger.setLevel(logging.DEBUG)
    yield written
    for logger, (level, propagate, handlers) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.propagate = propagate
        logger.handlers = handlers


async def test_no_library_logs_what_was_said(
    endpoint: ScriptedEndpoint, model: InstructedModel, logged: io.StringIO
) -> None:
    """Neither what was asked nor what was answered."""
    endpoint.always(scripted.says("CANARY-4410"))

    failure = await failure_of(model)

    assert "CANARY" not in logged.getvalue()
    assert "CANARY" not in failure.model_dump_json()


async def test_an_error_quotes_nothing(endpoint: ScriptedEndpoint, model: InstructedModel) -> None:
    """Neither the error of ours nor what hangs on it holds a word."""
    endpoint.always(scripted.calls_tool({"CANARY-4410": 1}))

    with pytest.raises(AnswerError) as raised:
        await model.answer(REQUEST)

    error: BaseException | None = raised.value
    while error is not None:
        assert "CANARY" not in repr(vars(error)) + str(error)
        error = error.__cause__ or error.__context__


async def test_preparing_loads_what_the_first_call_needs(model: InstructedModel) -> None:
    """Twice is as good as once, and nothing is sent."""
    await model.prepare()
    await model.prepare()


def test_the_version_is_of_what_shapes_an_answer() -> None:
    """Another model or another temperature is another version; another place is not."""
    url, elsewhere = "http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1"

    assert build(url).version == build(elsewhere).version
    assert build(url).version.startswith("v1-")


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        (LLMSettings(), "AFTERTURN_LLM__PROVIDER"),
        (LLMSettings(provider="openai", model="gpt"), "AFTERTURN_LLM__API_KEY"),
        (LLMSettings(provider="openai", api_key=SecretStr("k")), "AFTERTURN_LLM__MODEL"),
        (LLMSettings(provider="openai_compatible", model="m"), "AFTERTURN_LLM__BASE_URL"),
    ],
)
def test_a_model_that_is_not_configured_says_what_to_set(
    settings: LLMSettings, missing: str
) -> None:
    """Before anything starts."""
    with pytest.raises(ConfigurationError, match=missing):
        model_from(settings)


@pytest.mark.parametrize(
    ("provider", "limit"),
    [("openai", "max_completion_tokens"), ("openai_compatible", "max_tokens")],
)
async def test_a_provider_is_told_the_limit_in_its_own_words(
    endpoint: ScriptedEndpoint, provider: Any, limit: str
) -> None:
    """OpenAI's newer models refuse the old word, and most other servers do not know the new."""
    endpoint.script(scripted.answers())
    model = model_from(
        LLMSettings(provider=provider, model="m", base_url=endpoint.url, api_key=SecretStr("k"))
    )

    await model.answer(REQUEST)
    await model.aclose()

    sent = endpoint.requests[0].json
    assert {key for key in sent if key.startswith("max_")} == {limit}
    assert sent[limit] == model.max_tokens
