"""Every embedder with its real client against a scripted service: what comes of each answer."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from datetime import timedelta

import numpy as np
import pytest
from pydantic import SecretStr

from pipeline.embedding.batching import BatchedEmbedder
from pipeline.embedding.choosing import embedder_from
from pipeline.embedding.ports import Purpose, Refused, Vector
from pipeline.errors import ConfigurationError
from pipeline.failing.failures import classify
from pipeline.settings import EmbeddingSettings
from schemas.failure import FailureClass
from tests.scripted_endpoint import (
    Json,
    Reply,
    ScriptedEndpoint,
    endless,
    hangs,
    hangs_up,
    html,
    packed,
    raw,
    resets,
    sends,
    status,
    truncated,
)

PROVIDERS = ("openai", "openai_compatible", "voyage")
CANARY = "CANARY-7741 lives in Porto"


def settings(provider: str, url: str, /, **changes: object) -> EmbeddingSettings:
    given: dict[str, object] = {
        "provider": provider,
        "model": "vectors-1",
        "base_url": url,
        "api_key": SecretStr("k"),
        "dimension": 3,
        "timeout": timedelta(seconds=5),
    }
    return EmbeddingSettings.model_validate(given | changes)


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def embedder(provider: str, endpoint: ScriptedEndpoint) -> AsyncGenerator[BatchedEmbedder]:
    made = embedder_from(settings(provider, endpoint.url))
    yield made
    await made.aclose()


def rows(*vectors: object) -> Reply:
    return sends(
        {
            "object": "list",
            "data": [
                {"object": "embedding", "index": index, "embedding": vector}
                for index, vector in enumerate(vectors)
            ],
            "usage": {"prompt_tokens": 1, "total_tokens": 1},
        }
    )


def of_length(request: Json) -> Reply:
    """Answer each text with a vector that tells its length."""
    return rows(*([len(text), 1, 0] for text in request["input"]))


async def passages(embedder: BatchedEmbedder, *texts: str) -> Sequence[Vector | Refused]:
    return await embedder.embed(texts, Purpose.PASSAGE)


async def test_vectors_come_in_the_order_of_the_texts_and_at_unit_length(
    embedder: BatchedEmbedder, endpoint: ScriptedEndpoint
) -> None:
    shuffled = [
        {"index": 1, "embedding": [0, 2, 0]},
        {"index": 0, "embedding": [3, 4, 0]},
    ]
    endpoint.script(sends({"data": shuffled}))

    first, second = await passages(embedder, "one", "two")

    assert isinstance(first, np.ndarray)
    assert isinstance(second, np.ndarray)
    assert first == pytest.approx([0.6, 0.8, 0])
    assert second == pytest.approx([0, 1, 0])
    assert first.dtype == np.float32


async def test_each_provider_is_asked_in_its_own_words(endpoint: ScriptedEndpoint) -> None:
    endpoint.respond_with(of_length)
    asked: dict[str, Json] = {}
    for name in PROVIDERS:
        embedder = embedder_from(settings(name, endpoint.url))
        await embedder.embed(["who?"], Purpose.QUERY)
        await embedder.aclose()
        asked[name] = endpoint.requests[-1].json
        assert endpoint.requests[-1].path == "/v1/embeddings"
        assert endpoint.requests[-1].headers["authorization"] == "Bearer k"

    base = {"input": ["who?"], "model": "vectors-1"}
    assert asked == {
        "openai": {**base, "encoding_format": "float", "dimensions": 3},
        "openai_compatible": {**base, "encoding_format": "float"},
        "voyage": {
            **base,
            "input_type": "query",
            "output_dimension": 3,
            "truncation": False,
        },
    }


SERVICE_FAILS: dict[str, tuple[Reply, FailureClass]] = {
    "server error": (status(500), FailureClass.UNAVAILABLE),
    "overloaded": (status(529), FailureClass.UNAVAILABLE),
    "too many": (status(429, retry_after=7), FailureClass.RATE_LIMITED),
    "no quota": (status(402), FailureClass.QUOTA),
    "wrong key": (status(401), FailureClass.CREDENTIALS),
    "forbidden": (status(403), FailureClass.CREDENTIALS),
    "unknown model": (status(404), FailureClass.MODEL_UNKNOWN),
    "reset": (resets(), FailureClass.NETWORK),
    "hung up": (hangs_up(), FailureClass.NETWORK),
    "cut off": (truncated(rows([1, 0, 0]), sent_bytes=20), FailureClass.NETWORK),
    "a login page": (html(), FailureClass.UNAVAILABLE),
    "a broken body": (raw(b'{"data": [{'), FailureClass.UNAVAILABLE),
    "another dimension": (rows([1, 0, 0, 0]), FailureClass.PARAMETER_UNKNOWN),
}


@pytest.mark.parametrize("name", SERVICE_FAILS)
async def test_what_the_service_does_wrong_is_nobodys_refusal(
    name: str, embedder: BatchedEmbedder, endpoint: ScriptedEndpoint
) -> None:
    reply, failure_class = SERVICE_FAILS[name]
    endpoint.script(reply)

    with pytest.raises(Exception) as raised:
        await passages(embedder, CANARY)

    failure = classify(raised.value)
    assert failure.failure_class is failure_class
    assert "CANARY" not in failure.model_dump_json()
    assert failure.retry_after_seconds == (7 if name == "too many" else None)
    assert endpoint.count == 1, "no client retries by itself"


@pytest.mark.parametrize("provider", ["openai"], indirect=True)
async def test_a_spent_quota_is_told_from_too_many_requests(
    embedder: BatchedEmbedder, endpoint: ScriptedEndpoint
) -> None:
    endpoint.script(status(429, error_code="insufficient_quota"))

    with pytest.raises(Exception) as raised:
        await passages(embedder, "a")

    assert classify(raised.value).failure_class is FailureClass.QUOTA


async def test_no_answer_in_time_is_a_timeout(endpoint: ScriptedEndpoint, provider: str) -> None:
    quick = settings(provider, endpoint.url, timeout=timedelta(milliseconds=200))
    embedder = embedder_from(quick)
    endpoint.script(hangs())

    with pytest.raises(Exception) as raised:
        await passages(embedder, "a")

    assert classify(raised.value).failure_class is FailureClass.TIMEOUT
    await embedder.aclose()


UNUSABLE: dict[str, tuple[Reply, str]] = {
    "too long": (status(400, error_code="string_above_max_length"), ""),
    "refused": (status(400), "http_400"),
    "too large": (status(413), "http_413"),
    "no vector": (sends({"data": []}), "no_vector"),
    "an empty vector": (rows([]), "no_vector"),
    "words for numbers": (rows(["1", "0", "0"]), "no_vector"),
    "nulls": (rows([None, 0, 1]), "no_vector"),
    "one too many": (rows([1, 0, 0], [1, 0, 0]), "no_vector"),
    "another place": (sends({"data": [{"index": 1, "embedding": [1, 0, 0]}]}), "no_vector"),
    "no object": (sends([1]), "no_vector"),
    "NaN": (raw(b'{"data": [{"index": 0, "embedding": [NaN, 0, 0]}]}'), "not_finite"),
    "infinity": (raw(b'{"data": [{"index": 0, "embedding": [1e999, 0, 0]}]}'), "not_finite"),
    "a huge integer": (
        raw(b'{"data": [{"index": 0, "embedding": [1' + b"0" * 400 + b", 0, 0]}]}"),
        "not_finite",
    ),
    "zero": (rows([0, 0, 0]), "zero_vector"),
    "far too much": (endless(rows([1, 0, 0])), "answer_too_large"),
}


@pytest.mark.parametrize("name", UNUSABLE)
async def test_a_text_that_has_no_vector_is_refused_with_its_reason(
    name: str, embedder: BatchedEmbedder, endpoint: ScriptedEndpoint
) -> None:
    reply, reason = UNUSABLE[name]
    endpoint.script(reply)

    (refused,) = await passages(embedder, CANARY)

    assert isinstance(refused, Refused)
    assert not reason or refused.reason == reason
    assert refused.failure_class.is_content
    assert "CANARY" not in refused.reason


async def test_the_neighbours_of_what_is_refused_get_their_vectors(
    embedder: BatchedEmbedder, endpoint: ScriptedEndpoint
) -> None:
    def refuses_bad(request: Json) -> Reply:
        texts = request["input"]
        return status(400) if "bad" in texts else of_length(request)

    endpoint.respond_with(refuses_bad)
    texts = [*("a" * n for n in range(1, 8)), "bad", *("a" * n for n in range(9, 17))]

    found = await passages(embedder, *texts)

    assert isinstance(found[7], Refused)
    for text, vector in zip(texts, found, strict=True):
        if text != "bad":
            assert isinstance(vector, np.ndarray)
            assert vector[0] / vector[1] == pytest.approx(len(text))
    assert endpoint.count <= 9, "halves of halves, not every text for itself"


async def test_who_fails_while_halves_are_asked_for_is_not_asked_for_the_rest(
    embedder: BatchedEmbedder, endpoint: ScriptedEndpoint
) -> None:
    endpoint.script(status(400), status(503))

    with pytest.raises(Exception) as raised:
        await passages(embedder, "a", "b", "c", "d")

    assert classify(raised.value).failure_class is FailureClass.UNAVAILABLE
    assert endpoint.count == 2


async def test_what_is_asked_at_the_same_time_goes_in_one_request(
    embedder: BatchedEmbedder, endpoint: ScriptedEndpoint
) -> None:
    endpoint.respond_with(of_length)

    found = await asyncio.gather(*(passages(embedder, "a" * n) for n in range(1, 41)))

    sizes = sorted(len(request.json["input"]) for request in endpoint.requests)
    assert sizes == [8, 32]
    for n, (vector,) in enumerate(found, 1):
        assert isinstance(vector, np.ndarray)
        assert vector[0] / vector[1] == pytest.approx(n)


async def test_one_who_leaves_takes_nobody_with_him(
    embedder: BatchedEmbedder, endpoint: ScriptedEndpoint
) -> None:
    endpoint.respond_with(of_length)
    leaver = asyncio.create_task(passages(embedder, "gone"))
    stayer = asyncio.create_task(passages(embedder, "stays"))
    await asyncio.sleep(0)
    leaver.cancel()

    (vector,) = await stayer

    assert isinstance(vector, np.ndarray)
    assert json.loads(endpoint.requests[0].body)["input"] == ["stays"]


async def test_a_packed_answer_is_read(
    embedder: BatchedEmbedder, endpoint: ScriptedEndpoint
) -> None:
    endpoint.script(packed(rows([1, 0, 0])))

    (vector,) = await passages(embedder, "a")

    assert isinstance(vector, np.ndarray)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"provider": "none"}, "AFTERTURN_EMBEDDING__PROVIDER"),
        ({"provider": "voyage", "api_key": None}, "AFTERTURN_EMBEDDING__API_KEY"),
        ({"provider": "openai", "dimension": None}, "AFTERTURN_EMBEDDING__DIMENSION"),
        ({"provider": "openai_compatible", "base_url": None}, "AFTERTURN_EMBEDDING__BASE_URL"),
        ({"provider": "local", "model": None}, "AFTERTURN_EMBEDDING__DIMENSION"),
    ],
)
def test_what_is_missing_is_named(given: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        embedder_from(settings("openai", "http://127.0.0.1:1", **given))


async def test_the_local_model_knows_what_means_the_same_in_another_language() -> None:
    embedder = embedder_from(EmbeddingSettings(provider="local"))
    texts = ["Sie wohnt in Lissabon.", "The tyre is flat.", "nul \x00 and half \ud83d of one"]

    (asked,) = await embedder.embed(["Where does she live?"], Purpose.QUERY)
    found = await passages(embedder, *texts)

    assert isinstance(asked, np.ndarray)
    nearness = [float(asked @ vector) for vector in found if isinstance(vector, np.ndarray)]
    assert len(nearness) == 3
    assert nearness[0] > nearness[1] + 0.05
    assert len(asked) == embedder.dimension == 384
    await embedder.aclose()
