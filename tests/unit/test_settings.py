"""What an operator writes into the environment."""

from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from cli.environment import configured
from pipeline.errors import ConfigurationError
from pipeline.settings import Settings
from tests.settings_page import page


@pytest.mark.parametrize(
    ("text", "span"),
    [("90", 90), ("0.5", 0.5), ("PT2M", 120), ("00:01:30", 90)],
)
def test_a_span_is_seconds_or_iso_8601(
    text: str, span: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AFTERTURN_SNAPSHOT__STALE", text)

    assert Settings().snapshot.stale == timedelta(seconds=span)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "soon"])
def test_a_span_that_is_none_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERTURN_SNAPSHOT__STALE", text)

    with pytest.raises(ValidationError):
        Settings()


def test_a_misspelt_group_member_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERTURN_MONGO__URL", "mongodb://x")

    with pytest.raises(ValidationError):
        Settings()


def test_a_variable_that_is_empty_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of `.env.example` that is taken in without a value, or `$KEY` where none is."""
    for variable in ("LLM", "LLM__PROVIDER", "LLM__API_KEY", "KAFKA__INSTANCE_ID", "HEALTH__PORT"):
        monkeypatch.setenv(f"AFTERTURN_{variable}", "")

    assert Settings() == Settings.model_construct()
    assert Settings().kafka.instance_id is None
    assert "api_key" not in Settings().llm.model_fields_set


def test_secrets_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERTURN_LLM__API_KEY", "sk-planted")
    monkeypatch.setenv("AFTERTURN_MONGO__URI", "mongodb://u:planted@h")

    assert "planted" not in repr(Settings())


@pytest.mark.parametrize("group", ["LLM", "EMBEDDING", "RERANK"])
@pytest.mark.parametrize("key", ["sk-schlüssel", "sk planted", "sk-planted\n", "\u200bsk-planted"])
def test_a_key_that_no_header_can_hold_is_refused_without_being_shown(
    monkeypatch: pytest.MonkeyPatch, group: str, key: str
) -> None:
    monkeypatch.setenv(f"AFTERTURN_{group}__API_KEY", key)

    with pytest.raises(ConfigurationError, match=f"AFTERTURN_{group}__API_KEY.*ASCII") as refused:
        configured()
    assert key not in str(refused.value)


def test_the_settings_page_is_what_the_settings_are() -> None:
    written = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()

    assert written == page(), "python -m tests.settings_page > docs/settings.md"
