"""What holds for every vendor: the same laws, with its real client, over its own wire."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pydantic import SecretStr

from pipeline.errors import AnswerError
from pipeline.failing.failures import classify
from pipeline.failing.reasons import Reason
from pipeline.models.asking import InstructedModel
from pipeline.models.choosing import model_from
from pipeline.models.http import ANSWER_BYTES
from pipeline.ports.model import ModelRequest
from pipeline.settings import LLMSettings
from schemas.failure import Failure, FailureClass
from schemas.memory import Kind
from tests import scripted_endpoint as scripted
from tests.builders import turn
from tests.scripted_endpoint import Json, Reply, ScriptedEndpoint
from tests.wires import WIRES, End, Wire

TEA: Json = {
    "subject": "user",
    "attribute": "preference:drink",
    "label": "tea",
    "text": "The user likes tea.",
    "evidence": [1],
    "quote": "I like tea",
}
EMPTY: Json = {"semantic": [], "episodic": [], "procedural": [], "taxonomic": [], "summary": ""}
GOOD: Json = {**EMPTY, "semantic": [TEA]}
REQUEST = ModelRequest(
    turns=(turn(1, "I like {{ tea }}, my password is swordfish9, CANARY-4410"),),
    context=(),
    kinds=tuple(Kind),
    max_tokens=None,
)


def build(wire: Wire, url: str, timeout: timedelta = timedelta(seconds=10)) -> InstructedModel:
    """Return a vendor's model at an endpoint."""
    return model_from(
        LLMSettings(
            provider=wire.provider,
            model="scripted-1",
            base_url=url,
            api_key=SecretStr("the-key"),
            timeout=timeout,
        )
    )


@pytest.fixture(params=WIRES, ids=lambda wire: wire.provider)
def wire(request: pytest.FixtureRequest) -> Wire:
    """One vendor after the other."""
    return request.param


@pytest.fixture
async def model(wire: Wire, endpoint: ScriptedEndpoint) -> AsyncIterator[InstructedModel]:
    """Its model, which re-asks once."""
    built = build(wire, endpoint.url)
    await built.prepare()
    yield built
    await built.aclose()


async def failure_of(model: InstructedModel) -> Failure:
    """Return what is kept of the failure that a request ends in."""
    with pytest.raises(Exception) as raised:
        await model.answer(REQUEST)
    return classify(raised.value)


async def test_a_good_answer_is_one_request(
    wire: Wire, endpoint: ScriptedEndpoint, model: InstructedModel
) -> None:
    """What was asked is what was said, and what was answered and paid comes back."""
    endpoint.script(wire.calls(GOOD))

    reply = await model.answer(REQUEST)

    assert reply.answer == GOOD
    assert (reply.calls, reply.prompt_tokens, reply.completion_tokens) == (1, 100, 20)
    assert (reply.model, reply.finish_reason) == ("scripted-1", wire.ends["good"])
    sent = endpoint.requests[0].body.decode()
    assert "I like {{ tea }}" in sent
    assert "swordfish9" not in sent
    assert "4096" in sent
    assert any("the-key" in value for value in endpoint.requests[0].headers.values())


STATUSES: list[tuple[int, FailureClass, Reason]] = [
    (400, FailureClass.BAD_REQUEST, Reason.HTTP_400),
    (401, FailureClass.CREDENTIALS, Reason.HTTP_401),
    (402, FailureClass.QUOTA, Reason.HTTP_402),
    (403, FailureClass.CREDENTIALS, Reason.HTTP_403),
    (404, FailureClass.MODEL_UNKNOWN, Reason.HTTP_404),
    (408, FailureClass.UNAVAILABLE, Reason.HTTP_408),
    (409, FailureClass.UNAVAILABLE, Reason.HTTP_409),
    (413, FailureClass.CONTEXT_LENGTH, Reason.HTTP_413),
    (422, FailureClass.BAD_REQUEST, Reason.HTTP_422),
    (429, FailureClass.RATE_LIMITED, Reason.HTTP_429),
    (500, FailureClass.UNAVAILABLE, Reason.HTTP_500),
    (502, FailureClass.UNAVAILABLE, Reason.HTTP_502),
    (503, FailureClass.UNAVAILABLE, Reason.HTTP_503),
    (504, FailureClass.UNAVAILABLE, Reason.HTTP_504),
    (529, FailureClass.UNAVAILABLE, Reason.HTTP_529),
]


