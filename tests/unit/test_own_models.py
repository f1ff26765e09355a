"""Which model a project's settings, those of the process and its variables make together."""

from typing import Any

import pytest
from pydantic import SecretStr

from pipeline.failing.reasons import Reason
from pipeline.models.own import CEREBRAS_URL, OwnModels, Resolved, UnaskableModel, resolved
from pipeline.settings import LLMSettings
from schemas.project import ExtractionLLM

PROCESS = LLMSettings(provider="openai", model="gpt-x", api_key=SecretStr("process"))
GATEWAY = "https://gateway.example/v1"


def reached(
    own: dict[str, Any], secrets: dict[str, str] | None = None, process: LLMSettings = PROCESS
) -> tuple[Any, ...]:
    """Return provider, model, address and key."""
    found = resolved(ExtractionLLM.model_validate(own), process, secrets or {})
    if isinstance(found, Reason):
        return (found,)
    key = found.settings.api_key
    settings = found.settings
    return (
        settings.provider,
        settings.model,
        settings.base_url,
        None if key is None else key.get_secret_value(),
    )


@pytest.mark.parametrize(
    ("own", "secrets", "expected"),
    [
        ({"model": "gpt-y"}, {}, ("openai", "gpt-y", None, "process")),
        ({"provider": "openai"}, {}, ("openai", "gpt-x", None, "process")),
        (
            {"provider": "openai"},
            {"OPENAI_API_KEY": "other"},
            ("openai", "gpt-x", None, "process"),
        ),
        (
            {"provider": "openai", "api_key_secret": "ACME_API_KEY"},
            {"ACME_API_KEY": "acme", "OPENAI_API_KEY": "other"},
            ("openai", "gpt-x", None, "acme"),
        ),
        (
            {"provider": "anthropic", "model": "c"},
            {"ANTHROPIC_API_KEY": "a", "LLM_API_KEY": "shared"},
            ("anthropic", "c", None, "a"),
        ),
        (
            {"provider": "gemini", "model": "g"},
            {"LLM_API_KEY": "shared"},
            ("gemini", "g", None, "shared"),
        ),
        (
            {"provider": "cerebras", "model": "l"},
            {"CEREBRAS_API_KEY": "c"},
            ("openai_compatible", "l", CEREBRAS_URL, "c"),
        ),
    ],
)
def test_what_a_project_leaves_out_is_the_process_s_or_the_provider_s(
    own: dict[str, Any], secrets: dict[str, str], expected: tuple[Any, ...]
) -> None:
    assert reached(own, secrets) == expected


def test_the_key_of_the_process_goes_nowhere_else() -> None:
    elsewhere = {"provider": "openai", "base_url": GATEWAY}
    own_server = {"provider": "openai_compatible", "model": "m", "base_url": GATEWAY}

    assert reached(elsewhere, {"OPENAI_API_KEY": "o"})[-1] == "o"
    assert reached(elsewhere) == (Reason.SECRET_MISSING,)
    assert reached(own_server, {"LLM_API_KEY": "shared"})[-1] is None


@pytest.mark.parametrize(
    ("own", "secrets", "reason"),
    [
        ({"provider": "anthropic"}, {"ANTHROPIC_API_KEY": "a"}, Reason.MODEL_NOT_NAMED),
        ({"provider": "anthropic", "model": "c"}, {}, Reason.SECRET_MISSING),
        (
            {"provider": "openai", "api_key_secret": "ACME_API_KEY"},
            {"OPENAI_API_KEY": "o", "ACME_API_KEY": ""},
            Reason.SECRET_MISSING,
        ),
        *(
            (
                {"provider": "openai", "api_key_secret": "ACME_API_KEY"},
                {"ACME_API_KEY": unusable},
                Reason.SECRET_MISSING,
            )
            for unusable in (" \n", "cl\u00e9", "a\x00b", "a\nb")
        ),
    ],
)
def test_what_cannot_be_asked_says_why(
    own: dict[str, Any], secrets: dict[str, str], reason: Reason
) -> None:
    assert reached(own, secrets) == (reason,)


def test_how_it_is_asked_stays_as_the_process_has_it() -> None:
    process = PROCESS.model_copy(update={"max_tokens": 777, "temperature": 1.0})
    found = resolved(ExtractionLLM(model="gpt-y"), process, {})

    assert isinstance(found, Resolved)
    assert (found.settings.max_tokens, found.settings.temperature) == (777, 1.0)


def test_a_key_is_taken_without_the_line_that_ends_its_file() -> None:
    own = {"provider": "openai", "api_key_secret": "ACME_API_KEY"}

    assert reached(own, {"ACME_API_KEY": "acme\n"})[-1] == "acme"


async def test_a_model_is_made_once_and_the_process_s_own_is_not_made_again() -> None:
    models = OwnModels(PROCESS, {"ACME_API_KEY": "acme"})
    named = ExtractionLLM(provider="openai", api_key_secret="ACME_API_KEY")
    again = ExtractionLLM(provider="openai", api_key_secret="ACME_API_KEY")

    first, second = await models.of(named), await models.of(again)
    unset = await models.of(ExtractionLLM(provider="openai"))
    missing = await models.of(ExtractionLLM(provider="gemini", model="g"))
    await models.aclose()

    assert first is not None
    assert first is second
    assert unset is None
    assert missing is not None
    assert isinstance(missing.model, UnaskableModel)
    assert "acme" not in first.name
