"""The arithmetic of deadlines: which must end before which, checked in one place at start."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from consumers.apps import DISCONNECT_TIMEOUT
from consumers.health_progress import STALL_SESSIONS
from consumers.isolation import GIVING_BACK
from consumers.pool import CANCEL_TIMEOUT
from pipeline.errors import ConfigurationError
from pipeline.settings import KafkaSettings, Settings
from producers import publishing

STOP_CAP: Final = timedelta(seconds=120)
"""Within this after a signal a process has ended, whatever does not answer."""
HEARTBEATS: Final = 3
"""How many must fit into a session, so that one that got lost ends no membership."""


def check_deadlines(settings: Settings) -> None:
    """Return if a process may start with these.

    Raises:
        ConfigurationError: It may not; the message names each pair and what to change.
    """
    problems = deadline_problems(settings)
    if problems:
        raise ConfigurationError("; ".join(problems))


def deadline_problems(settings: Settings, *, stop_cap: timedelta = STOP_CAP) -> list[str]:
    """Return which deadlines contradict each other and what to change; nothing where none do."""
    return list(_problems(settings, stop_cap))


def longest_stop(settings: KafkaSettings) -> timedelta:
    """Return how long stopping may take when nothing answers."""
    commits = 2 * settings.request_timeout  # the one under way and the last one
    publisher = publishing.CLOSE_TIMEOUT + publishing.DISCONNECT_TIMEOUT
    consumers = settings.drain_timeout + CANCEL_TIMEOUT + commits + 2 * DISCONNECT_TIMEOUT
    consumers += GIVING_BACK
    return consumers + publisher


def _problems(settings: Settings, stop_cap: timedelta) -> Iterator[str]:
    kafka, extraction = settings.kafka, settings.extraction
    llm, mongo = settings.llm, settings.mongo
    margin = extraction.lease - extraction.attempt_deadline
    patience = STALL_SESSIONS * kafka.session_timeout
    if llm.timeout >= extraction.attempt_deadline:
        yield _must_be_shorter(
            ("LLM__TIMEOUT", llm.timeout),
            ("EXTRACTION__ATTEMPT_DEADLINE", extraction.attempt_deadline),
            "one call that hangs would take all of an attempt",
        )
    if extraction.attempt_deadline >= extraction.lease:
        yield _must_be_shorter(
            ("EXTRACTION__ATTEMPT_DEADLINE", extraction.attempt_deadline),
            ("EXTRACTION__LEASE", extraction.lease),
            "another process would begin what is still worked on",
        )
    elif mongo.timeout >= margin:
        yield (
            f"AFTERTURN_MONGO__TIMEOUT ({_shown(mongo.timeout)}) must be shorter than what "
            f"AFTERTURN_EXTRACTION__LEASE ({_shown(extraction.lease)}) has beyond "
            f"AFTERTURN_EXTRACTION__ATTEMPT_DEADLINE ({_shown(extraction.attempt_deadline)}): else "
            "an answer that was paid for can't be stored in time; lower the first or raise the "
            "second"
        )
    if extraction.attempt_deadline >= patience:
        yield (
            f"AFTERTURN_EXTRACTION__ATTEMPT_DEADLINE ({_shown(extraction.attempt_deadline)}) must "
            f"be shorter than {STALL_SESSIONS} times AFTERTURN_KAFKA__SESSION_TIMEOUT "
            f"({_shown(kafka.session_timeout)}): else a slow attempt looks like a process that "
            "does not move; lower the first or raise the second"
        )
    if kafka.publish_timeout >= kafka.drain_timeout:
        yield _must_be_shorter(
            ("KAFKA__PUBLISH_TIMEOUT", kafka.publish_timeout),
            ("KAFKA__DRAIN_TIMEOUT", kafka.drain_timeout),
            "work that only waits for Kafka could not finish when its partition is taken away",
        )
    if kafka.drain_timeout >= kafka.rebalance_timeout:
        yield _must_be_shorter(
            ("KAFKA__DRAIN_TIMEOUT", kafka.drain_timeout),
            ("KAFKA__REBALANCE_TIMEOUT", kafka.rebalance_timeout),
            "a member that drains longer is thrown out",
        )
    if HEARTBEATS * kafka.heartbeat_interval > kafka.session_timeout:
        yield (
            f"AFTERTURN_KAFKA__HEARTBEAT_INTERVAL ({_shown(kafka.heartbeat_interval)}) must be at "
            f"most a third of AFTERTURN_KAFKA__SESSION_TIMEOUT ({_shown(kafka.session_timeout)}): "
            "else a lost heartbeat ends the membership; lower the first or raise the second"
        )
    longest = longest_stop(kafka)
    if longest >= stop_cap:
        yield (
            f"AFTERTURN_KAFKA__DRAIN_TIMEOUT ({_shown(kafka.drain_timeout)}) and twice "
            f"AFTERTURN_KAFKA__REQUEST_TIMEOUT ({_shown(kafka.request_timeout)}) let a stop take "
            f"{_shown(longest)}, and a process is ended {_shown(stop_cap)} after its signal: lower "
            "one of them"
        )


def _must_be_shorter(
    shorter: tuple[str, timedelta], longer: tuple[str, timedelta], otherwise: str
) -> str:
    return (
        f"AFTERTURN_{shorter[0]} ({_shown(shorter[1])}) must be shorter than "
        f"AFTERTURN_{longer[0]} ({_shown(longer[1])}): else {otherwise}; lower the first or raise "
        "the second"
    )


def _shown(span: timedelta) -> str:
    return f"{span.total_seconds():g} s"