@pytest.mark.parametrize(("code", "expected"), [(case[0], case[1:]) for case in STATUSES])
async def test_a_status_has_one_class_whoever_sends_it(
    wire: Wire,
    endpoint: ScriptedEndpoint,
    model: InstructedModel,
    code: int,
    expected: tuple[FailureClass, Reason],
) -> None:
    """And is one request: the vendor's client tries nothing again by itself (I4)."""
    endpoint.script(replace(wire.status(code), headers={"Retry-After": "120"}))

    failure = await failure_of(model)

    assert (failure.failure_class, failure.reason) == expected
    assert failure.retry_after_seconds == 120
    assert endpoint.count == 1


OTHERS: list[tuple[Reply, FailureClass, Reason]] = [
    (scripted.resets(), FailureClass.NETWORK, Reason.CONNECTION),
    (scripted.hangs_up(), FailureClass.NETWORK, Reason.CONNECTION),
    (
        scripted.truncated(scripted.answers(), sent_bytes=40),
        FailureClass.NETWORK,
        Reason.CONNECTION,
    ),
    (scripted.html(), FailureClass.UNAVAILABLE, Reason.NOT_A_COMPLETION),
    (scripted.raw(b""), FailureClass.UNAVAILABLE, Reason.NOT_A_COMPLETION),
    (scripted.raw(b"oops"), FailureClass.UNAVAILABLE, Reason.NOT_A_COMPLETION),
    (scripted.sends([1, 2]), FailureClass.UNAVAILABLE, Reason.NOT_A_COMPLETION),
    (scripted.html(code=503), FailureClass.UNAVAILABLE, Reason.HTTP_503),
    (scripted.endless(scripted.status(503)), FailureClass.UNAVAILABLE, Reason.HTTP_503),
    (
        replace(scripted.status(503), body=b"<p>Service indisponible, d\xe9sol\xe9</p>"),
        FailureClass.UNAVAILABLE,
        Reason.HTTP_503,
    ),
    (
        replace(scripted.status(503), body=b"[" * 30_000),
        FailureClass.UNAVAILABLE,
        Reason.HTTP_503,
    ),
    (
        scripted.endless(scripted.answers()),
        FailureClass.INVALID_OUTPUT,
        Reason.ANSWER_TOO_LARGE,
    ),
    (
        scripted.packed(scripted.raw(b" " * (ANSWER_BYTES + 1))),
        FailureClass.INVALID_OUTPUT,
        Reason.ANSWER_TOO_LARGE,
    ),
]


@pytest.mark.parametrize(("reply", "failure_class", "reason"), OTHERS)
async def test_what_is_no_answer_has_one_class_whoever_is_asked(
    endpoint: ScriptedEndpoint,
    model: InstructedModel,
    reply: Reply,
    failure_class: FailureClass,
    reason: Reason,
) -> None:
    """Connections, proxies' pages, bodies without bounds."""
    endpoint.script(reply)

    failure = await failure_of(model)

    assert (failure.failure_class, failure.reason) == (failure_class, reason)
    assert endpoint.count == 1


@pytest.mark.parametrize("document", [{}, {"error": {"code": 500}}, {"weird": 1}])
async def test_a_document_that_is_no_completion_is_none(
    endpoint: ScriptedEndpoint, model: InstructedModel, document: Json
) -> None:
    """Whatever else it holds."""
    endpoint.script(scripted.sends(document))

    failure = await failure_of(model)

    assert failure.failure_class is FailureClass.UNAVAILABLE
    assert failure.reason in {Reason.NO_CHOICES, Reason.NOT_A_COMPLETION}
    assert endpoint.count == 1


SAID: list[tuple[str, int, str, FailureClass]] = [
    ("openai", 429, "insufficient_quota", FailureClass.QUOTA),
    ("anthropic", 400, "billing_error", FailureClass.QUOTA),
    ("gemini", 400, "API_KEY_INVALID", FailureClass.CREDENTIALS),
]


