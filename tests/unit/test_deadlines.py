"""Deadlines that contradict each other keep a process from starting, and the message says which."""

import re
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from consumers.deadlines import STOP_CAP, check_deadlines, deadline_problems, longest_stop
from pipeline.errors import ConfigurationError
from pipeline.settings import Settings

SETTINGS = Settings()
SPANS = st.floats(min_value=0.1, max_value=300)
CASES: dict[str, tuple[dict[str, float], set[str]]] = {
    "a call as long as an attempt": (
        {"llm.timeout": 150},
        {"LLM__TIMEOUT", "EXTRACTION__ATTEMPT_DEADLINE"},
    ),
    "an attempt as long as its lease": (
        {"extraction.lease": 150},
        {"EXTRACTION__ATTEMPT_DEADLINE", "EXTRACTION__LEASE"},
    ),
    "a database slower than what the lease has left": (
        {"mongo.timeout": 30},
        {"MONGO__TIMEOUT", "EXTRACTION__LEASE", "EXTRACTION__ATTEMPT_DEADLINE"},
    ),
    "an attempt that looks like a stall": (
        {"kafka.session_timeout": 37.5},
        {"EXTRACTION__ATTEMPT_DEADLINE", "KAFKA__SESSION_TIMEOUT"},
    ),
    "a publish as long as a drain": (
        {"kafka.publish_timeout": 60},
        {"KAFKA__PUBLISH_TIMEOUT", "KAFKA__DRAIN_TIMEOUT"},
    ),
    "a drain as long as a rebalance": (
        {"kafka.rebalance_timeout": 60},
        {"KAFKA__DRAIN_TIMEOUT", "KAFKA__REBALANCE_TIMEOUT"},
    ),
    "a heartbeat that must not get lost": (
        {"kafka.heartbeat_interval": 15.5},
        {"KAFKA__HEARTBEAT_INTERVAL", "KAFKA__SESSION_TIMEOUT"},
    ),
    "a stop beyond its cap": (
        {"kafka.request_timeout": 19},
        {"KAFKA__DRAIN_TIMEOUT", "KAFKA__REQUEST_TIMEOUT"},
    ),
}


def changed(spans: dict[str, float]) -> Settings:
    """Return the defaults with these spans, in seconds, by `group.name`."""
    groups: dict[str, BaseModel] = {}
    for place, seconds in spans.items():
        group, _, name = place.partition(".")
        before: BaseModel = groups[group] if group in groups else getattr(SETTINGS, group)
        update: dict[str, Any] = {name: timedelta(seconds=seconds)}
        groups[group] = before.model_copy(update=update)
    return SETTINGS.model_copy(update=groups)


def test_the_defaults_agree() -> None:
    check_deadlines(SETTINGS)


@pytest.mark.parametrize("case", CASES)
def test_a_contradiction_names_each_setting_and_what_to_change(case: str) -> None:
    spans, named = CASES[case]

    (problem,) = deadline_problems(changed(spans))

    assert {name.removeprefix("AFTERTURN_") for name in re.findall(r"AFTERTURN_\w+", problem)} == (
        named
    )
    assert "lower" in problem


def test_all_contradictions_are_said_at_once() -> None:
    settings = changed({"llm.timeout": 150, "kafka.rebalance_timeout": 60})

    with pytest.raises(ConfigurationError) as refused:
        check_deadlines(settings)

    assert "LLM__TIMEOUT" in str(refused.value)
    assert "REBALANCE_TIMEOUT" in str(refused.value)


@given(
    spans=st.fixed_dictionaries(
        {
            "llm.timeout": SPANS,
            "extraction.attempt_deadline": SPANS,
            "extraction.lease": SPANS,
            "mongo.timeout": SPANS,
            "kafka.drain_timeout": SPANS,
            "kafka.publish_timeout": SPANS,
            "kafka.request_timeout": SPANS,
            "kafka.rebalance_timeout": SPANS,
            "kafka.session_timeout": SPANS,
            "kafka.heartbeat_interval": SPANS,
        }
    )
)
def test_what_starts_ends_everything_in_its_time(spans: dict[str, float]) -> None:
    settings = changed(spans)
    kafka, extraction = settings.kafka, settings.extraction

    holds = (
        settings.llm.timeout < extraction.attempt_deadline
        and extraction.attempt_deadline + settings.mongo.timeout < extraction.lease
        and extraction.attempt_deadline < 4 * kafka.session_timeout
        and kafka.publish_timeout < kafka.drain_timeout < kafka.rebalance_timeout
        and 3 * kafka.heartbeat_interval <= kafka.session_timeout
        and longest_stop(kafka) < STOP_CAP
    )

    assert (deadline_problems(settings) == []) == holds
