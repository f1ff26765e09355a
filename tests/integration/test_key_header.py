"""Where a gateway wants the key in a header of its own."""

import pytest
from pydantic import SecretStr

from pipeline.models.choosing import model_from
from pipeline.ports.model import ModelRequest
from pipeline.settings import LLMSettings
from schemas.memory import Kind
from tests import scripted_endpoint as scripted
from tests.builders import turn
from tests.scripted_endpoint import ScriptedEndpoint

REQUEST = ModelRequest(turns=(turn(1),), context=(), kinds=tuple(Kind), max_tokens=None)


@pytest.mark.parametrize(
    ("auth_header", "api_key", "authorization"),
    [
        ("api-key", "k1", None),
        ("authorization", None, "Bearer k1"),
        (None, None, "Bearer k1"),
    ],
)
async def test_the_key_is_sent_where_it_is_wanted_and_nowhere_else(
    endpoint: ScriptedEndpoint,
    auth_header: str | None,
    api_key: str | None,
    authorization: str | None,
) -> None:
    endpoint.always(scripted.answers())
    settings = LLMSettings(
        provider="openai_compatible",
        model="m",
        base_url=endpoint.url,
        api_key=SecretStr("k1"),
    )
    model = model_from(settings, auth_header=auth_header)

    await model.answer(REQUEST)
    await model.aclose()

    (sent,) = endpoint.requests
    assert sent.headers.get("api-key") == api_key
    assert sent.headers.get("authorization") == authorization
