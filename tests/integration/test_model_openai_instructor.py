"""Errors as instructor itself raises them, without our checks before it, are classified alike."""

from collections.abc import AsyncIterator
from typing import Any

import instructor
import openai
import pytest

from pipeline.failing.failures import classify
from pipeline.failing.reasons import Reason
from schemas.failure import FailureClass
from schemas.memory import Answer
from tests import scripted_endpoint as scripted
from tests.scripted_endpoint import Reply, ScriptedEndpoint

CASES: list[tuple[Reply, FailureClass, Reason, int]] = [
    (scripted.status(400), FailureClass.BAD_REQUEST, Reason.HTTP_400, 1),
    (scripted.status(401), FailureClass.CREDENTIALS, Reason.HTTP_401, 1),
    (scripted.status(429), FailureClass.RATE_LIMITED, Reason.HTTP_429, 1),
    (scripted.status(503), FailureClass.UNAVAILABLE, Reason.HTTP_503, 1),
    (scripted.resets(), FailureClass.NETWORK, Reason.CONNECTION, 1),
    (scripted.hangs(), FailureClass.TIMEOUT, Reason.NO_ANSWER_IN_TIME, 1),
    (scripted.cut_off(), FailureClass.TRUNCATED, Reason.FINISH_LENGTH, 1),
    (scripted.filtered(), FailureClass.FILTERED, Reason.CONTENT_FILTER, 3),
    (scripted.refuses(), FailureClass.REFUSED, Reason.REFUSAL, 1),
    (scripted.says("Sorry, I cannot."), FailureClass.INVALID_OUTPUT, Reason.NO_TOOL_CALL, 3),
    (scripted.calls_tool("{"), FailureClass.INVALID_OUTPUT, Reason.WRONG_SHAPE, 3),
    (scripted.calls_tool({"a": 1}), FailureClass.INVALID_OUTPUT, Reason.WRONG_SHAPE, 3),
    (scripted.completes([]), FailureClass.UNAVAILABLE, Reason.NO_CHOICES, 1),
    (scripted.sends({"choices": None}), FailureClass.UNAVAILABLE, Reason.NO_CHOICES, 1),
    (scripted.raw(b"oops"), FailureClass.UNAVAILABLE, Reason.NOT_A_COMPLETION, 3),
    (scripted.html(), FailureClass.UNAVAILABLE, Reason.NOT_A_COMPLETION, 3),
]


@pytest.fixture
async def client(endpoint: ScriptedEndpoint) -> AsyncIterator[Any]:
    """An instructor client of the endpoint."""
    async with openai.AsyncOpenAI(
        base_url=endpoint.url, api_key="unused", max_retries=0, timeout=0.5
    ) as opened:
        yield instructor.from_openai(opened, mode=instructor.Mode.TOOLS)


async def error_of(client: Any) -> Exception:
    """Return what a request ends in."""
    with pytest.raises(Exception) as raised:
        await client.create(
            response_model=Answer,
            max_retries=2,
            model="scripted-1",
            messages=[{"role": "user", "content": "CANARY-4410"}],
        )
    return raised.value


@pytest.mark.parametrize(("reply", "expected"), [(case[0], case[1:]) for case in CASES])
async def test_instructor_errors_are_classified_by_their_causes(
    endpoint: ScriptedEndpoint,
    client: Any,
    reply: Reply,
    expected: tuple[FailureClass, Reason, int],
) -> None:
    """Also where instructor's own re-ask stumbles; and it re-asks what we do not."""
    endpoint.always(reply)

    failure = classify(await error_of(client))

    assert (failure.failure_class, failure.reason, endpoint.count) == expected
    assert "CANARY" not in failure.model_dump_json()