@pytest.mark.parametrize(("provider", "code", "said", "failure_class"), SAID)
async def test_a_vendors_own_code_goes_before_the_status(
    endpoint: ScriptedEndpoint, provider: str, code: int, said: str, failure_class: FailureClass
) -> None:
    """Each has it in another place."""
    wire = next(wire for wire in WIRES if wire.provider == provider)
    endpoint.script(wire.status(code, said=said))
    model = build(wire, endpoint.url)

    failure = await failure_of(model)
    await model.aclose()

    assert failure.failure_class is failure_class


async def test_gemini_says_in_the_body_how_long_to_wait(endpoint: ScriptedEndpoint) -> None:
    """And by the name of the quota, whether that is until tomorrow."""
    wire = next(wire for wire in WIRES if wire.provider == "gemini")
    retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "37.5s"}
    spent = {
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel"}],
    }
    for details in ([retry], [spent, retry], [None, 1, {"violations": [1]}, {"violations": 1}]):
        error = {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": details}
        endpoint.script(replace(scripted.sends({"error": error}), status=429))
    model = build(wire, endpoint.url)

    failures = [await failure_of(model) for _ in range(3)]
    await model.aclose()

    assert [failure.retry_after_seconds for failure in failures] == [37.5, 37.5, None]
    assert [failure.failure_class for failure in failures] == [
        FailureClass.RATE_LIMITED,
        FailureClass.QUOTA,
        FailureClass.RATE_LIMITED,
    ]


ENDS: list[tuple[End, FailureClass, Reason]] = [
    ("cut_off", FailureClass.TRUNCATED, Reason.FINISH_LENGTH),
    ("refused", FailureClass.REFUSED, Reason.REFUSAL),
    ("filtered", FailureClass.FILTERED, Reason.CONTENT_FILTER),
    ("broken_off", FailureClass.UNAVAILABLE, Reason.FINISH_ERROR),
]


@pytest.mark.parametrize(("end", "expected"), [(case[0], case[1:]) for case in ENDS])
async def test_how_an_answer_ended_goes_before_what_it_holds(
    wire: Wire,
    endpoint: ScriptedEndpoint,
    model: InstructedModel,
    end: End,
    expected: tuple[FailureClass, Reason],
) -> None:
    """Also a complete one that was broken off is not to be trusted; nothing is asked again."""
    if end not in wire.ends:
        assert end in {"refused", "filtered"}  # not every vendor tells the two apart
        return
    endpoint.script(wire.calls(GOOD, end=end))

    failure = await failure_of(model)

    assert (failure.failure_class, failure.reason) == expected
    assert endpoint.count == 1


async def test_a_prompt_that_gemini_blocks_is_filtered(endpoint: ScriptedEndpoint) -> None:
    """There is no candidate then."""
    wire = next(wire for wire in WIRES if wire.provider == "gemini")
    endpoint.script(scripted.sends({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}))
    model = build(wire, endpoint.url)

    failure = await failure_of(model)
    await model.aclose()

    assert failure.failure_class is FailureClass.FILTERED


def twice(reply: Reply) -> Reply:
    """Return an answer in which a list stands twice."""
    return scripted.raw(reply.body.replace(b"episodic", b"semantic"))


def defects(wire: Wire) -> list[tuple[Reply, Reason]]:
    """Return what asking again may mend."""
    return [
        (wire.calls(GOOD, EMPTY), Reason.TWO_TOOL_CALLS),
        (wire.calls(GOOD, name="Other"), Reason.WRONG_TOOL),
        (wire.calls({**EMPTY, "facts": []}), Reason.WRONG_SHAPE),
        (wire.calls({"summary": ""}), Reason.WRONG_SHAPE),
        (wire.calls({**EMPTY, "summary": "x" * 1_000_001}), Reason.TOO_LARGE),
        (wire.says("Sorry, CANARY-4410."), Reason.NO_TOOL_CALL),
        (wire.says(""), Reason.NO_TOOL_CALL),
        (wire.calls(), Reason.NO_TOOL_CALL),
        (twice(wire.calls(EMPTY)), Reason.DUPLICATE_KEY),
    ]


@pytest.mark.parametrize("number", range(9))
async def test_a_defect_is_told_and_asked_about_once(
    wire: Wire, endpoint: ScriptedEndpoint, model: InstructedModel, number: int
) -> None:
    """Both requests are counted and paid; the error quotes nothing."""
    reply, reason = defects(wire)[number]
    endpoint.always(reply)

    with pytest.raises(AnswerError) as raised:
        await model.answer(REQUEST)

    assert classify(raised.value).failure_class is FailureClass.INVALID_OUTPUT
    assert raised.value.reason == reason
    assert raised.value.calls == endpoint.count == 2
    assert raised.value.prompt_tokens == 200
    assert "rror" in wire.told(endpoint.requests[1])
    error: BaseException | None = raised.value
    while error is not None:
        assert "CANARY" not in repr(vars(error)) + str(error)
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize("number", range(9))
async def test_an_answer_that_is_right_the_second_time_counts(
    wire: Wire, endpoint: ScriptedEndpoint, model: InstructedModel, number: int
) -> None:
    """Its cost is that of both requests."""
    endpoint.script(defects(wire)[number][0], wire.calls(GOOD))

    reply = await model.answer(REQUEST)

    assert reply.answer == GOOD
    assert (reply.calls, reply.prompt_tokens, reply.completion_tokens) == (2, 200, 40)


async def test_silence_ends_at_the_deadline(wire: Wire, endpoint: ScriptedEndpoint) -> None:
    """Also where a byte now and then keeps the connection from timing out."""
    model = build(wire, endpoint.url, timedelta(seconds=0.5))
    await model.prepare()
    slow = scripted.trickled(wire.calls(GOOD), interval=timedelta(milliseconds=20))
    endpoint.script(scripted.hangs(), slow)

    failures = [await failure_of(model) for _ in range(2)]
    await model.aclose()

    assert {failure.failure_class for failure in failures} == {FailureClass.TIMEOUT}
    assert endpoint.count == 2


async def test_nobody_listening_is_the_network(wire: Wire) -> None:
    """Refused at once."""
    with ScriptedEndpoint() as gone:
        url = gone.url
    model = build(wire, url)

    failure = await failure_of(model)
    await model.aclose()

    assert (failure.failure_class, failure.reason) == (FailureClass.NETWORK, Reason.CONNECTION)


async def test_a_check_costs_nothing_and_says_what_is_wrong(
    wire: Wire, endpoint: ScriptedEndpoint, model: InstructedModel
) -> None:
    """It asks which models there are, and nothing of a model."""
    endpoint.script(scripted.sends({"data": [], "models": []}), wire.status(401), scripted.resets())

    found = [await model.check() for _ in range(3)]

    assert [failure and failure.failure_class for failure in found] == [
        None,
        FailureClass.CREDENTIALS,
        FailureClass.NETWORK,
    ]
    assert {request.method for request in endpoint.requests} == {"GET"}


async def test_a_thoughts_signature_is_given_back_to_gemini(endpoint: ScriptedEndpoint) -> None:
    """Without it the next request is refused."""
    wire = next(wire for wire in WIRES if wire.provider == "gemini")
    body: Any = json.loads(wire.calls({"summary": ""}).body)
    body["candidates"][0]["content"]["parts"][0]["thoughtSignature"] = "c2lnbmVk"
    endpoint.script(scripted.sends(body), wire.calls(GOOD))
    model = build(wire, endpoint.url)

    await model.answer(REQUEST)
    await model.aclose()

    assert "c2lnbmVk" in endpoint.requests[1].body.decode()


@pytest.mark.parametrize("provider", ["openai", "openai_compatible"])
def test_a_vendors_client_is_loaded_only_where_it_is_asked(provider: str) -> None:
    """Each takes seconds and megabytes; also asking does not load another's."""
    code = f"""
import asyncio, sys
from datetime import timedelta
from pydantic import SecretStr
from pipeline.models.choosing import model_from
from pipeline.settings import LLMSettings
from tests.integration.test_models import EMPTY, REQUEST
from tests import scripted_endpoint as scripted
async def main():
    with scripted.ScriptedEndpoint(scripted.answers(usage=None)) as endpoint:
        model = model_from(LLMSettings(
            provider={provider!r}, model="m", base_url=endpoint.url, api_key=SecretStr("k")))
        await model.prepare()
        await model.answer(REQUEST)
        await model.aclose()
asyncio.run(main())
print(sorted({{"anthropic", "google.genai"}} & set(sys.modules)))
"""
    finished = subprocess.run(  # noqa: S603 (our own code)
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )

    assert finished.stdout.strip() == "[]", finished.stderr
